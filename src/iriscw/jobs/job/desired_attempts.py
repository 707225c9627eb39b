"""What a job wants of its workers: whom to run, whom to stop and why. What links are told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iriscw.jobs.job.ledger import JobLedger, Place
from iriscw.jobs.meeting.places import place_of
from iriscw.jobs.messages import Desired, DesiredOn, RunAttempts, StopAttempts
from iriscw.jobs.model import Assembly, Attempt, Ending, GangPlace, RunOrder, TaskState, job_uid
from iriscw.jobs.suspension.model import SUSPENDING, Stage
from iriscw.jobs.suspension.moves import Move, resumption_of
from iriscw.runtime.vocabulary import ActorPath, Command, Context, Tell


def scheduler_of(ctx: Context) -> ActorPath:
    """Return the scheduler of a job."""
    return ctx.path.parent / "scheduler"


def link_of(ctx: Context, worker_id: str) -> ActorPath:
    """Return a worker's link."""
    return ctx.path.parent / "links" / worker_id


def latest_attempt(ledger: JobLedger, index: int) -> Attempt:
    """Return the latest attempt of a task that has one."""
    attempt = ledger.tasks[index].attempt
    assert attempt is not None
    return attempt


def run_order(
    ledger: JobLedger, index: int, uid: str, number: int, gang: GangPlace | None, move: Move | None = None
) -> RunOrder:
    """Return the order that has an attempt run.

    One that began elsewhere (``move``, or as recorded) is never started.
    """
    move = move or ledger.moves.get(uid)
    resumption = None if move is None else resumption_of(move, latest_attempt(ledger, index).gpus)
    uid_of_job = job_uid(ledger.job_id)
    return RunOrder(uid, ledger.job_id, uid_of_job, index, number, ledger.spec, resumption, ledger.namespace, gang)


def stop_for(ledger: JobLedger, attempt: Attempt) -> Ending | None:
    """Say with which ending a live attempt is being stopped, if it is."""
    if ledger.verdict is not None:
        gang_over = ledger.verdict.waiting is TaskState.COSCHED_FAILED
        return Ending.GANG_STOPPED if gang_over else Ending.KILLED
    if attempt.overran:
        return Ending.TIMED_OUT
    move = ledger.moves.get(attempt.uid)
    if move is not None and move.given_up:
        return Ending.KILLED
    if move is not None and move.stopped_to_yield:
        return Ending.PREEMPTED
    if ledger.gang and ledger.moves:
        return Ending.GANG_STOPPED  # another member gives way, and with it all
    return Ending.GANG_STOPPED if ledger.broken or ledger.unjudged else None


def desired_on(ledger: JobLedger, place: Place, ctx: Context) -> Command:
    """Tell a link all that the job wants of its worker; of a gang that is not whole, nothing yet."""
    desired = []
    here = ledger.places.get(place, {}) if ledger.assembly is Assembly.NONE else {}
    for uid, index in here.items():
        attempt = latest_attempt(ledger, index)
        order = run_order(ledger, index, uid, attempt.number, place_of(ledger, index))
        move = ledger.moves.get(uid)
        stage = Stage.RUNS if move is None else move.stage
        # One that is RESUMING has not begun with this worker, as far as anybody but that knows.
        started = attempt.started_wall_ns > 0 and stage is not Stage.RESUMING
        returning = move is not None and stage is Stage.RESUMING and move.returning
        desired.append(Desired(order, started, stop_for(ledger, attempt), stage in SUSPENDING, returning))
    return Tell(link_of(ctx, place[0]), DesiredOn(ledger.job_id, place[1], tuple(desired)))


def runs(ledger: JobLedger, uids: Iterable[str], ctx: Context) -> Iterator[Command]:
    """Have live attempts run, each worker's in one message."""
    orders: dict[Place, list[RunOrder]] = {}
    for uid in uids:
        index = ledger.live[uid]
        attempt = latest_attempt(ledger, index)
        place = (attempt.worker_id, attempt.incarnation)
        orders.setdefault(place, []).append(run_order(ledger, index, uid, attempt.number, place_of(ledger, index)))
    for (worker_id, incarnation), run in orders.items():
        yield Tell(link_of(ctx, worker_id), RunAttempts(incarnation, tuple(run)))


def stops(ledger: JobLedger, uids: Iterable[str], ending: Ending, ctx: Context) -> Iterator[Command]:
    """Have live attempts stopped, each worker's in one message."""
    by_place: dict[Place, list[str]] = {}
    for uid in uids:
        attempt = latest_attempt(ledger, ledger.live[uid])
        by_place.setdefault((attempt.worker_id, attempt.incarnation), []).append(uid)
    for (worker_id, incarnation), stopped in by_place.items():
        yield Tell(link_of(ctx, worker_id), StopAttempts(incarnation, tuple(stopped), ending))
