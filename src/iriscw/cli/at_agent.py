"""``checkpoint``, ``restore`` and ``checkpoints`` with ``--agent``: the same commands, done by a node agent."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iriscw.cli.freezing import STEPS, Done, Shown, decimal_size, progress, tell
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.outcome import run_async
from iriscw.cli.output import age, cell, emit, show, to_json, to_yaml
from iriscw.cli.tier_options import PLACE_OPTIONS

if TYPE_CHECKING:
    from iriscw.agent.client import AgentCaller
    from iriscw.agent.operation_views import View
    from iriscw.errors import IriscwError
    from iriscw.freeze.model import FreezePlan, ThawPlan
    from iriscw.proto.iriscw import v1

SECOND = 1_000_000_000


def refuse_local_options(given: dict[str, Any]) -> None:
    """Refuse options that are the agent's own: it was told when it was started, and no caller tells it.

    Raises:
        click.UsageError: one of them was given.
    """
    named = [f"--{name.replace('_', '-')}" for name in PLACE_OPTIONS if given.get(name) is not None]
    if named:
        raise click.UsageError(f"{', '.join(named)}: with --agent the agent says it")


def checkpoint(socket: Path, plan: FreezePlan, form: str) -> None:
    """Have a tree frozen."""
    _run(socket, lambda agent: agent.freeze(plan), form)


def restore(socket: Path, plan: ThawPlan, form: str) -> None:
    """Have a tree brought back."""
    _run(socket, lambda agent: agent.thaw(plan), form)


def checkpoints(socket: Path, labels: tuple[tuple[str, str], ...], removed: tuple[str, ...], form: str) -> None:
    """List what the agent keeps."""

    async def work(agent: AgentCaller) -> list[v1.CheckpointView]:
        for checkpoint in removed:
            await agent.remove(checkpoint)
            sys.stderr.write(f"iriscw: removed {checkpoint}\n")
        return await agent.checkpoints(labels)

    found = run_async(_at, socket, work)
    if form == "table":
        show(found, form, _COLUMNS)
    else:
        emit((to_json if form == "json" else to_yaml)([json.loads(each.document_json) for each in found]))


_COLUMNS: dict[str, Callable[[v1.CheckpointView], object]] = {
    "CHECKPOINT": lambda each: each.checkpoint_id,
    "TIER": lambda each: cell(each.tier),
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "PID": lambda each: each.pid or "",
    "PROCESSES": lambda each: each.processes or "",
    "PROGRAM": lambda each: cell(each.program),
    "AGE": lambda each: age(each.sealed_at_ms, time.time_ns() // 1_000_000) if each.sealed_at_ms else "",
    "LABELS": lambda each: cell(
        each.trouble or ",".join(f"{name}={value}" for name, value in sorted(each.labels.items()))
    ),
}


def _run(socket: Path, begin: Callable[[AgentCaller], AsyncGenerator[View, None]], form: str) -> None:
    async def work(agent: AgentCaller) -> None:
        from anyio import get_cancelled_exc_class

        seen: list[View] = []
        interrupted = None
        with progress() as shown:
            show_view = _shower(shown)

            def see(view: View) -> None:
                seen[:] = [view]
                show_view(view)

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


def _shower(shown: Shown) -> Callable[[View], None]:
    known = 0

    def see(view: View) -> None:
        nonlocal known
        for step in view.steps[known:]:
            shown.step(STEPS.get(step.phase, step.phase))
        known = len(view.steps)
        if view.done_bytes or view.total_bytes:
            shown.bytes_done(view.done_bytes, view.total_bytes)

    return see


def _done(view: View) -> Done | IriscwError:
    from iriscw.agent.errors import OperationPutAside
    from iriscw.agent.local import OperationStuck, failure_of

    if view.aside:
        return OperationPutAside(view.aside)
    if view.end is None:
        return OperationStuck(f"operation {view.asked.operation} did not end; the next agent takes it up")
    failure = failure_of(view.end)
    if failure is not None:
        return failure
    made = view.made
    return Done(
        checkpoint=view.artifact,
        outcome=view.end.outcome.value,
        pid=made.pid if made is not None else 0,
        processes=made.processes if made is not None else 0,
        tier=view.tier,
        size_bytes=made.size_bytes if made is not None else 0,
        seconds=view.lasted_ns / SECOND,
        phases=_phases(view),
        note=view.end.text,
    )


def _phases(view: View) -> dict[str, float]:
    """Return the seconds of each phase, each up to the next one."""
    found: dict[str, float] = {}
    ends = [step.at_ns for step in view.steps[1:]] + [view.lasted_ns]
    for step, end in zip(view.steps, ends, strict=True):
        found[step.phase] = round(found.get(step.phase, 0.0) + (end - step.at_ns) / SECOND, 6)
    return found
