"""``slices``, ``pools`` and ``nodes``."""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import click

from iriscw.cli.connection import connection_options, with_client
from iriscw.cli.groups import CommandGroup
from iriscw.cli.outcome import NoSuchSelection
from iriscw.cli.output import age, amount, counts, emit, format_option, show
from iriscw.client.client import Client
from iriscw.client.model import AmountStatus, NodeStatus, PoolDemand, PoolPassed, PoolStatus, SliceStatus


@click.command()
@click.option("--group", "scale_group", default="", help="Only those of this scale group.")
@connection_options
@format_option
def slices(*, scale_group: str, form: str, address: str | None, token_file: Path | None) -> None:
    """List the slices: each is a set of machines that came, and will go, together."""
    now_ms = time.time_ns() // 1_000_000

    async def listed(client: Client) -> None:
        found = await client.slices(scale_group)
        if scale_group and not found:
            groups = [each.scale_group for each in await client.pools()]
            if scale_group not in groups:
                raise NoSuchSelection(f"--group {scale_group}: the scale groups are {', '.join(groups) or 'none'}")
        show(
            found,
            form,
            {
                "SLICE": lambda each: each.slice_id,
                "GROUP": lambda each: each.scale_group,
                "STATE": lambda each: each.state,
                "WORKERS": lambda each: f"{sum(one.connected for one in each.workers)}/{len(each.workers)}",
                "USED": used,
                "TASKS": lambda each: sum(one.live_attempts for one in each.workers),
                "IDLE": lambda each: age(each.idle_since_ms, now_ms),
                "AGE": lambda each: age(each.created_at_ms, now_ms),
                "REASON": lambda each: coming(each, now_ms) or each.reason,
            },
            kept=("GROUP", "STATE"),
        )

    with_client(address, token_file, listed)


def coming(each: SliceStatus, now_ms: int) -> str:
    """Say when a slice should be ready, beside what it says itself; empty if nobody can say."""
    if not each.expected_at_ms:
        return ""
    late = each.expected_at_ms < now_ms
    away = age(each.expected_at_ms, now_ms) if late else age(now_ms, each.expected_at_ms)
    expected = f"late by {away}" if late else f"ready in about {away}"
    return f"{expected}: {each.reason}" if each.reason else expected


def used(each: SliceStatus) -> str:
    """Write how much of a slice's CPU its tasks have been promised."""
    cpu_milli = sum(one.committed.cpu_milli for one in each.workers)
    of_milli = sum(one.capacity.cpu_milli for one in each.workers)
    return f"{cpu_milli / 1000:g}/{of_milli / 1000:g} CPU"


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@connection_options
@format_option
@click.pass_context
def pools(context: click.Context, *, form: str, address: str | None, token_file: Path | None) -> None:
    """List the scale groups: what they have, may have, and why they take no more.

    ROUTED counts the tasks that wait and were routed there; `iriscw pools demand` says which, and why no other group
    takes them. Groups with the same QUOTA share it.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context, address, token_file)
        return

    async def listed(client: Client) -> None:
        show(
            await client.pools(),
            form,
            {
                "GROUP": lambda each: each.scale_group,
                "AVAILABILITY": lambda each: each.availability,
                "SLICES": lambda each: sum(each.slices.values()),
                "TARGET": lambda each: each.target_slices,
                "ROUTED": lambda each: each.routed_tasks,
                "MIN": lambda each: each.min_slices,
                "MAX": lambda each: each.max_slices,
                "NODE": _node,
                "QUOTA": _quota,
                "STATES": lambda each: counts(each.slices),
                "REASON": lambda each: each.reason,
            },
            kept=("AVAILABILITY",),
        )

    with_client(address, token_file, listed)


@attrs.frozen
class DemandAtGroup:
    """Some demand at one of the groups that could run it: a :class:`PoolDemand`, and of which group."""

    demand_id: str
    scale_group: str
    each: AmountStatus
    tasks: int
    takes: int
    why: str
    before: tuple[PoolPassed, ...]
    since_ms: int
    job_ids: tuple[str, ...]

    @classmethod
    def of(cls, group: PoolStatus, demand: PoolDemand) -> DemandAtGroup:
        """Return some demand as a row."""
        return cls(scale_group=group.scale_group, **attrs.asdict(demand, recurse=False))


@pools.command()
@click.option("--group", "scale_group", default="", help="Only demand that this scale group could run.")
@connection_options
@format_option
def demand(*, scale_group: str, form: str, address: str | None, token_file: Path | None) -> None:
    """List the tasks that wait, by shape, at each group that could run them: what it takes, and why not more.

    The groups of one demand stand in the order in which they are tried. Of each group the first 20 are listed, those
    first that it takes. JOBS are the first three whose tasks they are.
    """
    now_ms = time.time_ns() // 1_000_000

    async def listed(client: Client) -> None:
        groups = await client.pools()
        if scale_group and scale_group not in [each.scale_group for each in groups]:
            named = ", ".join(each.scale_group for each in groups)
            raise NoSuchSelection(f"--group {scale_group}: the scale groups are {named or 'none'}")
        found = [DemandAtGroup.of(each, demand) for each in groups for demand in each.demand]
        if scale_group:
            able = [each.demand_id for each in found if each.scale_group == scale_group]
            found = [each for each in found if each.demand_id in able]
        found.sort(key=lambda each: (each.since_ms, each.demand_id, len(each.before)))
        show(
            found,
            form,
            {
                "DEMAND": lambda each: each.demand_id,
                "EACH": lambda each: _amount(each.each),
                "JOBS": lambda each: ", ".join(each.job_ids),
                "FOR": lambda each: age(each.since_ms, now_ms),
                "GROUP": lambda each: each.scale_group,
                "TAKES": lambda each: f"{each.takes}/{each.tasks}",
                "WHY": lambda each: each.why,
            },
            kept=("GROUP",),
            whole=True,
        )

    with_client(address, token_file, listed)


@pools.command()
@click.argument("group")
@connection_options
def reopen(*, group: str, address: str | None, token_file: Path | None) -> None:
    """Have GROUP forget why it is closed, and try again at once.

    For whoever has repaired what closed it: a quota that was raised, a specification that the cloud refused. Without it
    a group whose quota was used up, or whose slices failed, is tried again later by itself; one whose specification was
    refused is not.
    """

    async def reopened(client: Client) -> None:
        await client.reopen_pool(group)
        emit(f"{group} is tried again; `iriscw pools` shows what becomes of it\n")

    with_client(address, token_file, reopened)


def _refuse_options_before(context: click.Context, address: str | None, token_file: Path | None) -> None:
    if address is not None or token_file is not None:
        raise click.UsageError(f"options come after {context.invoked_subcommand}")


def _node(each: PoolStatus) -> str:
    return _amount(each.node)


def _amount(of: AmountStatus) -> str:
    return amount(of.cpu_milli, of.memory_bytes, of.gpu_count, of.gpu_class)


def _quota(each: PoolStatus) -> str:
    return f"{each.quota_pool} (used up by {each.quota_used_up_by})" if each.quota_used_up_by else each.quota_pool


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@connection_options
@format_option
@click.pass_context
def nodes(context: click.Context, *, form: str, address: str | None, token_file: Path | None) -> None:
    """List the nodes that an agent has dialled from: whether it is heard of, and what it can freeze and holds.

    CRIU and CUDA are versions, or "none"; -o json says why. RUNS counts what is frozen and thawed there now.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context, address, token_file)
        return
    now_ms = time.time_ns() // 1_000_000

    async def listed(client: Client) -> None:
        show(
            await client.nodes(),
            form,
            {
                "NODE": lambda each: each.node,
                "STATE": lambda each: each.state,
                "FOR": lambda each: age(each.since_ms, now_ms),
                "CRIU": lambda each: _version(each.criu),
                "CUDA": lambda each: _version(each.cuda),
                "GPUS": lambda each: len(each.gpus),
                "CHECKPOINTS": lambda each: each.checkpoints,
                "RUNS": lambda each: len(each.operations),
                "TIERS": _tiers,
            },
            kept=("STATE",),
        )

    with_client(address, token_file, listed)


def _version(text: str) -> str:
    """Write a version, and of the sentence that stands for one that there is none."""
    return "none" if " " in text else text


def _tiers(each: NodeStatus) -> str:
    return ", ".join(f"{tier.name} {tier.used_bytes / 1e9:.1f}/{tier.budget_bytes / 1e9:.0f} GB" for tier in each.tiers)


@nodes.command()
@click.argument("node")
@connection_options
def forget(*, node: str, address: str | None, token_file: Path | None) -> None:
    """Forget NODE, whose agent does not come back, and all that was heard of it.

    What the agent was ordered and has not ended ends as unknown, and its checkpoints are listed no more; nothing is
    removed on the node. A node whose agent has a stream is not forgotten.
    """

    async def forgotten(client: Client) -> None:
        lost = await client.forget_node(node)
        orders = f"; {lost} {'order' if lost == 1 else 'orders'} of its agent ended as unknown" if lost else ""
        emit(f"{node} is forgotten{orders}\n")

    with_client(address, token_file, forgotten)
