"""Quantities (``500m``, ``2Gi``) in the canonical form that the API server answers with."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MAX = (1 << 63) - 1
"""The largest quantity; what is larger is cut to it."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str | None:
    """Return a quantity in canonical form, ``None`` if it is none. What is finer than nano is rounded up."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    sign, digits, suffix, exponent = found.groups()
    value = Fraction(digits)
    if exponent is not None:
        value *= Fraction(10) ** int(exponent)
    elif suffix and suffix.endswith("i"):
        value *= 1024 ** _BINARY.index(suffix)
    elif suffix:
        value *= Fraction(1000) ** (_DECIMAL.index(suffix) - 3)
    value = min(value, Fraction(_MAX))
    minus = "-" if sign == "-" and value else ""
    if suffix and suffix.endswith("i") and value >= 1024 and value.denominator == 1:
        return minus + _binary(value.numerator)
    nano = -(-(value * 10**9).numerator // (value * 10**9).denominator)
    return minus + (_exponent(nano) if exponent is not None else _decimal(nano))


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """Return a quantity's value; zero for what is none."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return Fraction(0)
    sign, digits, suffix, exponent = found.groups()
    value = Fraction(digits)
    if exponent is not None:
        value *= Fraction(10) ** int(exponent)
    elif suffix and suffix.endswith("i"):
        value *= 1024 ** _BINARY.index(suffix)
    elif suffix:
        value *= Fraction(1000) ** (_DECIMAL.index(suffix) - 3)
    return -value if sign == "-" else value


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power]}"


def _thousands(nano: int) -> tuple[int, int]:
    if nano == 0:
        return 0, 3
    power = 0
    while nano % 1000 == 0 and power < len(_DECIMAL) - 1:
        nano //= 1000
        power += 1
    return nano, power


def _decimal(nano: int) -> str:
    value, power = _thousands(nano)
    return f"{value}{_DECIMAL[power]}"


def _exponent(nano: int) -> str:
    value, power = _thousands(nano)
    return f"{value}e{(power - 3) * 3}" if power != 3 else str(value)
