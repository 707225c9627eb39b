"""What is journaled can be read again."""

import json
import re

import attrs
import pytest
from jobs_world import command_spec

from iriscw.cloud.model import Constraint, Mode, Op
from iriscw.jobs import records
from iriscw.jobs.model import AttemptEnd, Band, Ending, JobState, Preemption, TaskState, canonical_spec
from iriscw.jobs.records import load_spec, store_spec
from iriscw.jobs.suspension import moves
from iriscw.jobs.suspension.moves import Move, keep
from iriscw.jobs.suspension.records import AttemptYields, SuspensionAsked
from iriscw.jobs.traits import Fault
from iriscw.journal.codec import Mismatch, codec_for
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.records import REGISTRY

SPEC = canonical_spec(
    command_spec(
        environment=(("A", "é"),),
        constraints=(Constraint("zone", Op.IN, ("a", 2)), Constraint("gpu", Op.EXISTS, (), Mode.PREFERRED)),
        group_by="slice-id",
        band=Band.BATCH,
        ports=("http",),
    )
)
FACTS = [
    records.JobAccepted("job-a", 3, "key", store_spec(SPEC), 5, "job-b"),
    records.JobShown("job-a", JobState.RUNNING),
    records.JobFinished("job-a", JobState.KILLED, "why", 6),
    records.JobForgotten("job-a"),
    records.JobSuperseded("job-a"),
    records.JobsCounted(7),
    records.AttemptPlaced(1, "u", 2, "w", "a", 3),
    records.GangMet("u", "10.0.0.1", 20_000),
    records.AttemptAdvanced(1, "u", TaskState.RUNNING, 4),
    records.AttemptEquipped(1, "u", ("GPU-1", "GPU-2")),
    records.AttemptOverran(1, "u", 5),
    records.AttemptEnded(
        1, "u", AttemptEnd(Ending.FAILED, exit_code=-9), TaskState.PENDING, 6, failure=True, log_offset=7
    ),
    records.LogsSettled(1, "u", complete=False),
    records.WorkerSuspected("w", "a", "silent", 1),
    records.WorkerReturned("w", "a"),
    records.VerdictReached(JobState.FAILED, TaskState.KILLED, "why", 1),
    records.JobEnded(JobState.FAILED, "why", 2),
    records.JobBegan(9),
    AttemptYields(1, "u", "serve (production)", True, 9),
    records.AttemptKept(
        *(1, "u", 2, "w", "a", TaskState.RUNNING, 3, 4, 5),
        *(AttemptEnd(Ending.FAILED, 1, Fault("", "a\nboom", sentence="Why: boom")), 7, False),
    ),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_round_trip(fact):
    """Each record is read as it was written."""
    text = REGISTRY.encode(fact)
    entry = Entry(1, "/jobs", EntryKind.RECORD, text)
    assert REGISTRY.decode(entry) == [fact]


@pytest.mark.parametrize("state", [*JobState, *TaskState, *Ending])
def test_states_are_journaled_by_value(state):
    """What a state is written as never changes, and it is read as the same member, not as a text."""
    codec = codec_for(type(state))
    assert codec.encode(state) == f'"{state.name}"'
    assert codec.decode(state.name) is state
    with pytest.raises(Mismatch):
        codec.encode(state.name)


def test_an_older_journal_is_read():
    """A record from before faults and snapshots without them are read as having none."""
    ended = (
        '["jobs.attempt_ended",1,{"index":1,"uid":"u","ending":"FAILED","then":"FAILED","wall_ns":6,"failure":true,'
        '"preemption":false,"unstarted":false,"exit_code":1,"reason":"boom","log_offset":7,"logs_due":false}]'
    )
    (read,) = REGISTRY.decode(Entry(1, "/jobs/job-a", EntryKind.RECORD, ended))
    assert read.end == AttemptEnd(Ending.FAILED, 1, Fault("", "boom"))
    kept = (
        '["jobs.task_kept",1,{"index":1,"state":"RUNNING","since_wall_ns":1,"failures":0,"preemptions":0,"unstarted":0,'
        '"logs_due":false,"logs_lost":false,"uid":"u","number":1,"worker_id":"w","incarnation":"a",'
        '"attempt_state":"RUNNING","placed_wall_ns":1,"started_wall_ns":2,"ended_wall_ns":0,"ending":null,'
        '"exit_code":null,"reason":"","log_offset":0,"overran":false}]'
    )
    (read,) = REGISTRY.decode(Entry(1, "/jobs/job-a", EntryKind.RECORD, kept))
    assert (read.started_wall_ns, read.end) == (2, None)


@pytest.mark.parametrize(("said", "reason", "details"), [("", "", ""), ("boom", "boom", ""), ("X: y", "X: y", "a\nb")])
def test_an_end_of_before_is_gathered(said, reason, details):
    """Version 1 kept an end in parts, in snapshots as well; what it said reads as it did."""
    parts = f'"ending":"FAILED","exit_code":-9,"reason":"{said}","fault":{json.dumps(details)}'
    kept = (
        '["jobs.attempt_kept",1,{"index":1,"uid":"u","number":1,"worker_id":"w","incarnation":"a",'
        '"attempt_state":"RUNNING","placed_wall_ns":1,"started_wall_ns":2,"ended_wall_ns":3,'
        f'{parts},"log_offset":0,"overran":false}}]'
    )
    (read,) = REGISTRY.decode(Entry(1, "/jobs/job-a", EntryKind.RECORD, kept))
    end = read.end
    assert (end.ending, end.exit_code, end.reason, end.details) == (Ending.FAILED, -9, reason, details)


def test_spec_round_trip():
    """A canonical specification is stored without loss."""
    assert load_spec(store_spec(SPEC)) == SPEC


def test_stored_spec_has_every_field():
    """A field added to the specification must be journaled too."""
    names = [[field.name for field in attrs.fields(kind)] for kind in (records.JobSpec, records.StoredSpec)]
    assert names[0] == names[1]


def test_jobs_and_suspensions_of_before_know_nothing_of_giving_way():
    """A job that was accepted before has its tasks killed, and what was suspended is so by somebody's order."""
    fields = attrs.asdict(store_spec(attrs.evolve(SPEC, preemption=Preemption.NEVER)), recurse=False)
    del fields["preemption"]
    assert load_spec(records.StoredSpec(**fields)).preemption is Preemption.KILL
    asked = (
        '["jobs.suspension_asked",1,{"index":1,"uid":"u","key":"k","tier":"","force":false,"labels":[],"wall_ns":6,'
        '"store":false}]'
    )
    (read,) = REGISTRY.decode(Entry(1, "/jobs/job-a", EntryKind.RECORD, asked))
    assert read == SuspensionAsked(1, "u", "k", "", False, (), 6)
    kept = REGISTRY.encode(keep(1, attrs.evolve(Move(), key="k")))
    for field in ("yields_to", "stopped_to_yield", "yielding"):
        kept = re.sub(rf',"{field}":(""|false)', "", kept)
    assert "yield" not in kept
    (read,) = REGISTRY.decode(Entry(1, "/jobs/job-a", EntryKind.RECORD, kept))
    assert moves.kept(read) == Move(key="k")


def test_jobs_of_before_go_on_without_their_parents():
    """A job that was accepted before children ended with their parents was promised another life, and keeps it."""
    fields = attrs.asdict(store_spec(attrs.evolve(SPEC, parent_job_id="job-p")), recurse=False)
    del fields["detached"]
    assert load_spec(records.StoredSpec(**fields)).detached
    fields["parent_job_id"] = ""
    assert not load_spec(records.StoredSpec(**fields)).detached
