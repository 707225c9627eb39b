"""Options about the tiers of this machine: made from those that there are, of packages too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from iriscw.checkpoint.drivers.built_in import DEFAULT_ROOM
from iriscw.checkpoint.drivers.loading import REPOSITORY_VARIABLE, default_tier, tier_names
from iriscw.cli.kinds import SizeType

BUDGETS = {name: f"{name.replace('-', '_')}_budget" for name in tier_names()}
"""The option, as click names it, that says how much room each tier has."""

PLACE_OPTIONS = ("state_dir", "repository", *BUDGETS.values())


def budgets_of(given: Mapping[str, int | None]) -> dict[str, int]:
    """Return what the options say of the room that tiers have, by tier."""
    return {name: given[option] or 0 for name, option in BUDGETS.items()}


def repository_of(given: Mapping[str, Any]) -> str:
    """Return the URL of the repository; empty: there is none. A variable that says it is no option that is refused."""
    return given["repository"] or os.environ.get(REPOSITORY_VARIABLE, "")


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where state lies and how much room there is."""
    for name in reversed(BUDGETS):
        default = f" Default: {DEFAULT_ROOM[name]}." if name in DEFAULT_ROOM else ""
        text = f'Room for the tier "{name}".{default}'
        function = click.option(f"--{name}-budget", type=SizeType(1), help=text)(function)
    function = click.option(
        "--repository",
        metavar="URL",
        default="",
        help="The object store that keeps checkpoints beyond this machine.  [default: $IRISCW_REPOSITORY]",
    )(function)
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where operations and checkpoints lie. Default: $IRISCW_STATE_DIR, else $XDG_STATE_HOME/iriscw, "
        "else ~/.local/state/iriscw; those in memory: $IRISCW_RAM_DIR, else below /dev/shm.",
    )(function)


tier_option = click.option(
    "--tier", metavar="TIER", default="", help=f"Where to: {', '.join(tier_names())}.  [default: {default_tier()}]"
)

fetch_option = click.option(
    "--tier", metavar="TIER", default="", help="Where to fetch it first, if only the repository has it.  [default: any]"
)
