"""``export`` and ``import``: a checkpoint in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iriscw.cli.at_here import AtHere
from iriscw.cli.kinds import NewFile
from iriscw.cli.output import format_option
from iriscw.cli.tier_options import fetch_option, place_options, tier_option


@click.command()
@click.argument("checkpoint_id", metavar="CHECKPOINT")
@click.argument("file", type=NewFile())
@click.option("--force", is_flag=True, help="Also if there is such a file: the new one takes its place.")
@fetch_option
@place_options
@format_option
def export(*, checkpoint_id: str, file: Path, force: bool, tier: str, form: str, **given: Any) -> None:
    """Write a checkpoint of this machine into FILE (mode 0600), for `iriscw import` on another one.

    FILE is a tar file with the manifest and CRIU's images, neither signed nor encrypted: it has every secret of the
    program. Every byte is compared with the manifest while it is written, and FILE is there as a whole or not at all.

    One that only the repository has comes to a tier of this machine first, and stays there.
    """
    AtHere(given).export(checkpoint_id, file, form, tier=tier, over=force)


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@tier_option
@place_options
@format_option
def import_command(*, file: Path, tier: str, form: str, **given: Any) -> None:
    """Have a checkpoint that `iriscw export` wrote lie in a tier of this machine.

    Every byte is compared with the manifest in FILE before anybody sees it. That finds damage, not forgery: import
    files only from those who may run programs as you. Interrupted (Ctrl-C, SIGTERM) it is undone; a command that is
    killed is undone by the next one.
    """
    AtHere(given).take_in(file, form, tier=tier)
