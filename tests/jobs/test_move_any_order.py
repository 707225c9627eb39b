"""A job whose tasks are suspended and resumed, in any order of events, through the death of its actor at any moment."""

from __future__ import annotations

import random
from collections import Counter

from job_walk import Walk
from jobs_world import command_spec

from iriscw.jobs.job.desired_attempts import latest_attempt, stop_for
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.messages import AttemptsLost
from iriscw.jobs.model import Observation, Suspension, TaskState
from iriscw.jobs.suspension.effects import DropCheckpoint, Frozen, FrozenAttempt
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask
from iriscw.jobs.suspension.model import SUSPENDING, Stage
from iriscw.jobs.suspension.moves import waits_for_worker
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptGivenUp,
    AttemptResumed,
    AttemptStored,
    AttemptSuspended,
    AttemptUnplaced,
    StoreFailed,
    SuspensionUndone,
    ThawRefused,
    ThawUndone,
)
from iriscw.runtime.vocabulary import SECOND

SEEDS = range(80)
THAW_ENDS = (ThawUndone, ThawRefused, AttemptUnplaced)
STORE_ENDS = (AttemptStored, StoreFailed)
STEPS = 60
PENDING = TaskState.PENDING
MOVING = (
    "suspend",
    "resume",
    "returns",
    "says",
    "('freeze'",
    "('thaw'",
    "('store'",
    "('drop'",
    "RUNNING",
    "still",
    "place",
)
"""Words in the names of events that have to do with suspending."""


def histories(seed):
    """Yield a walk after each of its steps: mostly what has to do with suspending, else anything."""
    rng = random.Random(seed)
    spec = command_spec(
        replicas=rng.choice((1, 1, 2, 3)),
        max_retries_failure=rng.choice((0, 1)),
        max_retries_preemption=rng.choice((0, 2)),
        timeout_ns=rng.choice((0, 50 * SECOND)),
    )
    walk = Walk(spec, suspends=True, dies=True)
    if seed % 4 == 0:
        is_coming_back(walk)
    for _ in range(STEPS):
        choices = dict(walk.choices())
        moving = [name for name in choices if any(word in name for word in MOVING)]
        name = rng.choice(moving if moving and rng.random() < 0.85 else list(choices))
        if name != "terminate" or rng.random() < 0.2:
            choices[name]()
            yield walk


def is_coming_back(walk):
    """Have the first task be suspended on one worker, and come back on the other: the way there is long."""
    walk.place(0, "w0")
    walk.see("u1", Observation("u1", TaskState.RUNNING, started=True))
    walk.ask(SuspendTask, 0)
    walk.word("u1", Suspension.SUSPENDING)
    walk.conclude(("freeze", 0, "u1"), FrozenAttempt(Frozen.FROZEN, "ck", "node"))
    walk.word("u1", Suspension.SUSPENDED)
    walk.ask(ResumeTask, 0)
    walk.return_to("u1", "w1")
    walk.word("u1", Suspension.RESUMING)


def made_of(ledger, records):
    """Return what these records make of a job."""
    made = JobLedger(ledger.job_id, ledger.order, ledger.spec, ledger.submitted_wall_ns)
    for record in records:
        evolve(made, record)
    return made


def test_any_history():
    """After each step snapshots, the scheduler, calls and clocks, and workers know how far each attempt is; in the end
    nothing is left. Together the histories lead through all stages, with and without a worker.
    """
    stages = Counter()
    for seed in SEEDS:
        for walk in histories(seed):
            is_kept(walk)
            the_scheduler_knows(walk)
            is_waited_for(walk)
            workers_have_what_lives(walk)
        stages.update(type(each) for each in walk.records)
        walk.catch_up()
        assert {*walk.orders} - {*walk.ledger.away} == {*walk.ledger.live}
        walk.settle()
        ledger = walk.ledger
        assert ledger.ended is not None
        assert (ledger.live, ledger.away, ledger.moves, ledger.drops) == ({}, {}, {}, {})
        assert (walk.room, walk.returns, walk.orders, walk.calls) == ({}, {}, {}, {})
        assert not {key for key in walk.clocks if key[0] in ("move", "thaw")}
    for kind in (
        AttemptSuspended,
        AttemptResumed,
        SuspensionUndone,
        AttemptGivenUp,
        AttemptDeserted,
        *THAW_ENDS,
        *STORE_ENDS,
    ):
        assert stages[kind] > 0, kind


def is_kept(walk):
    """Built again from its records, or from a snapshot, a job is the same: also what is first in line for a timeout."""
    for records in (walk.records, compact(walk.ledger)):
        made = made_of(walk.ledger, records)
        for each in (made, walk.ledger):
            each.counts = {state: count for state, count in each.counts.items() if count or state is PENDING}
        assert made == walk.ledger
        assert [*made.timed.items()] == [*walk.ledger.timed.items()]


def the_scheduler_knows(walk):
    """What is suspended has no room (INV-J3), and those that are to go on wait for some."""
    ledger = walk.ledger
    assert walk.room == ledger.live
    waits = {uid: index for uid, index in ledger.away.items() if waits_for_worker(ledger.moves[uid])}
    assert walk.returns == (waits if ledger.open else {})
    assert not ledger.live.keys() & ledger.away.keys()
    assert {uid for here in ledger.places.values() for uid in here} == {*ledger.live}


def is_waited_for(walk):
    """A freeze or a thaw has been asked for, or a clock runs at which it is; each stage that may last has its limit."""
    ledger = walk.ledger
    drops = {each.key for each in walk.calls.values() if isinstance(each, DropCheckpoint)}
    assert drops == {*ledger.drops}
    for uid, move in ledger.moves.items():
        index = ledger.live.get(uid, ledger.away.get(uid))
        stopped = stop_for(ledger, latest_attempt(ledger, index)) is not None
        if move.stage in (*SUSPENDING, Stage.RESUMING):
            assert ("move", uid) in walk.clocks or stopped
        if move.storing:
            assert ("store", index, uid) in walk.calls or stopped
        if move.stage is Stage.FREEZING and not stopped:
            assert ("freeze", index, uid) in walk.calls
        if move.stage is Stage.RESUMING and move.returning and not (stopped or walk.late() or walk.full):
            assert uid in walk.withdrawing
        elif move.stage is Stage.RESUMING and move.thawing and not stopped and uid not in walk.thawed:
            assert ("thaw", index, uid) in walk.calls or ("thaw", uid) in walk.clocks
    assert {key[2] for key in walk.calls if key[0] in ("freeze", "thaw")} <= {*ledger.live, *ledger.away}
    assert {key[1] for key in walk.clocks if key[0] in ("move", "thaw")} <= {*ledger.live, *ledger.away}


def workers_have_what_lives(walk):
    """And nothing that left them; a worker whose link has no room learns it a little later (INV-J2)."""
    deserted = {each.uid for each in walk.records if isinstance(each, AttemptDeserted)}  # told when they end
    if not (walk.late() or walk.full):
        assert {*walk.orders} - deserted == {*walk.ledger.live} - deserted


def test_only_a_word_about_its_grant_gives_it_back():
    """A worker where it was suspended before may say so late: it has not heard of the grant, and may have it yet."""
    walk = Walk(command_spec(), suspends=True)
    is_coming_back(walk)
    suspended = {"started": True, "suspension": Suspension.SUSPENDED}
    for withdrawn in ("", "another"):
        walk.see("u1", Observation("u1", TaskState.RUNNING, **suspended, withdrawn=withdrawn))
        assert walk.ledger.moves["u1"].stage is Stage.RESUMING
    back = Observation("u1", TaskState.RUNNING, **suspended, withdrawn=walk.has["u1"], withdrawn_reason="other folders")
    walk.see("u1", back)
    assert walk.ledger.moves["u1"].stage is Stage.SUSPENDED
    assert "other folders" in walk.ledger.moves["u1"].reason


def test_a_silent_worker_may_forget_what_came_to_nothing():
    """One that was being frozen when its worker fell silent for good, and was not: if that comes back, it is told."""
    walk = Walk(command_spec(max_retries_preemption=0), suspends=True)
    walk.place(0, "w0")
    walk.see("u1", Observation("u1", TaskState.RUNNING, started=True))
    walk.ask(SuspendTask, 0)
    walk.word("u1", Suspension.SUSPENDING)
    walk.send(AttemptsLost("w0", "a", False, "silent"))
    walk.ring(("lease", "w0", "a"))
    assert (walk.ledger.away, walk.orders) == ({"u1": 0}, {"u1": "run"})
    walk.conclude(("freeze", 0, "u1"), FrozenAttempt(Frozen.UNDONE, reason="no"))
    assert (walk.ledger.away, walk.orders) == ({}, {})
