"""The kinds of values that a configuration holds.

A kind reads a plain value (what YAML gives) into what the model holds, writes it back in its canonical form, and
knows how documentation and proto name it. ``read(write(x)) == x`` for every value of the model.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from iriscw.config.errors import Misfit
from iriscw.config.quantities import (
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
)

TEXT_LIMIT = 1024
"""Characters in one text. Paths end at 4096 bytes and DNS names at 253: the limit catches a file pasted into a key."""

ENTRIES_LIMIT = 256
"""Entries of one map of texts. A process's environment has room for some thousands."""

ENV_VALUE_LIMIT = 32 * 1024
"""Characters in the value of an environment variable; Linux ends at 128 KiB for one string."""

INT32_LIMIT = 2**31 - 1


class KeyKind(Protocol):
    """What a key may hold."""

    @property
    def label(self) -> str:
        """The kind's name in the documentation."""

    @property
    def proto(self) -> str:
        """The kind's name in the proto."""

    def read(self, value: Any) -> Any:
        """Read a plain value.

        Raises:
            Misfit: it is not of this kind.
            QuantityError: it is no such quantity.
        """

    def write(self, value: Any) -> Any:
        """Return the plain value in its canonical form."""


@attrs.frozen
class Text:
    """A line of text. ``pattern`` must match it as a whole, ``meaning`` says what that asks for."""

    pattern: str = ""
    meaning: str = ""
    empty: bool = True
    limit: int = TEXT_LIMIT
    label: str = "text"
    proto: str = "string"

    def read(self, value: Any) -> str:
        """Take a text as it is."""
        if not isinstance(value, str):
            raise Misfit(f"{shown(value)} is not text; put it in quotes")
        if not value.isprintable():
            raise Misfit("text must be one line of printable characters")
        if len(value) > self.limit:
            raise Misfit(f"{len(value)} characters; at most {self.limit}")
        if not value and not self.empty:
            raise Misfit("may not be empty")
        if value and self.pattern and re.fullmatch(self.pattern, value, re.ASCII) is None:
            raise Misfit(f"{shown(value)} is not {self.meaning}")
        return value

    def write(self, value: str) -> str:
        """Return the text."""
        return value


@attrs.frozen
class Whole:
    """A whole number between two bounds, both included."""

    minimum: int = 0
    maximum: int = INT32_LIMIT
    proto: str = "int32"

    @property
    def label(self) -> str:
        """The bounds, where they say something."""
        return f"integer, from {self.minimum}" + (f" to {self.maximum}" if self.maximum < INT32_LIMIT else "")

    def read(self, value: Any) -> int:
        """Take an int; a bool is none, and neither is text."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise Misfit(f"{shown(value)} is not a whole number")
        if not self.minimum <= value <= self.maximum:
            raise Misfit(f"{shown(value)} is not between {self.minimum} and {self.maximum}")
        return value

    def write(self, value: int) -> int:
        """Return the number."""
        return value


@attrs.frozen
class Flag:
    """Yes or no."""

    label: str = "true or false"
    proto: str = "bool"

    def read(self, value: Any) -> bool:
        """Take a bool. YAML 1.2 knows true and false only: ``no`` is text."""
        if not isinstance(value, bool):
            raise Misfit(f"{shown(value)} is neither true nor false")
        return value

    def write(self, value: bool) -> bool:
        """Return the bool."""
        return value


@attrs.frozen
class Size:
    """Bytes."""

    minimum: int = 0
    label: str = "size"
    proto: str = "int64"

    def read(self, value: Any) -> int:
        """Read ``2048GB`` or a number of bytes."""
        size_bytes = parse_size(value)
        if size_bytes < self.minimum:
            raise Misfit(f"{format_size(size_bytes)} is less than {format_size(self.minimum)}")
        return size_bytes

    def write(self, value: int) -> str:
        """Return text with a unit."""
        return format_size(value)


@attrs.frozen
class Span:
    """A length of time, in ns, between two bounds, both included."""

    minimum: int = 0
    maximum: int | None = None
    label: str = "duration"
    proto: str = "Duration"

    def read(self, value: Any) -> int:
        """Read ``1h30m`` or ``{milliseconds: N}``."""
        length = parse_duration(value)
        if length < self.minimum:
            raise Misfit(f"{format_duration(length)} is less than {format_duration(self.minimum)}")
        if self.maximum is not None and length > self.maximum:
            raise Misfit(f"{format_duration(length)} is more than {format_duration(self.maximum)}")
        return length

    def write(self, value: int) -> str:
        """Return text with units."""
        return format_duration(value)


@attrs.frozen
class Cpu:
    """A CPU share, in thousandths of a core."""

    label: str = "CPU cores"
    proto: str = "int64"

    def read(self, value: Any) -> int:
        """Read ``4``, ``0.5`` or ``500m``; not 0."""
        cpu_milli = parse_cpu(value)
        if cpu_milli == 0:
            raise Misfit("0 cores run nothing; the least is 1m")
        return cpu_milli

    def write(self, value: int) -> int | str:
        """Return whole cores as a number, others as text."""
        text = format_cpu(value)
        return int(text) if text.isdigit() else text


@attrs.frozen
class Choice:
    """One member of an enum, written by its value."""

    options: type[enum.Enum]

    @property
    def label(self) -> str:
        """The words to choose from."""
        return " or ".join(f"`{option.value}`" for option in self.options)

    @property
    def proto(self) -> str:
        """The proto's enum has the same name."""
        return self.options.__name__

    def read(self, value: Any) -> enum.Enum:
        """Find the member."""
        for option in self.options:
            if option.value == value:
                return option
        words = ", ".join(option.value for option in self.options)
        raise Misfit(f"{shown(value)} is not one of: {words}")

    def write(self, value: enum.Enum) -> Any:
        """Return the member's word."""
        return value.value


@attrs.frozen
class TextMap:
    """Names and texts; the patterns must match each name, and each text, as a whole. Messages never show a text: it
    may be secret.
    """

    pattern: str
    meaning: str
    limit: int = TEXT_LIMIT
    value_pattern: str = ""
    value_meaning: str = ""
    label: str = "map of texts"
    proto: str = "map<string, string>"

    def read(self, value: Any) -> dict[str, str]:
        """Take a mapping from text to text, sorted by name."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise Misfit("not a mapping from names to texts")
        if len(value) > ENTRIES_LIMIT:
            raise Misfit(f"{len(value)} entries; at most {ENTRIES_LIMIT}")
        return {name: self._entry(name, value[name]) for name in sorted(value)}

    def _entry(self, name: str, text: Any) -> str:
        if re.fullmatch(self.pattern, name, re.ASCII) is None:
            raise Misfit(f"{shown(name)} is not {self.meaning}")
        if not isinstance(text, str):
            raise Misfit(f"{name} is not text; put it in quotes")
        if len(text) > self.limit:
            raise Misfit(f"{name} has {len(text)} characters; at most {self.limit}")
        if not text.replace("\n", "").replace("\t", "").isprintable():
            raise Misfit(f"{name} holds characters that cannot be printed")
        if self.value_pattern and re.fullmatch(self.value_pattern, text, re.ASCII) is None:
            raise Misfit(f"{name} is not {self.value_meaning}")
        return text

    def write(self, value: Mapping[str, str]) -> dict[str, str]:
        """Return a plain mapping."""
        return dict(value)


@attrs.frozen
class Section:
    """A mapping with keys of its own. Of the members of one ``oneof`` at most one is there."""

    model: type
    oneof: str = ""
    label: str = "section"

    @property
    def proto(self) -> str:
        """The proto's message has the same name."""
        return self.model.__name__


@attrs.frozen
class Sections:
    """A mapping from names that the user chooses to sections of one shape."""

    model: type
    label: str = "map of sections"

    @property
    def proto(self) -> str:
        """A map of messages."""
        return f"map<string, {self.model.__name__}>"


def shown(value: Any) -> str:
    """Return a value as a message may show it: short, and never more than its type where it holds others."""
    if isinstance(value, str):
        return repr(value if len(value) <= 64 else value[:61] + "...")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    if isinstance(value, int | float):
        return str(value)
    return "nothing" if value is None else f"a {'mapping' if isinstance(value, Mapping) else 'list'}"
