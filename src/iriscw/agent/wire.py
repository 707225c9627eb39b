"""Between what the node agent knows and what it says on the wire."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.agent.operation_views import Made, OperationStep, RunningOperation
from iriscw.agent.operations import Asked, OperationKind
from iriscw.checkpoint.drivers.loading import TIER_NAME, default_tier
from iriscw.checkpoint.manifest import ARTIFACT_ID, label_trouble
from iriscw.checkpoint.model import ListedArtifact, MovePlan, ShownTier
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import CriuOptions, FreezePlan, Hook, HookKind, Numbers, Outcome, TaskIdentity, ThawPlan
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND

DEFAULT_LOCK_MS = 60_000
DEFAULT_HOOK_MS = 30_000
MAX_WAIT_MS = 86_400_000
"""A day: longer is a slip."""

MAX_HOOK_WORDS = 256
MAX_GPUS = 64

ASIDE = "aside"
"""The outcome, on the wire, of an operation that was put aside."""

_HOOKS = {
    v1.HookKind.EXEC: HookKind.EXEC,
    v1.HookKind.HTTP: HookKind.HTTP,
    v1.HookKind.FILES: HookKind.FILES,
}
_NUMBERS = {
    v1.ProcessNumbers.UNSPECIFIED: Numbers.SAME,
    v1.ProcessNumbers.SAME: Numbers.SAME,
    v1.ProcessNumbers.AUTO: Numbers.AUTO,
    v1.ProcessNumbers.FRESH: Numbers.FRESH,
}
_NUMBERS_BACK = {ours: theirs for theirs, ours in _NUMBERS.items()}
_HOOKS_BACK = {ours: theirs for theirs, ours in _HOOKS.items()}


def pairs(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return a map as what plans hold: sorted, because a map on the wire has no order."""
    return tuple(sorted(given.items()))


# What is asked for


def freeze_plan(operation: str, root: TaskIdentity, message: v1.FreezeRequest) -> FreezePlan:
    """Read what is to be frozen, and how.

    Raises:
        InvalidArgument: a label, a tier, a hook, a folder or a time is none.
    """
    labels = pairs(message.labels)
    if label_trouble(labels):
        raise InvalidArgument(label_trouble(labels))
    if message.guard and not message.guard.startswith("/"):
        raise InvalidArgument(f"{message.guard[:80]!a} is not an absolute folder")
    tier = message.tier or default_tier()
    if not TIER_NAME.fullmatch(tier):  # folders of callers are the shim's business
        raise InvalidArgument(f"{tier[:80]!a} is not a valid tier name")
    return FreezePlan(
        operation=operation,
        root=root,
        tier=tier,
        leave_running=message.leave_running,
        force=message.force,
        options=CriuOptions(
            shell_job=message.shell_job, tcp_established=message.tcp_established, tcp_close=message.tcp_close
        ),
        hook=None if message.hook is None else _hook(message.hook),
        lock_within_ns=_wait_ns("lock_timeout_ms", message.lock_timeout_ms, DEFAULT_LOCK_MS),
        labels=labels,
        guard=message.guard,
        carries_folder=message.carries_folder,
    )


def freeze_request(plan: FreezePlan) -> v1.FreezeRequest:
    """Write a plan as a request, for whoever calls an agent."""
    return v1.FreezeRequest(
        pid=plan.root.pid,
        start_ticks=plan.root.start_ticks,
        tier=plan.tier,
        leave_running=plan.leave_running,
        force=plan.force,
        shell_job=plan.options.shell_job,
        tcp_established=plan.options.tcp_established,
        tcp_close=plan.options.tcp_close,
        hook=_hook_back(plan.hook),
        lock_timeout_ms=plan.lock_within_ns // MILLISECOND,
        labels=dict(plan.labels),
        guard=plan.guard,
        carries_folder=plan.carries_folder,
    )


def thaw_plan(operation: str, message: v1.ThawRequest) -> ThawPlan:
    """Read what is to be brought back.

    Raises:
        InvalidArgument: the id is none, there are too many GPUs, or which numbers it gets is not known, or a hook
            is none.
    """
    if not ARTIFACT_ID.fullmatch(message.checkpoint_id):
        raise InvalidArgument(f"{message.checkpoint_id[:80]!a} is not a checkpoint id: small letters, digits and '-'")
    if len(message.gpus) > MAX_GPUS:
        raise InvalidArgument(f"{len(message.gpus)} GPUs: at most {MAX_GPUS}")
    numbers = _NUMBERS.get(message.numbers)
    if numbers is None:
        raise InvalidArgument(f"the choice {int(message.numbers)} of process numbers is not known")
    verify = _hook(message.verify) if message.verify is not None else None
    if verify is not None and verify.kind is HookKind.FILES:
        raise InvalidArgument("what verifies a thaw is a program or an address")
    return ThawPlan(
        operation=operation,
        artifact=message.checkpoint_id,
        gpus=pairs(message.gpus),
        force=message.force,
        lazy=message.lazy,
        numbers=numbers,
        clone=message.clone,
        verify=verify,
    )


def thaw_request(plan: ThawPlan) -> v1.ThawRequest:
    """Write a plan as a request, for whoever calls an agent."""
    return v1.ThawRequest(
        checkpoint_id=plan.artifact,
        gpus=dict(plan.gpus),
        force=plan.force,
        lazy=plan.lazy,
        numbers=_NUMBERS_BACK[plan.numbers],
        clone=plan.clone,
        verify=_hook_back(plan.verify),
    )


def move_plan(operation: str, message: v1.MoveRequest) -> MovePlan:
    """Read what is to be moved, and where to.

    Raises:
        InvalidArgument: the id or the tier is none.
    """
    if not ARTIFACT_ID.fullmatch(message.checkpoint_id):
        raise InvalidArgument(f"{message.checkpoint_id[:80]!a} is not a checkpoint id: small letters, digits and '-'")
    if not TIER_NAME.fullmatch(message.tier):
        raise InvalidArgument(f"{message.tier[:80]!a} is not a valid tier name")
    return MovePlan(operation, message.checkpoint_id, message.tier, message.keep)


def move_request(plan: MovePlan) -> v1.MoveRequest:
    """Write a plan as a request, for whoever calls an agent."""
    return v1.MoveRequest(checkpoint_id=plan.artifact, tier=plan.target, keep=plan.keep)


def _hook_back(hook: Hook | None) -> v1.FreezeHook | None:
    if hook is None:
        return None
    return v1.FreezeHook(
        kind=_HOOKS_BACK[hook.kind], target=list(hook.target), timeout_ms=hook.within_ns // MILLISECOND
    )


def _hook(message: v1.FreezeHook) -> Hook:
    kind = _HOOKS.get(message.kind)
    words = tuple(message.target)
    if kind is None:
        raise InvalidArgument(f"the hook's kind {int(message.kind)} is not known")
    if not 1 <= len(words) <= MAX_HOOK_WORDS or (kind is not HookKind.EXEC and len(words) > 1):
        raise InvalidArgument(f"a hook of kind {kind.value} has {len(words)} words")
    if kind is not HookKind.HTTP and not words[0].startswith("/"):
        raise InvalidArgument("a hook's program or folder is written as an absolute path")
    return Hook(kind, words, _wait_ns("timeout_ms", message.timeout_ms, DEFAULT_HOOK_MS))


def _wait_ns(name: str, given_ms: int, default_ms: int) -> int:
    if not 0 <= given_ms <= MAX_WAIT_MS:
        raise InvalidArgument(f"{name}: {given_ms} is not a time between 0 and a day")
    return (given_ms or default_ms) * MILLISECOND


# What is said


def operation_view(view: RunningOperation) -> v1.OperationView:
    """Write a view."""
    return v1.OperationView(
        operation_id=view.asked.operation,
        kind=view.asked.kind.value,
        checkpoint_id=view.artifact,
        tier=view.tier or (view.made.tier if view.made is not None else ""),
        owed=view.owed,
        steps=[v1.OperationStep(phase=step.phase, at_ms=step.at_ns // MILLISECOND) for step in view.steps],
        done_bytes=view.done_bytes,
        total_bytes=view.total_bytes,
        end=_end(view),
    )


def _end(view: RunningOperation) -> v1.OperationEnd | None:
    lasted = view.lasted_ns // MILLISECOND
    if view.aside:
        return v1.OperationEnd(outcome=ASIDE, kind="OperationPutAside", text=text(view.aside), lasted_ms=lasted)
    if not view.over or view.end is None:
        return None
    end = v1.OperationEnd(
        outcome=view.end.outcome.value, kind=view.end.kind, text=text(view.end.text), lasted_ms=lasted
    )
    if view.made is not None:
        end.size_bytes, end.pid, end.processes = view.made.size_bytes, view.pid, view.made.processes
    return end


def read_view(message: v1.OperationView) -> RunningOperation:
    """Read a view, as a caller does.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        kind = OperationKind(message.kind)
        ended = message.end
        aside = ended is not None and ended.outcome == ASIDE
        end = made = None
        if ended is not None and not aside:
            end = OperationEnded(message.operation_id, Outcome(ended.outcome), ended.kind, ended.text)
            if ended.pid:
                made = Made(message.checkpoint_id, message.tier, ended.size_bytes, ended.pid, ended.processes)
    except ValueError as error:
        raise InvalidArgument(f"the agent said what this version does not know: {error}") from error
    return RunningOperation(
        asked=Asked(message.operation_id, kind, ""),
        artifact=message.checkpoint_id,
        tier=message.tier,
        owed=message.owed,
        steps=tuple(OperationStep(step.phase, step.at_ms * MILLISECOND) for step in message.steps),
        done_bytes=message.done_bytes,
        total_bytes=message.total_bytes,
        end=end,
        made=made,
        aside=ended.text if ended is not None and aside else "",
        over=end is not None,
        lasted_ns=ended.lasted_ms * MILLISECOND if ended is not None else 0,
    )


def text(given: str) -> str:
    """Return a text that the wire takes: names of processes may be any bytes."""
    return given.encode("utf-8", "backslashreplace").decode("utf-8")


def document(each: ListedArtifact) -> dict[str, Any]:
    """Return a checkpoint for programs: the manifest without its list of files."""
    content = attrs.asdict(each, value_serializer=lambda owner, field, value: _plain(value))
    if content["manifest"] is not None:
        content["manifest"].pop("files")
    return content


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def tier_view(each: ShownTier) -> v1.TierView:
    """Write how full a tier is."""
    return v1.TierView(
        name=each.tier,
        folder=text(each.where),
        budget_bytes=each.budget_bytes or 0,
        used_bytes=each.used_bytes,
        reserved_bytes=each.reserved_bytes,
        free_bytes=each.free_bytes or 0,
        checkpoints=each.checkpoints,
        repository=each.budget_bytes is None and not each.trouble,
        trouble=text(each.trouble),
    )


def shown_tier(message: v1.TierView) -> ShownTier:
    """Read how full a tier is, as a caller does."""
    known = not message.repository and not message.trouble
    return ShownTier(
        tier=message.name,
        where=message.folder,
        checkpoints=message.checkpoints,
        used_bytes=message.used_bytes,
        reserved_bytes=message.reserved_bytes,
        budget_bytes=message.budget_bytes if known else None,
        free_bytes=message.free_bytes if known else None,
        trouble=message.trouble,
    )


def checkpoint_view(each: ListedArtifact) -> v1.CheckpointView:
    """Write a checkpoint."""
    view = v1.CheckpointView(
        checkpoint_id=each.artifact,
        tier=each.tier,
        size_bytes=each.size_bytes,
        trouble=text(each.trouble),
        document_json=json.dumps(document(each)),
        tiers=[copy.tier for copy in each.copies],
    )
    if each.manifest is not None:
        first = each.manifest.frozen.tasks[0]
        view.pid, view.program = first.identity.pid, text(first.name)
        view.processes = len(each.manifest.frozen.tasks)
        view.sealed_at_ms = each.manifest.sealed_wall_ns // MILLISECOND
        view.labels = dict(each.manifest.labels)
    return view
