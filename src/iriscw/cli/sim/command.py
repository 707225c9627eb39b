"""``sim``: worlds that do not exist, from the command line.

The simulator is imported by what a command does, not by the command: help and the other commands never load it.
"""

from __future__ import annotations

import click

from iriscw.cli.groups import CommandGroup
from iriscw.cli.sim.plan import plan
from iriscw.cli.sim.replay import replay
from iriscw.cli.sim.run import run
from iriscw.cli.sim.serve import serve


@click.group(cls=CommandGroup)
def sim() -> None:
    """Run simulated clusters under faults."""


for each in (run, replay, plan, serve):
    sim.add_command(each)
