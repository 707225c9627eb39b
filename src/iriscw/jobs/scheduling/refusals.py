"""Workers that refuse, and tasks that are refused: neither goes round in a hurry.

A worker whose disk is full refuses each attempt at once, has room again, and would be the first to get the next one:
a black hole that takes the tasks of everybody. So there are two waits.

*A worker that refused* gets nothing for a pause, which is twice as long with each refusal in a row: tasks go elsewhere
meanwhile, and are tried here again when the pause is over, if no worker has room that did not refuse. What was placed
before the pause and is refused in it is part of the same refusal. The row ends with an attempt that was placed since
the last refusal and began, as soon as its end tells of it; after ``FORGIVEN`` the next refusal is the first of a row.

*A task whose attempts never begin* is placed again at once, wherever there is room; from its ``TRIES_AT_ONCE`` th
attempt on it rests first, ever longer. So trouble that all workers have at once (a store that does not answer) needs
more than an hour to spend ``MAX_UNSTARTED`` attempts, however many workers there are. A gang rests as a whole.

Who refuses for the specification's sake says so (``Observation.unstartable``): the worker is not to blame, another one
would not help, and nobody waits.

Neither wait outlives the scheduler: a new one tries everything once more, and learns the same again in seconds. What
is kept is one note for each worker and one for each task that rests.
"""

from __future__ import annotations

from iriscw.jobs.messages import Due, Refusal, Rested
from iriscw.jobs.scheduling.placement import Host, Inventory, Refusing
from iriscw.jobs.scheduling.queues import Waiting
from iriscw.runtime.vocabulary import SECOND, Command, Context, SetTimer

FIRST_PAUSE = 1 * SECOND
LONGEST_PAUSE = 60 * SECOND
"""Kubernetes' back-off for a container that cannot start goes from 10 s to 300 s; here others wait for the room."""

FORGIVEN = 600 * SECOND
"""A worker that refused nothing for so long after its pause begins anew: as a kubelet has it for a container."""

TRIES_AT_ONCE = 8
"""Attempts of a task that may fail to begin before it rests: some workers may be bad, and the next one good."""

MAX_REASON_CHARS = 200
"""Of a worker's reason, in what waiting tasks are told."""


def pause_of(refusals: int) -> int:
    """Return how long a worker gets nothing after so many refusals in a row, ns."""
    return min(FIRST_PAUSE << min(refusals - 1, 6), LONGEST_PAUSE)


def rest_of(unstarted: int) -> int:
    """Return how long a task rests of which so many attempts did not begin, ns."""
    return pause_of(unstarted - TRIES_AT_ONCE) if unstarted > TRIES_AT_ONCE else 0


def note_refusal(inventory: Inventory, refusal: Refusal, ctx: Context) -> tuple[Command, ...]:
    """Have a worker that refused an attempt get nothing for a while."""
    host = inventory.hosts.get(refusal.worker_id)
    if host is None or host.info.incarnation != refusal.incarnation or host.paused:
        return ()
    before = host.refusing
    count = 1 if before is None or ctx.now - before.until > FORGIVEN else before.count + 1
    pause = pause_of(count)
    host.paused = True
    inventory.demote(host, Refusing(count, ctx.now + pause, refusal.reason))
    return (SetTimer(("refusal", refusal.worker_id), pause, Due("refusal", refusal.worker_id, refusal.incarnation)),)


def note_beginning(inventory: Inventory, uid: str) -> None:
    """Forget the refusals of the worker where this attempt began, unless there are others since it was placed."""
    host = inventory.where.get(uid)
    if host is None or host.refusing is None or host.lost or host.paused:
        return
    if host.refusing.count == host.commitments[uid].refusals:
        inventory.promote(host)


def rest(job: Waiting, ranges: tuple[tuple[int, int], ...], rest_ns: int, ctx: Context) -> Command:
    """Have tasks of a job rest before they wait for a worker again."""
    first = ranges[0][0]
    job.resting[first] = ranges
    job.rested_at = ctx.now + rest_ns
    return SetTimer(("rest", job.job_id, first), rest_ns, Rested(job.job_id, first))


def explain_rest(job: Waiting, now: int) -> str:
    """Say why tasks rest."""
    return f"{job.refused or 'its attempts end before they begin'}; tried again in {_seconds(job.rested_at, now)}"


def explain_pause(host: Host, now: int) -> str:
    """Say why a worker gets nothing."""
    assert host.refusing is not None
    return f"{said_of(host.info.worker_id, host.refusing.reason)}; tried again in {_seconds(host.refusing.until, now)}"


def said_of(worker_id: str, reason: str) -> str:
    """Say that a worker refuses."""
    return f"worker {worker_id} refuses: {reason[:MAX_REASON_CHARS] or 'no reason given'}"


def _seconds(until: int, now: int) -> str:
    return f"{max(until - now, 0) / SECOND:.0f} s"
