"""What options hold, from text: lengths of time, sizes, assignments.

What reads such text is imported when there is some: most commands are given none.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import click

from iriscw.jobs.model import JobState, Suspension
from iriscw.runtime.vocabulary import SECOND


class NewFile(click.Path):
    """A file that a command writes at its end: that it cannot be written is better known at the beginning.

    What is not a plain file is refused, because the new file takes the place of the old one: a device would be gone.
    ``makes_folders``: the command makes folders that are missing above the file.
    """

    def __init__(self, *, makes_folders: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._makes_folders = makes_folders

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check it."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file():
            self.fail(f"{path} is not a plain file", param, ctx)
        above = next((each for each in path.absolute().parents if each.exists()), Path("/"))
        if above != path.absolute().parent and not self._makes_folders:
            self.fail(f"{path} cannot be written: there is no folder {path.absolute().parent}", param, ctx)
        if not above.is_dir():
            self.fail(f"{path} cannot be written: {above} is not a folder", param, ctx)
        if not os.access(above, os.W_OK | os.X_OK):
            self.fail(f"{path} cannot be written: {above} is not yours to write to", param, ctx)
        return path


class Duration(click.ParamType[float]):
    """Text such as ``90s``, ``30m`` or ``2h`` to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        from iriscw.config.quantities import DurationError, parse_duration

        try:
            return parse_duration(value) / SECOND
        except DurationError as error:
            self.fail(str(error), param, ctx)


class SizeType(click.ParamType[int]):
    """Text such as ``16GiB`` to bytes. Digits alone are bytes: a command line has no numbers to tell from texts."""

    name = "size"

    def __init__(self, least_bytes: int = 0) -> None:
        self.least_bytes = least_bytes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        from iriscw.config.quantities import SizeError, format_size, parse_size

        digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20
        try:
            size_bytes = parse_size(int(value) if digits else value)
        except SizeError as error:
            self.fail(str(error), param, ctx)
        if size_bytes < self.least_bytes:
            self.fail(f"{value!r} is less than {format_size(self.least_bytes)}", param, ctx)
        return size_bytes


class StateType(click.ParamType[JobState]):
    """The state of a job, in letters of any case."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JobState:
        """Read it."""
        named = str(value).upper()
        if named == Suspension.SUSPENDED.name:
            self.fail("a suspended job is RUNNING; --state RUNNING lists it, too, and shows it", param, ctx)
        if named not in JobState.__members__:
            near = difflib.get_close_matches(named, JobState.__members__, n=1)
            hint = f"did you mean {near[0]}?" if near else f"states are {', '.join(JobState.__members__)}"
            self.fail(f"{value!r} is not the state of a job; {hint}", param, ctx)
        return JobState[named]


class NodeCpu(click.ParamType[str]):
    """CPU cores of a machine: as of a task, but more than none."""

    name = "cores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        from iriscw.config.quantities import CpuError, parse_cpu

        try:
            cpu_milli = parse_cpu(value)
        except CpuError as error:
            self.fail(str(error), param, ctx)
        if cpu_milli == 0:
            self.fail("0 cores run nothing; the least is 1m", param, ctx)
        return str(value)


class Assignment(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


class ArgumentList(click.ParamType[tuple[str, ...]]):
    """A command as one word, split where a shell would split it: ``make 'a b'`` are two arguments. No shell runs it."""

    name = "command"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        import shlex

        try:
            words = tuple(shlex.split(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        if not words:
            self.fail("it is empty", param, ctx)
        return words
