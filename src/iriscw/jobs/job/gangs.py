"""How a gang is placed in parts and still runs whole or not at all (INV-J4, INV-R10).

A gang of more than ``STEP_ATTEMPTS`` members is more than one decision of its job may record. The scheduler takes room
for all of it at once, or for none, and tells the job in parts. The job's ledger says where it stands::

    NONE --first part--> GATHERING --last part--> NONE: whole, and started part by part
                             |
                             '--a member's worker is lost, the job ends, a part is missing--> DISBANDING --> NONE

*Nothing is ordered before the last part is on the disk.* While a gang gathers, links are told of none of its members,
whoever asks; a worker can neither run one nor know of it. So a gang that does not become whole is taken back by its
job alone, without a word to anybody: none of its members ever started, and none counts against a budget.

*A part cannot be missing for long.* Parts leave the scheduler in one decision, so no question of it comes between
them: a job that is asked for a report while it gathers knows that a part was lost (the mailbox was full, or the
controller died in between), and disbands. Parts that still come are declined, their room goes back.

*Whole is whole.* From the record of the last part on the gang is like any other: its orders leave in steps, and a new
incarnation of the job tells links all of it. A member that ends before others were ordered breaks the gang: these are
ordered to run and to stop in one go, so that their workers have the last word on them, as on any attempt.

A gang within one step is placed by one decision, and none of this exists for it.

**An end may come before its cause.** When a machine dies, the other members see their connections close within a second
and end by themselves, with an exit code or an exception; that the machine is gone is known much later. So a member's
failure is not believed before the rest of its gang is over: it is asked to stop, as for any failure, and the failed
member lives on in the ledger meanwhile (its worker keeps the end until it is taken). If it turns out that another
member was lost to the infrastructure, what the failed one did is its consequence and counts against nothing; otherwise
it is what it said. That is said when nobody is left who could still be lost: a worker that says how its member ended
lives, and if its machine goes later, nobody can tell whether that was the cause. To wait for that would hold back
every failure for as long as a silent worker is waited for.
"""

from __future__ import annotations

import attrs

from iriscw.jobs.job import views
from iriscw.jobs.job.desired_attempts import latest_attempt, runs, scheduler_of, stop_for, stops
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.lifecycle import CONSEQUENCES, Budget
from iriscw.jobs.messages import AttemptsOver, Disband, Placed, StartRest
from iriscw.jobs.model import Assembly, AttemptEnd, Ending, Observation, TaskState
from iriscw.jobs.records import AttemptPlaced, GangAssembly
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import Command, Context, Continue, Decision, Emit, Tell, replace

GAVE_WAY = "it gave way to "
"""How the reason of an attempt begins that gave way; the job follows that it gave way to."""

NOT_WHOLE = "its gang could not be placed as a whole"


def must_wait(ledger: JobLedger, seen: Observation) -> bool:
    """Tell whether the end of an attempt may be the consequence of another one's that is not known yet."""
    return (
        ledger.gang
        and ledger.open
        and ledger.assembly is Assembly.NONE
        and seen.ending is not None
        and CONSEQUENCES[seen.ending].budget is Budget.FAILURE
    )


def lost_member(ledger: JobLedger) -> int | None:
    """Return the index of a member whose latest attempt was lost to the infrastructure; None: there is none.

    All members but those that succeeded are placed together, so their latest attempts are of one run.
    """
    for index, task in ledger.tasks.items():
        ending = None if task.attempt is None else task.attempt.ending
        if ending is not None and CONSEQUENCES[ending].budget is Budget.PREEMPTION:
            return index
    return None


def believed(seen: Observation, lost: int | None) -> Observation:
    """Say how a member ended that said it failed."""
    if lost is None:
        return seen
    said = seen.reason or (f"exit code {seen.exit_code}" if seen.exit_code is not None else "it failed")
    sentence = f"{said}, as task {lost} of its gang was lost"
    fault = Fault("", f"{seen.details}\n{sentence}" if seen.details else sentence)
    return replace(seen, end=AttemptEnd(Ending.GANG_STOPPED, seen.exit_code, fault))


def because_of(ledger: JobLedger, seen: Observation) -> Observation:
    """Say of a member that was stopped because of whom: its worker knows only that it was told to end it."""
    if seen.end is None or seen.end.ending is not Ending.GANG_STOPPED:
        return seen
    failed = next((ledger.live[uid] for uid in ledger.unjudged if uid in ledger.live), None)
    who = "another task of its gang ended" if failed is None else f"task {failed} of its gang failed"
    yields_to = _yields_to(ledger)
    who = f"its gang gave way to {yields_to}" if yields_to else who
    return replace(seen, end=attrs.evolve(seen.end, fault=Fault("", f"stopped because {who}")))


def _yields_to(ledger: JobLedger) -> str:
    """Say to whom a gang gives way; empty if it does not. Of its members the first that has not succeeded says so."""
    for task in ledger.tasks.values():
        attempt = task.attempt
        if attempt is None or attempt.ending is Ending.SUCCEEDED:
            continue
        move = ledger.moves.get(attempt.uid)
        if move is not None:
            return move.yields_to
        return attempt.reason.removeprefix(GAVE_WAY) if attempt.ending is Ending.PREEMPTED else ""
    return ""


def in_parts(message: Placed) -> bool:
    """Tell whether this is a part of a gang, and not all that is placed."""
    return message.part > 0 or message.more


def part_placed(ledger: JobLedger, message: Placed, ctx: Context) -> Decision:
    """Record a part of a gang; after the last one, start it."""
    expected = Assembly.GATHERING if message.part else Assembly.NONE
    waits = all(ledger.state_of(each.index) is TaskState.PENDING for each in message.placements)
    if not (ledger.open and waits and ledger.assembly is expected):
        return _decline(ledger, message, ctx)
    records: list[object] = [] if message.part else [GangAssembly(Assembly.GATHERING)]
    commands: list[Command] = []
    for each in message.placements:
        task = ledger.tasks.get(each.index)
        number = 1 if task is None or task.attempt is None else task.attempt.number + 1
        records.append(AttemptPlaced(each.index, each.uid, number, each.worker_id, each.incarnation, ctx.wall))
        change = views.task_changed(ledger, each.index, TaskState.ASSIGNED, each.uid, each.worker_id, wall_ns=ctx.wall)
        commands.append(Emit(change))
    if not message.more:
        uids = (*ledger.live, *(each.uid for each in message.placements))
        whole = len(uids) + ledger.counts.get(TaskState.SUCCEEDED, 0) == ledger.spec.replicas
        records.append(GangAssembly(Assembly.NONE if whole else Assembly.DISBANDING))
        commands.append(Continue(StartRest(uids, 0) if whole else Disband()))
    return Decision(records=tuple(records), commands=tuple(commands))


def _decline(ledger: JobLedger, message: Placed, ctx: Context) -> Decision:
    uids = tuple(each.uid for each in message.placements)
    over = Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, uids))
    if ledger.assembly is not Assembly.GATHERING:
        return Decision(commands=(over,))
    return Decision(records=(GangAssembly(Assembly.DISBANDING),), commands=(over, Continue(Disband())))


def start_rest(ledger: JobLedger, message: StartRest, ctx: Context) -> tuple[Command, ...]:
    """Order some members of a whole gang to run, and go on."""
    end = message.first + STEP_ATTEMPTS
    uids = [uid for uid in message.uids[message.first : end] if uid in ledger.live]
    commands = list(runs(ledger, uids, ctx))
    endings: dict[Ending, list[str]] = {}
    for uid in uids:
        ending = stop_for(ledger, latest_attempt(ledger, ledger.live[uid]))
        if ending is not None:  # of a gang that gives way one member ends otherwise than the rest
            endings.setdefault(ending, []).append(uid)
    for ending, stopped in endings.items():
        commands += stops(ledger, stopped, ending, ctx)
    if end < len(message.uids):
        commands.append(Continue(StartRest(message.uids, end)))
    return tuple(commands)
