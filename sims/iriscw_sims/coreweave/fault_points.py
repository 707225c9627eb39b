"""Every chance that the simulated CoreWeave asks for, by name, with the highest rate a plan should give it."""

from __future__ import annotations

FAULT_POINTS: tuple[tuple[str, int], ...] = (
    ("validation slow", 200),
    ("pool invalid", 40),
    ("pool quota exceeded", 150),
    ("quota not set", 60),
    ("pool without capacity", 200),
    ("pool partly without capacity", 150),
    ("replacement without capacity", 150),
    ("pool never boots", 120),
    ("pool boots slowly", 250),
    ("deletion slow", 300),
    ("deletion stuck", 150),
    ("node dies early", 60),
    ("node triaged", 40),
    ("node cordoned", 40),
    ("node clock off", 300),
    ("node interruptable", 60),
    ("spot interruption", 60),
    ("pod never starts", 60),
    ("pod fails", 150),
    ("pod evicted", 40),
    ("pod over its storage", 40),
    ("liveness probe fails", 60),
    ("image pull slow", 150),
    ("image pull fails", 60),
    ("image pull limited", 60),
    ("mount fails", 60),
    ("container config missing", 40),
)
"""Names and highest rates, in thousandths. ``pool quota refused`` is not here: the front of the API asks for it."""

NAMES: tuple[str, ...] = tuple(name for name, _ in FAULT_POINTS)
