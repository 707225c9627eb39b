"""What the agent knows, as the facts that it tells the controller."""

from __future__ import annotations

from collections.abc import Sequence

from iriscw.agent.operation_views import RunningOperation
from iriscw.agent.wire import text
from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.nodes.model import (
    MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINTS,
    MAX_STEPS,
    UNKNOWN,
    CheckpointRow,
    OperationRow,
    OrderEnd,
    TierRow,
    size_of,
)
from iriscw.runtime.vocabulary import MILLISECOND

MAX_TEXT_CHARS = 4096


def operation_row(view: RunningOperation) -> OperationRow:
    """Return an operation that runs."""
    return OperationRow(
        operation=view.asked.operation,
        kind=view.asked.kind.value,
        checkpoint=view.artifact,
        tier=text(view.tier),
        owed=view.owed,
        steps=tuple((step.phase, step.at_ns // MILLISECOND) for step in view.steps[-MAX_STEPS:]),
        done_bytes=view.done_bytes,
        total_bytes=view.total_bytes,
        aside=text(view.aside)[:MAX_TEXT_CHARS],
    )


def order_end(view: RunningOperation) -> OrderEnd:
    """Return what became of an operation that is over."""
    end, made = view.end, view.made
    return OrderEnd(
        operation=view.asked.operation,
        outcome=UNKNOWN if end is None else end.outcome.value,
        kind="" if end is None else end.kind,
        text="" if end is None else text(end.text)[:MAX_TEXT_CHARS],
        lasted_ms=view.lasted_ns // MILLISECOND,
        size_bytes=0 if made is None else made.size_bytes,
        pid=view.pid,
        processes=0 if made is None else made.processes,
        tier=text(view.tier or ("" if made is None else made.tier)),
    )


def checkpoint_rows(listed: Sequence[ListedArtifact]) -> tuple[tuple[CheckpointRow, ...], int]:
    """Return the checkpoints that the controller is told of, the latest first, and how many more there are."""
    rows = sorted((_row(each) for each in listed), key=lambda row: (-row.sealed_at_ms, row.checkpoint, row.tier))
    told, room = 0, MAX_CHECKPOINT_BYTES
    for row in rows[:MAX_CHECKPOINTS]:
        room -= size_of(row)
        if room < 0:
            break
        told += 1
    return tuple(rows[:told]), len(rows) - told


def with_stored(
    here: tuple[tuple[CheckpointRow, ...], int], stored: Sequence[CheckpointRow]
) -> tuple[tuple[CheckpointRow, ...], int]:
    """Return these and, as far as there is room beside them, those of the repository; and how many more there are."""
    rows, omitted = here
    more, room = 0, MAX_CHECKPOINT_BYTES - sum(size_of(row) for row in rows)
    for row in stored[: MAX_CHECKPOINTS - len(rows)]:
        room -= size_of(row)
        if room < 0:
            break
        more += 1
    return (*rows, *stored[:more]), omitted + len(stored) - more


def _row(each: ListedArtifact) -> CheckpointRow:
    trouble = text(each.trouble)[:MAX_TEXT_CHARS]
    if each.manifest is None:
        return CheckpointRow(each.artifact, text(each.tier), each.size_bytes, trouble)
    tasks = each.manifest.frozen.tasks
    return CheckpointRow(
        checkpoint=each.artifact,
        tier=text(each.tier),
        size_bytes=each.size_bytes,
        trouble=trouble,
        pid=tasks[0].identity.pid,
        processes=len(tasks),
        program=text(tasks[0].name),
        sealed_at_ms=each.manifest.sealed_wall_ns // MILLISECOND,
        labels=tuple(sorted(each.manifest.labels)),
    )


def tier_rows(uses: Sequence[TierUse]) -> tuple[TierRow, ...]:
    """Return how full the tiers are."""
    return tuple(
        TierRow(
            tier=use.tier,
            folder=text(use.folder),
            budget_bytes=use.budget_bytes,
            used_bytes=use.artifacts_bytes,
            reserved_bytes=use.reserved_bytes,
            free_bytes=use.free_bytes,
        )
        for use in uses
    )
