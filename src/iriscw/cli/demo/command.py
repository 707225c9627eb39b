"""``iriscw demo``."""

from __future__ import annotations

import click

from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.kinds import SizeType
from iriscw.cli.outcome import DONE


@click.command()
@click.option("--plain", is_flag=True, help="Lines instead of a live view; the default where there is no terminal.")
@click.option("--replicas", type=click.IntRange(2, 64), default=4, show_default=True, help="Tasks of the job.")
@click.option("--seconds", type=click.FloatRange(2, 600), default=4.0, show_default=True, help="Work of each task.")
@click.option("--act", type=click.Choice(("1", "2")), help="Play this act only. Default: both.")
@click.option(
    "--state", type=SizeType(1 << 20), default="512MiB", show_default=True, help="State of the second act's server."
)
def demo(*, plain: bool, replicas: int, seconds: float, act: str | None, state: int) -> int:
    """Run a real job on a real cluster of processes here, from nothing, and take it all down again.

    The job indexes the Python standard library. A worker and the controller are killed midway. In the second act a
    server with half a gigabyte of state is frozen to RAM, thawed, and goes on where it was; where that cannot be done
    it is skipped, and why is said. The exit code is 0 only if the result is right and nothing is left.
    """
    from iriscw.cli.demo.view import view_here

    with as_interrupts(), view_here(plain=plain) as view:
        if act != "2":
            from iriscw.cli.demo.story import Options, play

            play(view, Options(replicas=replicas, seconds=seconds))
        if act != "1":
            from iriscw.cli.demo.second_act import perform

            perform(view, state, asked=act == "2")
    return DONE
