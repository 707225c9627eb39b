"""What options hold, from text: lengths of time, sizes, assignments."""

from __future__ import annotations

from typing import Any

import click

from iriscw.config.quantities import (
    CpuError,
    DurationError,
    SizeError,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
)

_NS_PER_S = 1_000_000_000


class Duration(click.ParamType[float]):
    """Text such as ``90s``, ``30m`` or ``2h`` to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value) / _NS_PER_S
        except DurationError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """Text such as ``16GiB`` to bytes. Digits alone are bytes: a command line has no numbers to tell from texts."""

    name = "size"

    def __init__(self, least_bytes: int = 0) -> None:
        self.least_bytes = least_bytes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20
        try:
            size_bytes = parse_size(int(value) if digits else value)
        except SizeError as error:
            self.fail(str(error), param, ctx)
        if size_bytes < self.least_bytes:
            self.fail(f"{value!r} is less than {format_size(self.least_bytes)}", param, ctx)
        return size_bytes


class NodeCpu(click.ParamType[str]):
    """CPU cores of a machine: as of a task, but more than none."""

    name = "cores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
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
            self.fail(f"{value!r} is no NAME=VALUE", param, ctx)
        return name, text
