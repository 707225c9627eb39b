"""One program in two worlds, and a report of where they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
from kube_golden import step_as_json
from kube_known import even_out
from kube_normal import normal_form
from kube_program import Program, Step, complete
from kube_worlds import World, run_program

SHOWN_CHARACTERS = 1_000
"""Of one answer in a report."""

MISSING = "<nothing>"


@attrs.frozen
class Difference:
    """The first step where two worlds differ: where in the answer, and both values there."""

    step: int
    path: str
    real: Any
    store: Any


def first_difference(real: Any, store: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return where two JSON values first differ, and both values there; None when they are equal."""
    if isinstance(real, dict) and isinstance(store, dict):
        pairs = [(f"{path}.{key}", real.get(key, MISSING), store.get(key, MISSING)) for key in sorted({*real, *store})]
    elif isinstance(real, list) and isinstance(store, list):
        pairs = [(f"{path}[{index}]", *both) for index, both in enumerate(zip(real, store, strict=False))]
        pairs.append((f"{path}.length", len(real), len(store)))
    elif real == store and isinstance(real, bool) == isinstance(store, bool):
        return None
    else:
        return path, real, store
    return next(filter(None, (first_difference(one, other, where) for where, one, other in pairs)), None)


def compare(
    steps: Sequence[Step], real: Sequence[dict[str, Any]], store: Sequence[dict[str, Any]]
) -> tuple[Difference | None, list[str]]:
    """Return the first unknown difference between the normal forms of two runs, and the known ones before it."""
    used: list[str] = []
    for index, (step, one, other) in enumerate(zip(steps, real, store, strict=True)):
        evened, other_evened, names = even_out(step, one, other)
        used += names
        found = first_difference(evened, other_evened)
        if found:
            return Difference(index, *found), used
    return None, used


def _shown(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ... ({len(text)} characters)"


def report(steps: Sequence[Step], difference: Difference, real: Any, store: Any) -> str:
    """Say what was asked up to the difference, and what each world said there."""
    lines = [f"The store differs from the real server at step {difference.step}, in {difference.path or 'all'}:"]
    lines += [f"  real:  {_shown(difference.real)}", f"  store: {_shown(difference.store)}", "The program so far:"]
    lines += [f"  {index}: {_shown(step_as_json(step))}" for index, step in enumerate(steps[: difference.step + 1])]
    lines += ["The whole answers at that step:", f"  real:  {_shown(real)}", f"  store: {_shown(store)}"]
    return "\n".join(lines)


def judge(program: Program, real: World, store: World) -> tuple[str, list[str]]:
    """Run a program in both worlds.

    Returns:
        The report of the first unknown difference, "" without one; and the names of the known ones that were met.
    """
    steps = complete(program)
    of_store = run_program(program, store)
    of_real = run_program(program, real, of_store)
    answers, ours = normal_form(of_real), normal_form(of_store)
    difference, used = compare(steps, answers, ours)
    if difference is None:
        return "", used
    return report(steps, difference, answers[difference.step], ours[difference.step]), used
