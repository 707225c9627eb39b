"""``checkpoint JOB``, and ``restore``, ``move`` and ``checkpoints`` with ``--cluster``: done by a cluster's agents."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.cli.connection import job_named
from iriscw.cli.freeze_shown import (
    Done,
    Listing,
    Shown,
    decimal_size,
    finish,
    follow,
    progress,
    refuse_options,
    show_listing,
)
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.output import age, cell, emit, labels_cell, to_json, to_yaml, visible
from iriscw.cli.retaining import retain
from iriscw.cli.tier_options import PLACE_OPTIONS
from iriscw.jobs.model import Suspension

if TYPE_CHECKING:
    from iriscw.checkpoint.model import MovePlan
    from iriscw.checkpoint.retention import KeptCheckpoint
    from iriscw.client.client import Client
    from iriscw.client.model import OrderStatus, TaskSuspension
    from iriscw.client.nodes import Checkpoint, CheckpointCopy
    from iriscw.freeze.model import FreezePlan, ThawPlan

LOCAL_ONLY = (*PLACE_OPTIONS, "agent")
"""What is said of this machine, and means nothing to a cluster's."""


NOT_ASKED = (
    *("hook_exec", "hook_url", "hook_dir", "shell_job", "tcp_close"),
    *("gpus", "lazy", "pids", "clone", "verify_exec", "verify_url"),
)
"""What a cluster's agents are not told."""


@attrs.frozen
class AtController:
    """See :class:`~iriscw.cli.freeze_shown.Backend`. ``given``: the options; ``job``: whose task is to be frozen."""

    given: dict[str, Any]
    job: str | None = None

    def refuse(self, given: Mapping[str, Any]) -> None:
        """Refuse what is of this machine, and what a task cannot be asked."""
        refuse_options(given, (*LOCAL_ONLY, *NOT_ASKED), "of this machine only, and the cluster's agents do it")
        if self.job is not None and not given["leave_running"] and given["tcp_established"]:
            raise click.UsageError("--tcp-established: a task that is suspended gives its connections up")

    def checkpoint(self, plan: FreezePlan, form: str) -> None:
        """Have a task of a job frozen: suspended, or copied."""
        assert self.job is not None
        with job_named(self.job):
            if plan.leave_running:
                _copy(self.job, plan, self.given, form)
            else:
                _suspend(self.job, plan.labels, self.given, form)

    def restore(self, plan: ThawPlan, form: str) -> int:
        """Have a checkpoint brought back on its node."""
        node = self.given["node"] or ""

        async def work(client: Client, shown: Shown) -> OrderStatus:
            return await client.restore(plan.artifact, node=node, force=plan.force, seen=_follow(shown))

        _run(self.given, work, form)
        return 0

    def move(self, plan: MovePlan, form: str) -> None:
        """Have a checkpoint brought to another tier of its node."""
        node = self.given["node"] or ""

        async def work(client: Client, shown: Shown) -> OrderStatus:
            return await client.move(plan.artifact, plan.target, node=node, keep=plan.keep, seen=_follow(shown))

        _run(self.given, work, form)

    def verify(self, checkpoint: str, form: str) -> None:
        """Have every copy of a checkpoint read and compared, on one node after the other.

        Raises:
            OrderFailed: one is not whole; those on nodes before it were told.
        """
        node = self.given["node"] or ""

        async def work(client: Client) -> None:
            nodes = [node]
            if not node:
                found = [each for each in await client.checkpoints() if each.id == checkpoint]
                nodes = list(dict.fromkeys(copy.node for each in found for copy in each.copies)) or [""]
            for name in nodes:
                with progress() as shown:
                    status = await client.verify(checkpoint, node=name, seen=_follow(shown))
                finish(attrs.evolve(_done(status), tier=f"{status.text} of {status.node}", note=""), form)

        with as_interrupts():
            _with_client(self.given, work)

    def checkpoints(self, asked: Listing, form: str) -> None:
        """List the checkpoints of all nodes."""
        if asked.released is not None:
            raise click.UsageError("--release: of this machine only, and the cluster's agents do it")
        _list(asked, self.given, form)


def _copy(job: str, plan: FreezePlan, given: dict[str, Any], form: str) -> None:
    async def work(client: Client, shown: Shown) -> OrderStatus:
        last: list[OrderStatus] = []
        see = _follow(shown)

        def seen(status: OrderStatus) -> None:
            last[:] = [status]
            see(status)

        await client.checkpoint(
            job,
            task=given["task"] or 0,
            tier=plan.tier,
            keep_running=True,
            labels=dict(plan.labels),
            force=plan.force,
            tcp_established=plan.options.tcp_established,
            seen=seen,
        )
        return last[-1]

    _run(given, work, form)


def _suspend(job: str, labels: tuple[tuple[str, str], ...], given: dict[str, Any], form: str) -> None:
    phases: list[Suspension] = []

    def seen(found: TaskSuspension) -> None:
        phases.append(found.phase)
        _say_phase(found)

    async def work(client: Client) -> tuple[TaskSuspension, str]:
        found = await client.suspend(
            job, task=given["task"] or 0, tier=given["tier"], labels=dict(labels), force=given["force"], seen=seen
        )
        held = await client.checkpoints()
        copies = [copy for each in held if each.id == found.checkpoint for copy in each.copies]
        return found, next((copy.tier for copy in copies if copy.node == found.node), "")

    with as_interrupts():
        found, tier = _with_client(given, work)  # where it is: who had it suspended may have asked for another tier
    already = phases[0] is Suspension.SUSPENDED
    where = f"in {tier} of {found.node}" if tier else f"on {found.node}"
    if found.repository:
        where = f"in {found.repository}"
    text = f"{'was suspended already' if already else 'is suspended'}, {where}"
    _finish_suspension(found, text, form, outcome="suspended", tier=tier, already=already)


def resume(job: str, task: int, given: dict[str, Any], form: str) -> None:
    """Have a suspended task go on."""

    async def work(client: Client) -> tuple[TaskSuspension, str]:
        found = await client.resume(job, task=task, seen=_say_phase)
        tasks = await (await client.job(job)).tasks()
        return found, next((each.worker_id for each in tasks if each.index == task), "")

    with as_interrupts():
        found, worker = _with_client(given, work)
    _finish_suspension(found, f"is running{f', on {worker}' if worker else ''}", form, outcome="running")


def _finish_suspension(found: TaskSuspension, text: str, form: str, **more: object) -> None:
    fields = {
        "task": found.task,
        "attempt": found.attempt_uid,
        "checkpoint": found.checkpoint,
        "node": found.node,
        "repository": found.repository,
        **more,
    }
    if form == "table":
        what = f"{found.checkpoint}: " if found.checkpoint else ""
        emit(f"{what}task {found.task} {text}\n")
    else:
        emit(to_json(fields) if form == "json" else to_yaml(fields))


PHASES = {
    Suspension.NONE: "runs",
    Suspension.SUSPENDING: "is being frozen",
    Suspension.SUSPENDED: "is suspended",
    Suspension.RESUMING: "is to go on",
}
"""What a task does, for people."""


def _say_phase(found: TaskSuspension) -> None:
    why = f": {visible(found.reason)}" if found.reason else ""
    sys.stderr.write(f"iriscw: task {found.task} {PHASES[found.phase]}{why}\n")
    sys.stderr.flush()


def _list(asked: Listing, given: dict[str, Any], form: str) -> None:
    from iriscw.cli.connection import with_client
    from iriscw.nodes.errors import CheckpointAmbiguous, CheckpointUnknown

    node = given["node"] or ""

    async def work(client: Client) -> tuple[list[Checkpoint], list[str]]:
        there = await client.checkpoints(node=node, stored=asked.stored) if asked.removed else []
        for checkpoint in asked.removed:
            held = [each for each in there if each.id == checkpoint]
            nodes = sorted({copy.node for each in held for copy in each.copies if copy.tier != REPOSITORY})
            if not held:
                raise CheckpointUnknown(f"no node has a checkpoint {checkpoint}")
            if len(nodes) > 1:
                raise CheckpointAmbiguous(f"{checkpoint} is on {', '.join(nodes)}: name one with --node")
            await held[0].delete()
            sys.stderr.write(f"iriscw: removed {checkpoint}\n")
        if asked.policy is not None:
            found = {each.id: each for each in await _selected(client, asked, node)}

            async def remove(checkpoint: str) -> None:
                await found[checkpoint].delete()

            await retain(_candidates(found.values()), asked.policy, dry_run=asked.dry_run, remove=remove)
        unheard = [each.node for each in await client.nodes() if each.state == "UNKNOWN" and node in ("", each.node)]
        return await _selected(client, asked, node), unheard

    shown, unheard = with_client(given["address"], given["token_file"], work)
    show_listing(shown, form, _COLUMNS, _fields, KEPT)
    if unheard:
        names = ", ".join(unheard[:8]) + (f" and {len(unheard) - 8} more" if len(unheard) > 8 else "")
        sys.stderr.write(f"iriscw: the agents of {names} are not heard of now: what is there is not known\n")


async def _selected(client: Client, asked: Listing, node: str) -> list[Checkpoint]:
    return await client.checkpoints(selector=asked.selector, node=node, labels=dict(asked.labels), stored=asked.stored)


def _candidates(found: Iterable[Checkpoint]) -> list[KeptCheckpoint]:
    """Return what a policy may let go; what a suspended task consists of, the controller knows, and refuses."""
    from iriscw.checkpoint.retention import KeptCheckpoint

    return [
        KeptCheckpoint(
            each.id,
            sum(copy.size_bytes for copy in each.copies),
            each.sealed_at_ms,
            tuple(each.labels.items()),
            needed="a node is not heard of now" if any(copy.unknown_since_ms for copy in each.copies) else "",
        )
        for each in found
        if not each.trouble
    ]


def _fields(each: Checkpoint) -> dict[str, Any]:
    names = ("id", "node", "tier", "size_bytes", "pid", "processes", "program", "sealed_at_ms", "trouble")
    fields = {name: getattr(each, name) for name in names}
    copies = [attrs.asdict(copy) for copy in each.copies]
    return {**fields, "labels": dict(each.labels), "unknown_since_ms": each.unknown_since_ms, "copies": copies}


_COLUMNS: dict[str, Callable[[Checkpoint], object]] = {
    "CHECKPOINT": lambda each: each.id,
    "NODE": lambda each: each.node,
    "TIER": lambda each: cell(", ".join(_place(each, copy) for copy in each.copies)),
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "PROGRAM": lambda each: cell(each.program),
    "AGE": lambda each: age(each.sealed_at_ms, _now_ms()) if each.sealed_at_ms else "",
    "STATE": lambda each: f"unknown for {age(each.unknown_since_ms, _now_ms())}" if each.unknown_since_ms else "there",
    "LABELS": lambda each: labels_cell(
        each.labels, each.trouble, [(_where(each, copy), copy.trouble) for copy in each.copies]
    ),
}
KEPT: Final = ("NODE",)
"""What `iriscw restore` takes beside the checkpoint."""


def _place(each: Checkpoint, copy: CheckpointCopy) -> str:
    """Name a copy's place, with its node unless that is the one in the row, and say if it cannot be used."""
    return _where(each, copy) + (" (unusable)" if copy.trouble else "")


def _where(each: Checkpoint, copy: CheckpointCopy) -> str:
    return (f"{copy.node}:" if copy.node != each.node else "") + copy.tier


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _with_client(given: dict[str, Any], work: Callable[[Client], Any]) -> Any:
    from iriscw.cli.connection import with_client

    address: str | None = given["address"]
    token_file: Path | None = given["token_file"]
    return with_client(address, token_file, work)


def _run(given: dict[str, Any], work: Callable[[Client, Shown], Any], form: str) -> None:
    async def shown_work(client: Client) -> OrderStatus:
        with progress() as shown:
            status: OrderStatus = await work(client, shown)
        return status

    with as_interrupts():
        status = _with_client(given, shown_work)
    finish(_done(status), form)


def _follow(shown: Shown) -> Callable[[OrderStatus], None]:
    see = follow(shown)
    return lambda status: see([phase for phase, _ in status.steps], status.done_bytes, status.total_bytes)


def _done(status: OrderStatus) -> Done:
    return Done(
        checkpoint=status.checkpoint,
        outcome=status.outcome,
        pid=status.pid,
        processes=status.processes,
        tier=f"{status.tier} of {status.node}",
        size_bytes=status.size_bytes,
        seconds=status.lasted_ms / 1000,
        phases={},
        note=status.text,
    )
