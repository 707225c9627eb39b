"""``move`` and ``tiers``: what is asked, and of whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iriscw.cli.at_agent import AtAgent
from iriscw.cli.at_here import AtHere
from iriscw.cli.balancing import DEFAULT_POLICY, How, policy_options, refuse_without_balance
from iriscw.cli.connection import connection_options
from iriscw.cli.freezing import agent_option, backend_of, cluster_option, node_option
from iriscw.cli.kinds import Duration
from iriscw.cli.output import format_option
from iriscw.cli.tier_options import place_options

if TYPE_CHECKING:
    from iriscw.checkpoint.tiering.model import Watermarks


@click.command()
@click.argument("checkpoint_id", metavar="CHECKPOINT")
@click.argument("tier")
@click.option("--keep", is_flag=True, help="Let it lie where it lies, too.")
@agent_option
@cluster_option
@node_option
@connection_options
@place_options
@format_option
def move(*, checkpoint_id: str, tier: str, keep: bool, cluster: bool, form: str, **given: Any) -> None:
    """Bring a checkpoint to another tier, or to the repository and from there (TIER: repository).

    Every byte of the copy is compared with the manifest before anybody sees it, and only then the checkpoint goes from
    where it lay. If somebody uses it there by then, it stays, and the last line says so.

    Interrupted (Ctrl-C, SIGTERM, a closed terminal) while it copies and compares it is undone, and leaves nothing where
    it was to go; a repository keeps what it has stored as a whole. Later it comes to its end. A command that is killed
    is undone or finished by the next one.

    With --cluster the agent of the node that has it does it. What only a repository has comes to a tier of --node.
    """
    from iriscw.checkpoint.model import MovePlan

    backend = backend_of(given, cluster=cluster)
    backend.refuse(given)
    backend.move(MovePlan("", checkpoint_id, tier, keep), form)


@click.command()
@click.argument("checkpoint_id", metavar="CHECKPOINT")
@cluster_option
@node_option
@connection_options
@place_options
@format_option
def verify(*, checkpoint_id: str, cluster: bool, form: str, **given: Any) -> None:
    """Read every byte of every copy of a checkpoint, and compare. The exit code is 0 only if each copy is whole.

    With --cluster the agents of all nodes that have it do that, or the one of --node.
    """
    from iriscw.cli.at_controller import AtController

    backend = AtController(given) if cluster else AtHere(given)
    backend.refuse(given)
    backend.verify(checkpoint_id, form)


@click.command()
@click.option("--collect", is_flag=True, help="Free what no checkpoint in the repository refers to, and say how much.")
@click.option(
    "--grace",
    type=Duration(),
    default="1h",
    show_default=True,
    help="With --collect: how long ago an earlier pass must have found it so.",
)
@click.option("--balance", is_flag=True, help="Move what the policy says, and list that.")
@click.option("--dry-run", is_flag=True, help="With --balance: move nothing, and list what would be.")
@policy_options
@agent_option
@place_options
@format_option
def tiers(
    *,
    collect: bool,
    grace: float,
    balance: bool,
    dry_run: bool,
    policy: str | None,
    marks: tuple[tuple[str, Watermarks], ...],
    form: str,
    **given: Any,
) -> None:
    """List where checkpoints can lie: the tiers of this machine with how full they are, and the repository.

    A checkpoint that is removed frees nothing that others share, and nothing at once: a pass of --collect marks what no
    checkpoint refers to, and a later one removes it.

    With --balance a policy says what goes from a tier that is too full, and what comes back to a faster one. No policy
    can have a last copy removed, nor anything touched that is used. `iriscw agent serve --balance` does it whenever
    something happened.
    """
    backend = _backend(given)
    if not balance:
        refuse_without_balance(policy, marks, dry_run=dry_run)
    if balance and collect:
        raise click.UsageError("--balance and --collect: one after the other")
    if balance:
        if not isinstance(backend, AtHere):
            raise click.UsageError("--balance: `iriscw agent serve --balance` has the agent do it itself")
        backend.balance(How(policy or DEFAULT_POLICY, dict(marks), dry_run), form)
    elif isinstance(backend, AtHere):
        backend.tiers(form, grace_s=grace if collect else None)
    elif collect:
        raise click.UsageError("--collect: any command can do it: leave --agent out, and name the --repository")
    else:
        backend.tiers(form)


def _backend(given: dict[str, Any]) -> AtAgent | AtHere:
    """Choose who does it."""
    backend = AtHere(given) if given["agent"] is None else AtAgent(given["agent"])
    backend.refuse(given)
    return backend
