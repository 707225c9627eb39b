"""Every chance that the front of the object storage asks for, by name, with the highest rate a plan should give it."""

from __future__ import annotations

FAULT_POINTS: tuple[tuple[str, int], ...] = (
    ("object request lost", 60),
    ("object request slow", 200),
    ("object upload torn", 100),
    ("object throttled", 200),
    ("object storage in trouble", 100),
    ("object key denied", 30),
    ("object lands late", 60),
    ("object write conflict", 100),
    ("object done and in trouble", 60),
    ("object completion fails under 200", 150),
    ("object reply lost", 100),
    ("object download torn", 150),
)
"""Names and highest rates, in thousandths."""

NAMES: tuple[str, ...] = tuple(name for name, _ in FAULT_POINTS)
