"""Sizes, lengths of time and CPU shares: from what people write to integers, and back.

Inside iriscw a size is an int of bytes, a length of time an int of nanoseconds, a CPU share an int of
thousandths of a core. People write ``2048GB``, ``1h30m`` and ``0.5``. Parsing is strict: a unit is spelled in one
way only, and a value that would need rounding is refused, because a rounded limit is a wrong limit.

``parse_x(format_x(n)) == n`` holds for every value within the limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from iriscw._errors import UsageError

SIZE_LIMIT_BYTES = 2**63 - 1
"""The largest size: what an int64 on the wire holds."""

DURATION_LIMIT_MS = 366 * 24 * 3600 * 1000
"""The longest time: a leap year. Kubernetes's int64 of ns ends at 292 years; nothing here should wait so long."""

CPU_LIMIT_MILLI = 2**31 - 1
"""The largest CPU share, in thousandths of a core: two million cores, which no host comes near."""

NS_PER_MS = 1_000_000

SIZE_UNITS: Mapping[str, int] = {
    "PiB": 2**50,
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "PB": 10**15,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "B": 1,
}
"""Bytes per unit, in the order in which formatting tries them."""

DURATION_UNITS_MS: Mapping[str, int] = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

# At most 20 digits on each side: int64 has 19, and longer numbers only cost time.
_NUMBER = r"\d{1,20}(?:\.\d{1,20})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)", re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[dhms]))+", re.ASCII)
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[dhms])", re.ASCII)
_CPU = re.compile(rf"({_NUMBER})(m?)", re.ASCII)

_SIZE_EXAMPLES = "write bytes as a number, or text such as '16GiB' (2^30) or '2048GB' (10^9)"
_DURATION_EXAMPLES = "write '30m', '1h30m' or '0.5s'"
_CPU_EXAMPLES = "write cores as a number such as 4 or 0.5, or thousandths as '500m'"


class QuantityError(UsageError, ValueError, abstract=True):
    """Text that is no quantity. The message says what was wrong and what would be right."""


class SizeError(QuantityError):
    """Not a size in bytes."""


class DurationError(QuantityError):
    """Not a length of time."""


class CpuError(QuantityError):
    """Not a number of CPU cores."""


def parse_size(value: object) -> int:
    """Read a size: an int is bytes, text has a unit (``16GiB`` is 2^30 bytes each, ``2048GB`` is 10^9).

    Returns:
        Bytes.

    Raises:
        SizeError: no size, negative, not a whole number of bytes, or above ``SIZE_LIMIT_BYTES``.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SizeError(f"{_shown(value)} is not a size: {_SIZE_EXAMPLES}")
    if isinstance(value, int):
        size = Fraction(value)
    else:
        match = _SIZE.fullmatch(value.strip()) if len(value) <= 64 else None
        if match is None:
            raise SizeError(f"{_shown(value)} is not a size: {_SIZE_EXAMPLES}")
        number, unit = match.groups()
        size = Fraction(number) * _unit_bytes(value, unit)
    if size < 0:
        raise SizeError(f"{_shown(value)} is negative: {_SIZE_EXAMPLES}")
    if size > SIZE_LIMIT_BYTES:
        raise SizeError(f"{_shown(value)} is more than the {SIZE_LIMIT_BYTES} bytes that a size may be")
    if size != int(size):
        raise SizeError(f"{_shown(value)} is not a whole number of bytes")
    return int(size)


def format_size(size_bytes: int) -> str:
    """Write bytes in the unit that gives the shortest exact text: ``16GiB``, ``2048GB``, ``123B``."""
    if size_bytes == 0:
        return "0B"
    exact = [(unit, factor) for unit, factor in SIZE_UNITS.items() if size_bytes % factor == 0]
    return min((f"{size_bytes // factor}{unit}" for unit, factor in exact), key=len)


def parse_duration(value: object) -> int:
    """Read a length of time: ``30m``, ``1h30m``, ``0.5s``, or a mapping ``{milliseconds: N}``.

    Returns:
        Nanoseconds; always a whole number of milliseconds, which is what the wire carries.

    Raises:
        DurationError: no length of time, negative, without a unit, finer than a millisecond, or longer than
            ``DURATION_LIMIT_MS``.
    """
    if isinstance(value, Mapping):
        length = Fraction(_milliseconds(value))
    elif isinstance(value, str):
        length = _length_ms(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        raise DurationError(f"{_shown(value)} has no unit: {_DURATION_EXAMPLES}")
    else:
        raise DurationError(f"{_shown(value)} is not a length of time: {_DURATION_EXAMPLES}")
    if length > DURATION_LIMIT_MS:
        raise DurationError(f"{_shown(value)} is longer than {DURATION_LIMIT_MS} milliseconds, 366 days")
    if length != int(length):
        raise DurationError(f"{_shown(value)} is not a whole number of milliseconds")
    return int(length) * NS_PER_MS


def format_duration(duration: int) -> str:
    """Write nanoseconds as ``1h30m`` or ``500ms``; ``0s`` for none. Less than a millisecond is not shown."""
    rest, parts = duration // NS_PER_MS, []
    for unit, factor in DURATION_UNITS_MS.items():
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_cpu(value: object) -> int:
    """Read a CPU share: a number of cores such as ``4`` or ``0.5``, or thousandths as ``500m``.

    Returns:
        Thousandths of a core.

    Raises:
        CpuError: no such number, negative, finer than a thousandth, or above ``CPU_LIMIT_MILLI``.
    """
    text = ""
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = _shown(value)  # the shortest text of a float is what was written: 0.1 is one tenth, no more
    match = _CPU.fullmatch(text)
    if match is None:
        raise CpuError(f"{_shown(value)} is not a number of CPU cores: {_CPU_EXAMPLES}")
    number, milli = match.groups()
    share = Fraction(number) * (1 if milli else 1000)
    if share > CPU_LIMIT_MILLI:
        raise CpuError(f"{_shown(value)} is more than {CPU_LIMIT_MILLI // 1000} cores")
    if share != int(share):
        raise CpuError(f"{_shown(value)} is finer than a thousandth of a core")
    return int(share)


def format_cpu(cpu_milli: int) -> str:
    """Write thousandths of a core as cores where they are whole (``4``), as thousandths if not (``500m``)."""
    return f"{cpu_milli}m" if cpu_milli % 1000 else str(cpu_milli // 1000)


def _unit_bytes(value: str, unit: str) -> int:
    if unit in SIZE_UNITS:
        return SIZE_UNITS[unit]
    if not unit:
        raise SizeError(f"{_shown(value)} has no unit: {_SIZE_EXAMPLES}")
    meant = [known for known in SIZE_UNITS if known.lower() in (unit.lower(), f"{unit}b".lower())]
    hint = f"write {meant[0]}" if meant else f"units are {', '.join(SIZE_UNITS)}"
    raise SizeError(f"{_shown(value)} has the unknown unit {unit!r}: {hint}")


def _length_ms(value: str) -> Fraction:
    text = value.strip()
    if len(text) <= 20 and text.isascii() and text.isdigit():
        raise DurationError(f"{_shown(value)} has no unit: write '{text}s', '{text}m' or '{text}h'")
    if len(text) > 128 or _DURATION.fullmatch(text) is None:
        raise DurationError(f"{_shown(value)} is not a length of time: {_DURATION_EXAMPLES}")
    parts = _DURATION_PART.findall(text)
    units = [unit for _, unit in parts]
    if units != [unit for unit in DURATION_UNITS_MS if unit in units]:
        raise DurationError(f"{_shown(value)} has a unit twice or out of order: {_DURATION_EXAMPLES}")
    return sum((Fraction(number) * DURATION_UNITS_MS[unit] for number, unit in parts), Fraction(0))


def _milliseconds(value: Mapping[Any, Any]) -> int:
    milliseconds = value.get("milliseconds")
    if set(value) != {"milliseconds"} or isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        raise DurationError("a mapping for a length of time has an int at milliseconds: write {milliseconds: 1800000}")
    if not 0 <= milliseconds <= DURATION_LIMIT_MS:
        raise DurationError(f"{_shown(milliseconds)} milliseconds is not between 0 and {DURATION_LIMIT_MS}")
    return milliseconds


def _shown(value: object) -> str:
    """Return the text of a value for a message, cut to a line: str() of a huge int would even raise."""
    if isinstance(value, str):
        return repr(value if len(value) <= 64 else value[:61] + "...")
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    if isinstance(value, bool | int | float):
        return str(value)
    return "nothing" if value is None else f"a {type(value).__name__}"
