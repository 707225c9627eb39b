"""What can be wrong with a configuration.

A configuration is read to its end before it is refused, so that one run shows every mistake. Each mistake is a
:class:`Problem`, whose kind programs can tell apart and whose text says what would be right.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs

from iriscw._errors import UsageError

PROBLEMS_SHOWN = 50
"""Problems that an error's text lists; clang stops at 20, but a configuration is mended in one go."""


class ProblemKind(enum.Enum):
    """The ways in which a key can be wrong."""

    UNKNOWN_KEY = "unknown key"
    MISSING_KEY = "missing key"
    DUPLICATE_KEY = "duplicate key"
    INVALID_VALUE = "invalid value"
    INVALID_NAME = "invalid name"
    NOT_SUPPORTED = "not supported"
    CONTRADICTION = "contradiction"
    LIMIT_EXCEEDED = "limit exceeded"


@attrs.frozen
class Problem:
    """One mistake.

    Args:
        kind: what sort of mistake.
        path: the key, with dots: ``scale_groups.h100.num_vms``. Empty for the file as a whole.
        line: where, counted from 1; 0 where the configuration did not come from a text.
        text: what is wrong and what would be right.
    """

    kind: ProblemKind
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        """Show the problem on one line."""
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.path}: {self.text}" if self.path else f"{place}{self.text}"


class ConfigError(UsageError):
    """A configuration that cannot be used. ``problems`` has every mistake, in the order of the file.

    Args:
        source: the file's name.
        problems: at least one.
    """

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        shown = [f"{source}: {problem}" for problem in self.problems[:PROBLEMS_SHOWN]]
        if len(self.problems) > PROBLEMS_SHOWN:
            shown.append(f"{source}: and {len(self.problems) - PROBLEMS_SHOWN} more")
        super().__init__("\n".join(shown))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[Problem, ...]]]:
        """Pickle by what it was made of."""
        return type(self), (self.source, self.problems)


class ConfigUnreadable(ConfigError):
    """The file is not there, is not a file, may not be read, or is not UTF-8."""


class ConfigTooLarge(ConfigError):
    """The file is larger than any configuration that a ConfigMap can hold."""


class ConfigSyntaxError(ConfigError):
    """The text is not YAML, or uses YAML that a configuration may not use: aliases, tags, several documents."""


class Misfit(UsageError, ValueError):
    """A value of the wrong type or out of range; the reader turns it into a :class:`Problem`."""
