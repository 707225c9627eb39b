"""``config check``: what a configuration says, without starting anything."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from iriscw.cli.groups import CommandGroup
from iriscw.cli.output import emit


@click.group(cls=CommandGroup)
def config() -> None:
    """Look at a cluster's configuration."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(*, file: Path) -> None:
    """Read FILE as a controller would, and print it with every default spelled out; nothing is started.

    A file that is refused is told all its mistakes at once, each with its line and key; the exit code is 2. The values
    of environments are printed, too. What is unusual, but may be meant, is told on standard error.
    """
    from iriscw.cloud.drivers.loading import NoSuchPlatform
    from iriscw.config.advice import advice
    from iriscw.config.dump import dump_config
    from iriscw.config.load import load_config
    from iriscw.controller.platforms.plugin import checked_platform

    loaded, missing = load_config(file), ""
    if loaded.platform.plugin is not None:
        try:
            checked_platform(loaded)
        except NoSuchPlatform as error:
            missing = f"the file is good, but a controller cannot be started with it here: {error}\n"
    emit(dump_config(loaded))
    for each in advice(loaded):
        sys.stderr.write(f"warning: {each}\n")
    sys.stderr.write(missing)
