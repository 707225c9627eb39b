"""What the options of ``sim`` hold: seeds, moments of a run, files of pictures and plans."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from iriscw._errors import OperationError, UsageError
from iriscw.cli.kinds import NewFile
from iriscw.config.quantities import DurationError, parse_duration
from iriscw.files import read_bounded, write_atomic

if TYPE_CHECKING:
    from iriscw_sims import Plan
    from iriscw_sims.nodes.swarm import NodesPlan

Function = TypeVar("Function", bound=Callable[..., Any])

SEED: Final = click.IntRange(0, 2**63 - 1)
"""A seed: a number of 64 bits, so that other programs can hold it, too."""

PICTURE: Final = NewFile()

MOST_SHOWN: Final = 250
"""Characters of a plan's name, or of its word, that an error shows."""

_WORD: Final = re.compile(r"[A-Za-z0-9_-]{40,}")
_CLOCK: Final = re.compile(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,2}(?:\.\d{1,9})?)")


class PictureUnwritable(OperationError):
    """The file for the picture cannot be written."""


class NoSuchPlan(UsageError):
    """The file that ``--plan`` names cannot be read."""


class Moment(click.ParamType[int]):
    """A moment of a run, as a timeline writes it (``1:23.456``) or as a length of time (``90s``), to ns."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        if isinstance(value, int):
            return value
        matched = _CLOCK.fullmatch(value) if value.isascii() else None
        if matched is not None:
            hours, minutes, seconds = matched.groups()
            whole, _, fraction = seconds.partition(".")
            return (int(hours or 0) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000_000 + int(
                fraction.ljust(9, "0")
            )
        try:
            return parse_duration(value)
        except DurationError as error:
            self.fail(f"{error}; or a moment of the timeline, such as 1:23.456", param, ctx)


def picture_option(function: Function) -> Function:
    """Add ``--picture FILE`` to a command."""
    text = "Draw the run as one HTML file, for any browser."
    return click.option("--picture", type=PICTURE, metavar="FILE", help=text)(function)


def write_picture(path: Path, html: str) -> None:
    """Write a picture, as a whole or not at all.

    Raises:
        PictureUnwritable: the file cannot be written.
    """
    try:
        write_atomic(path, html.encode("utf-8", "backslashreplace"), durable=False)
    except OSError as error:
        raise PictureUnwritable(f"{path}: {error.strerror}") from error


def nodes_option(function: Function) -> Function:
    """Add ``--nodes`` to a command."""
    text = "A world of nodes, whose agents freeze and thaw, instead of a fleet."
    return click.option("--nodes", is_flag=True, help=text)(function)


def plan_option(function: Function) -> Function:
    """Add ``--plan`` to a command."""
    text = "A plan of one's own: a file of `iriscw sim plan`, or what a failure printed, as a file or as its one word."
    return click.option("--plan", "plan", metavar="FILE", help=text)(function)


def read_plan(named: str) -> Plan | NodesPlan:
    """Read a plan, of a fleet or of nodes: from a file that holds JSON or Python, or from one word.

    Raises:
        NoSuchPlan: there is no such file, or it cannot be read.
        BadPlan: it holds no plan, or one that cannot be.
    """
    from iriscw_sims.plan_text import read_any_plan, unpack_any
    from iriscw_sims.plans import MAX_PLAN_BYTES, BadPlan, PlanUnreadable, check_plan, load_any_plan

    where = named if len(named) <= MOST_SHOWN else f"{named[:MOST_SHOWN]}..."
    try:
        data = read_bounded(Path(named), MAX_PLAN_BYTES)
    except OSError as error:
        if not _WORD.fullmatch(named):
            raise NoSuchPlan(f"{where}: {error.strerror}") from error
        data = b""
    except ValueError as error:
        raise NoSuchPlan(f"{where}: {error}") from error
    try:
        if data.lstrip()[:1] == b"{":
            return load_any_plan(data)
        plan = read_any_plan(data.decode()) if data else unpack_any(named)
        check_plan(plan)
    except BadPlan as error:
        raise type(error)(f"{where}: {error}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise PlanUnreadable(f"{where}: {error}") from error
    return plan
