"""``checkpoint``, ``restore``, ``checkpoints``, ``move`` and ``tiers`` with ``--agent``: done by a node agent."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.cli.at_here import OF_A_CLUSTER, TIER_COLUMNS
from iriscw.cli.freeze_shown import Done, Listing, decimal_size, follow, progress, refuse_options, show_listing, tell
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.outcome import run_async
from iriscw.cli.output import age, cell, show
from iriscw.cli.retaining import refuse_needed, retain
from iriscw.cli.tier_options import PLACE_OPTIONS
from iriscw.runtime.vocabulary import SECOND

if TYPE_CHECKING:
    from iriscw._errors import IriscwError
    from iriscw.agent.client import AgentCaller
    from iriscw.agent.operation_views import RunningOperation
    from iriscw.checkpoint.model import MovePlan, ShownTier
    from iriscw.checkpoint.retention import KeptCheckpoint
    from iriscw.freeze.model import FreezePlan, ThawPlan
    from iriscw.proto.iriscw import v1


@attrs.frozen
class AtAgent:
    """See :class:`~iriscw.cli.freeze_shown.Backend`: the agent that listens at ``socket``."""

    socket: Path

    def refuse(self, given: Mapping[str, Any]) -> None:
        """Refuse what is of a cluster, and what is the agent's own."""
        refuse_options(given, OF_A_CLUSTER, "of a cluster only: name a JOB, or say --cluster")
        refuse_options(given, PLACE_OPTIONS, "with --agent the agent says it")

    def checkpoint(self, plan: FreezePlan, form: str) -> None:
        """Have a tree frozen."""
        _run(self.socket, lambda agent: agent.freeze(plan), form)

    def restore(self, plan: ThawPlan, form: str) -> int:
        """Have a tree brought back."""
        _run(self.socket, lambda agent: agent.thaw(plan), form)
        return 0

    def move(self, plan: MovePlan, form: str) -> None:
        """Have a checkpoint brought to another tier."""
        _run(self.socket, lambda agent: agent.move(plan), form)

    def tiers(self, form: str) -> None:
        """List the agent's tiers."""

        async def work(agent: AgentCaller) -> list[ShownTier]:
            from iriscw.agent.wire import shown_tier

            return [shown_tier(each) for each in (await agent.capabilities()).tiers]

        show(run_async(_at, self.socket, work), form, TIER_COLUMNS)

    def checkpoints(self, asked: Listing, form: str) -> None:
        """List what the agent keeps."""
        if asked.released is not None:
            raise click.UsageError("--release: not by an agent, which releases what it knows; end it first")

        async def work(agent: AgentCaller) -> list[v1.CheckpointView]:
            from iriscw.checkpoint.selecting import read_selector

            there = await agent.checkpoints(()) if asked.removed else []
            for checkpoint in asked.removed:
                for each in there:
                    if each.checkpoint_id == checkpoint and not each.trouble:
                        refuse_needed(checkpoint, _needed(json.loads(each.document_json), pinned=False))
                await agent.remove(checkpoint)
                sys.stderr.write(f"iriscw: removed {checkpoint}\n")
            selector = read_selector(asked.selector)

            async def selected() -> list[v1.CheckpointView]:
                found = await agent.checkpoints(asked.labels)
                return [each for each in found if selector.matches(None if each.trouble else each.labels)]

            if asked.policy is not None:
                await check_repository(agent)
                candidates = _candidates(await selected())
                await retain(candidates, asked.policy, dry_run=asked.dry_run, remove=agent.remove)
            return await selected()

        found: list[v1.CheckpointView] = run_async(_at, self.socket, work)
        show_listing(found, form, _COLUMNS, lambda each: json.loads(each.document_json))


async def check_repository(agent: AgentCaller) -> None:
    """Refuse where it cannot be told what the agent's repository has, since a policy leaves that alone.

    Raises:
        StoreUnreachable: it cannot be read.
    """
    from iriscw.objects.ports import StoreUnreachable

    for tier in (await agent.capabilities()).tiers:
        if tier.repository and tier.trouble:
            raise StoreUnreachable(f"the agent cannot read the repository, and nothing was removed: {tier.trouble}")


def _needed(said: Mapping[str, Any], *, pinned: bool = True) -> str:
    """Say who needs a checkpoint of which the agent says this; ``pinned``: also of operations."""
    from iriscw.agent.retaining import needed_by

    frozen = said["manifest"]["frozen"]
    pins = [name for copy in said["copies"] for name in copy["pinned_by"]] if pinned else []
    return needed_by(frozen["guard"], pins, carried=frozen.get("carried") is not None)


def _candidates(found: Sequence[v1.CheckpointView]) -> list[KeptCheckpoint]:
    """Return what a policy may let go: see :func:`iriscw.agent.retaining.candidates`."""
    from iriscw.checkpoint.retention import KeptCheckpoint

    candidates = []
    for each in found:
        if each.trouble or REPOSITORY in each.tiers:
            continue
        said = json.loads(each.document_json)
        size_bytes = sum(copy["size_bytes"] for copy in said["copies"])
        needed = _needed(said)
        labels = tuple(each.labels.items())
        candidates.append(KeptCheckpoint(each.checkpoint_id, size_bytes, each.sealed_at_ms, labels, needed=needed))
    return candidates


_COLUMNS: dict[str, Callable[[v1.CheckpointView], object]] = {
    "CHECKPOINT": lambda each: each.checkpoint_id,
    "TIER": lambda each: cell(", ".join(each.tiers or (each.tier,))),
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "PID": lambda each: each.pid or "",
    "PROCESSES": lambda each: each.processes or "",
    "PROGRAM": lambda each: cell(each.program),
    "AGE": lambda each: age(each.sealed_at_ms, time.time_ns() // 1_000_000) if each.sealed_at_ms else "",
    "LABELS": lambda each: cell(
        each.trouble or ",".join(f"{name}={value}" for name, value in sorted(each.labels.items()))
    ),
}


def _run(socket: Path, begin: Callable[[AgentCaller], AsyncGenerator[RunningOperation, None]], form: str) -> None:
    async def work(agent: AgentCaller) -> None:
        from anyio import get_cancelled_exc_class

        seen: list[RunningOperation] = []
        interrupted = None
        with progress() as shown:
            show_steps = follow(shown)

            def see(view: RunningOperation) -> None:
                nonlocal show_steps
                if seen and seen[-1].asked != view.asked:  # it was fetched first
                    show_steps = follow(shown)
                seen[:] = [view]
                show_steps([step.phase for step in view.steps], view.done_bytes, view.total_bytes)

            try:
                await agent.run(begin(agent), see)
            except get_cancelled_exc_class() as error:  # the agent has undone it, or it was past that
                interrupted = error
                if not seen or (seen[-1].end is None and not seen[-1].aside):
                    raise
        tell(_done(seen[-1]), form, interrupted)

    with as_interrupts():
        run_async(_at, socket, work)


async def _at(socket: Path, work: Callable[[AgentCaller], Coroutine[Any, Any, Any]]) -> Any:
    from iriscw.agent.client import AgentCaller

    with _named(socket):
        async with AgentCaller(socket) as agent:
            return await work(agent)


@contextlib.contextmanager
def _named(socket: Path) -> Iterator[None]:
    from iriscw.agent.errors import AgentUnreachable
    from iriscw.client.contact import why
    from iriscw.rpc.errors import RpcUnavailable

    try:
        yield
    except RpcUnavailable as error:
        raise AgentUnreachable(
            f"no agent answers at {socket} ({why(error)}); `iriscw agent serve` starts one, which takes up what ran"
        ) from error


def _done(view: RunningOperation) -> Done | IriscwError:
    from iriscw.agent.errors import OperationPutAside
    from iriscw.agent.local import OperationStuck, failure_of
    from iriscw.agent.operations import OperationKind

    if view.aside:
        return OperationPutAside(view.aside)
    if view.end is None:
        return OperationStuck(f"operation {view.asked.operation} did not end; the next agent takes it up")
    failure = failure_of(view.end)
    if failure is not None:
        return failure
    made = view.made
    thawed_or_frozen = view.asked.kind is not OperationKind.MOVE
    return Done(
        checkpoint=view.artifact,
        outcome=view.end.outcome.value,
        pid=made.pid if made is not None and thawed_or_frozen else 0,
        processes=made.processes if made is not None else 0,
        tier=view.tier,
        size_bytes=made.size_bytes if made is not None else 0,
        seconds=view.lasted_ns / SECOND,
        phases=_phases(view),
        note=view.end.text,
    )


def _phases(view: RunningOperation) -> dict[str, float]:
    """Return the seconds of each phase, each up to the next one."""
    found: dict[str, float] = {}
    ends = [step.at_ns for step in view.steps[1:]] + [view.lasted_ns]
    for step, end in zip(view.steps, ends, strict=True):
        found[step.phase] = round(found.get(step.phase, 0.0) + (end - step.at_ns) / SECOND, 6)
    return found
