"""Requests for models over some days: which checkpoint is thawed when. From a seed, the same each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import attrs

GB = 10**9

SIZES_GB = (0.5, 1, 3, 7, 14, 26, 70)
"""Of checkpoints with models of some hundred million to some dozen billion parameters."""

MODELS = 60
REQUESTS = 1200
EVERY_S = 240


@attrs.frozen
class Trace:
    """``requests`` have the second in which each comes, in their order, and the checkpoint."""

    name: str
    about: str
    sizes: Mapping[str, int]
    requests: tuple[tuple[float, str], ...]


def _mixed(rng: random.Random) -> dict[str, int]:
    """Draw models of all sizes; how popular one is, is independent of that."""
    return {f"m{number:02}": int(rng.choice(SIZES_GB) * GB) for number in range(MODELS)}


def _popular(count: int, exponent: float = 1.0) -> list[float]:
    """Return how often each is asked for, by Zipf."""
    return [1 / (rank + 1) ** exponent for rank in range(count)]


def _times(rng: random.Random, count: int, every_s: float) -> list[float]:
    now, found = 0.0, []
    for _ in range(count):
        now += rng.expovariate(1 / every_s)
        found.append(now)
    return found


def zipf(seed: int, requests: int = REQUESTS) -> Trace:
    """Draw requests for models of mixed sizes, by popularity alone."""
    rng = random.Random(seed)
    sizes = _mixed(rng)
    chosen = rng.choices([*sizes], _popular(MODELS), k=requests)
    about = "popularity by Zipf, sizes mixed"
    return Trace("zipf", about, sizes, tuple(zip(_times(rng, len(chosen), EVERY_S), chosen, strict=True)))


def diurnal(seed: int, requests: int = REQUESTS) -> Trace:
    """Draw requests of which the popular ones are others every twelve hours."""
    rng = random.Random(seed)
    sizes = _mixed(rng)
    names, weights = [*sizes], _popular(MODELS, 1.2)
    found = []
    for at in _times(rng, requests, EVERY_S):
        turned = MODELS // 2 * (int(at / 43_200) % 2)
        found.append((at, rng.choices([*names[turned:], *names[:turned]], weights)[0]))
    return Trace("diurnal", "other models are popular every twelve hours", sizes, tuple(found))


def scan(seed: int, requests: int = REQUESTS) -> Trace:
    """Draw requests as :func:`zipf` does; three times somebody thaws each model once, as an evaluation does."""
    rng = random.Random(seed)
    sizes = _mixed(rng)
    names, weights = [*sizes], _popular(MODELS, 1.2)
    chosen: list[str] = []
    for _ in range(3):
        chosen += [*rng.choices(names, weights, k=requests // 3 - MODELS), *names]
    about = "popularity by Zipf, and three scans of everything"
    return Trace("scan", about, sizes, tuple(zip(_times(rng, len(chosen), EVERY_S), chosen, strict=True)))


def tenants(seed: int, requests: int = REQUESTS) -> Trace:
    """Draw bursts: one of six tenants asks for its ten models some dozens of times, and is silent for long."""
    rng = random.Random(seed)
    sizes = _mixed(rng)
    names = [*sizes]
    chosen: list[str] = []
    while len(chosen) < requests:
        first = 10 * rng.randrange(MODELS // 10)
        chosen += rng.choices(names[first : first + 10], _popular(10, 0.8), k=rng.randint(20, 60))
    times = _times(rng, requests, EVERY_S)
    return Trace("tenants", "one tenant of six at a time, in bursts", sizes, tuple(zip(times, chosen, strict=False)))


TRACES: tuple[Callable[..., Trace], ...] = (zipf, diurnal, scan, tenants)
