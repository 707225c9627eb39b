"""What an observation of the cloud means: conditions and errors, classified.

Theory of operation. CoreWeave tells how a pool fares through conditions whose names and reasons have
changed before and will again, so unknown ones are tolerated and never judged by. What is known is judged in
this order:

1. A pool with a deletion timestamp is going, whatever else it says.
2. A pool all of whose nodes are ready is ready: a quota that is exceeded *now* does not take it back.
3. ``Validated`` (older: ``Valid``) that is False: no node will ever come.
4. Machines that are all booked or booting need neither quota nor capacity any more: it boots.
5. ``Quota`` with reason ``NotSet`` (a hard zero) or ``Over``: no node will come until people change the
   quota.
6. ``Capacity`` with reason ``QueuedAwaitingCapacity``: the quota is held and nodes come by themselves, at
   some time.
7. Otherwise it boots.

The first five answers are what the fleet keeps apart (INV-F5). Each comes with a sentence that a user can
read.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from iriscw.cloud.model import (
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    NoCapacity,
    NodePool,
    Pod,
    PodPhase,
    QuotaExceeded,
    Throttled,
    Unavailable,
    Unseen,
)

QUOTA_REFUSALS = ("NotSet", "Over")
CAPACITY_WAITS = ("QueuedAwaitingCapacity",)


class PoolHealth(enum.Enum):
    """How a pool fares."""

    READY = "ready"
    BOOTING = "booting"
    NO_CAPACITY = "no capacity"
    NO_QUOTA = "no quota"
    INVALID = "invalid"
    GOING = "going"


@attrs.frozen
class PoolJudgement:
    """How a pool fares, and the sentence for users that says so."""

    health: PoolHealth
    text: str


def judge_pool(pool: NodePool) -> PoolJudgement:
    """Classify an observed pool by the order above."""
    if pool.deleting:
        return PoolJudgement(PoolHealth.GOING, "the node pool is being deleted")
    nodes = f"{pool.ready_nodes} of {pool.target_nodes} nodes are ready"
    closed = next((node for node in pool.nodes if not node.usable and node.closed), None)
    if closed is not None:
        nodes += f"; {closed.name} is {closed.closed}"
    if pool.target_nodes > 0 and pool.ready_nodes >= pool.target_nodes:
        return PoolJudgement(PoolHealth.READY, nodes)
    validated = pool.condition("Validated", "Valid")
    if validated is not None and validated.status == "False":
        why = validated.message or validated.reason or "no reason given"
        return PoolJudgement(PoolHealth.INVALID, f"the cloud does not accept the node pool: {why}")
    if pool.current_nodes + pool.in_progress_nodes >= pool.target_nodes:
        return PoolJudgement(PoolHealth.BOOTING, nodes)
    return _judge_missing(pool, nodes)


def _judge_missing(pool: NodePool, nodes: str) -> PoolJudgement:
    quota = pool.condition("Quota")
    if quota is not None and quota.reason in QUOTA_REFUSALS:
        why = quota.message or quota.reason
        return PoolJudgement(PoolHealth.NO_QUOTA, f"the quota does not allow the node pool: {why}")
    capacity = pool.condition("Capacity")
    if capacity is not None and capacity.reason in CAPACITY_WAITS:
        why = capacity.message or f"{pool.queued_nodes} nodes are queued until machines are free"
        return PoolJudgement(PoolHealth.NO_CAPACITY, f"the zone has no free machines now: {why}")
    return PoolJudgement(PoolHealth.BOOTING, nodes)


class CallRefusal(enum.Enum):
    """What a failed call means."""

    QUOTA = "quota"
    CAPACITY = "capacity"
    INVALID = "invalid"
    ABSENT = "absent"
    CONFLICT = "conflict"
    LATER = "later"
    """Nothing is known: repeat the call."""
    FORBIDDEN = "forbidden"
    """Repeat the call: a revoked token comes back when people renew it, an outage of ours is no failure of a slice."""


@attrs.frozen
class RefusalJudgement:
    """What a failed call means, the sentence for users, and how long the API asked to wait, in ns (or 0)."""

    refusal: CallRefusal
    text: str
    retry_after: int = 0


_REFUSALS: tuple[tuple[type[Exception], CallRefusal], ...] = (
    (QuotaExceeded, CallRefusal.QUOTA),
    (NoCapacity, CallRefusal.CAPACITY),
    (InvalidSpec, CallRefusal.INVALID),
    (Gone, CallRefusal.ABSENT),
    (Conflict, CallRefusal.CONFLICT),
    (Throttled, CallRefusal.LATER),
    (Unseen, CallRefusal.FORBIDDEN),  # before what it is a kind of
    (Unavailable, CallRefusal.LATER),
    (Forbidden, CallRefusal.FORBIDDEN),
)


def judge_error(error: Exception) -> RefusalJudgement:
    """Classify the error of a call. One outside the port's contract is a driver's bug: told as such, and
    repeated.
    """
    for kind, refusal in _REFUSALS:
        if isinstance(error, kind):
            retry_after = error.retry_after if isinstance(error, Throttled) else 0
            return RefusalJudgement(refusal, str(error) or kind.__name__, retry_after)
    return RefusalJudgement(CallRefusal.LATER, f"the cloud driver failed: {type(error).__name__}: {error}")


class PodHealth(enum.Enum):
    """What keeps a pod from running, as far as its status says so."""

    WELL = "well"
    IMAGE = "its image cannot be had"
    SETUP = "what its container needs is missing"
    CRASHES = "its container ends again and again"
    UNSCHEDULED = "no node takes it"
    VOLUMES = "its volumes or its network are not set up"
    """A mount that fails says no more in a pod's status; the pod's events do. Also what every pod is in for a while."""


_POD_REASONS: Mapping[str, PodHealth] = {
    **dict.fromkeys(
        (
            *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
            *("RegistryUnavailable", "SignatureValidationFailed"),
        ),
        PodHealth.IMAGE,
    ),
    **dict.fromkeys(
        ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"),
        PodHealth.SETUP,
    ),
    "CrashLoopBackOff": PodHealth.CRASHES,
    "Unschedulable": PodHealth.UNSCHEDULED,
    "SchedulerError": PodHealth.UNSCHEDULED,
}


def judge_pod(pod: Pod) -> PodHealth:
    """Say what keeps a pod from running. One that has ended is not judged: how it ended, it says itself."""
    if pod.phase.over:
        return PodHealth.WELL
    known = _POD_REASONS.get(pod.reason)
    if known is not None:
        return known
    return PodHealth.VOLUMES if pod.unset and pod.node and pod.phase is PodPhase.PENDING else PodHealth.WELL
