"""Ratios of costs, on a machine that others use too.

Noise only ever adds: a neighbour takes cache and clock away and gives none. So each side's cost is the least of some
runs, and the sides take turns, so that a busy second meets both of them. Runs end as soon as what is claimed holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

RUNS = 5
"""Of each side at most. One is enough on a quiet machine; a claim that is wrong fails all of them."""

Figures = Mapping[str, float]


def compare(
    one: Callable[[], Figures], other: Callable[[], Figures], bounds: Mapping[str, float], runs: int = RUNS
) -> tuple[Figures, Figures]:
    """Assert that each figure in ``bounds`` is less than so many times as much on the ``other`` side as on the ``one``.

    Gives the figures of the first run of each, for what needs no second one: counts are the same in every run.
    """
    least: tuple[dict[str, float], dict[str, float]] = ({}, {})
    first: tuple[Figures, Figures] | None = None
    too_much: list[str] = []
    for _ in range(runs):
        found = one(), other()
        first = first or found
        for kept, figures in zip(least, found, strict=True):
            kept.update((name, min(kept.get(name, figures[name]), figures[name])) for name in bounds)
        too_much = [
            f"{name}: {least[1][name]:.4g} is not below {bound:g} times {least[0][name]:.4g}"
            for name, bound in bounds.items()
            if least[1][name] >= bound * least[0][name]
        ]
        if not too_much:
            break
    assert first is not None
    assert not too_much, f"the least of {runs} runs: {'; '.join(too_much)}"
    return first
