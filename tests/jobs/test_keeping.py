"""Checkpoints that are made of attempts while they run: what a ledger knows of them, and where attempts go back to."""

import attrs
import pytest
from jobs_world import command_spec

from iriscw._errors import InvalidArgument
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.keeping.copies import copy_key
from iriscw.jobs.keeping.going_back import RETURNS, is_passed_over, may_go_back, passed_over
from iriscw.jobs.keeping.records import CheckpointPassedOver, CopyBegan, CopyFailed, CopyMade, WentBack
from iriscw.jobs.lifecycle import Judgement
from iriscw.jobs.model import MIN_CHECKPOINT_EVERY_NS, AttemptEnd, Ending, EntrypointKind, TaskState, check_spec
from iriscw.jobs.records import AttemptAdvanced, AttemptEnded, AttemptPlaced
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.moves import resumption_of
from iriscw.jobs.suspension.records import AttemptResumed, AttemptResuming, AttemptUnplaced

EVERY = MIN_CHECKPOINT_EVERY_NS
FAILED = AttemptEnd(Ending.FAILED, exit_code=-9)


def ledger(*facts):
    """Return a job of one task that runs and is checkpointed, after these facts."""
    made = JobLedger("job-a", 1, command_spec(checkpoint_every_ns=EVERY, retry_from_checkpoint=True), 1)
    for fact in (AttemptPlaced(0, "u", 1, "w", "a", 2), AttemptAdvanced(0, "u", TaskState.RUNNING, 3), *facts):
        evolve(made, fact)
    return made


def copied(number):
    """Return the facts of a whole copy."""
    began = CopyBegan(0, "u", 10 * number, "/w/u", (("http", 80),), "h", 3, 0)
    return began, CopyMade(0, "u", f"ck-{number}", "n", 10 * number + 5)


def back(number):
    """Return the fact that it goes back."""
    return WentBack(0, "u", number, f"ck-{number}", "n", FAILED, True, False, 77, 100)


COPIES = (*copied(1), *copied(2), *copied(3))


def same(made):
    """Return what its snapshot comes to."""
    again = JobLedger(made.job_id, made.order, made.spec, made.submitted_wall_ns)
    for fact in compact(made):
        evolve(again, fact)
    return again


def test_the_newest_are_kept():
    """An older one is to be removed once a newer one is complete, and not before."""
    before = ledger(*COPIES[:-1])
    assert [each.number for each in before.copies["u"].kept] == [1, 2]
    assert before.drops == {}
    after = ledger(*COPIES)
    assert [each.number for each in after.copies["u"].kept] == [2, 3]
    assert [drop.checkpoint for drop in after.drops.values()] == ["ck-1"]


def test_one_that_was_not_made_costs_none():
    """Of one of which nobody can say what became, what it may have made is to be removed."""
    made = ledger(*copied(1), CopyBegan(0, "u", 20, "/w/u", (), "h", 3, 0), CopyFailed(0, "u", "why", True, 25))
    assert [each.number for each in made.copies["u"].kept] == [1]
    assert [*made.drops] == [copy_key("u", 2)]


def test_it_goes_back_as_the_same_attempt():
    """It has no worker, then a new grant; its checkpoint is kept; time that is done again counts for nothing."""
    made = ledger(*COPIES, back(3))
    move = made.moves["u"]
    assert (move.stage, move.checkpoint, move.wanted, move.suspended_wall_ns) == (Stage.SUSPENDED, "ck-3", True, 30)
    assert ([*made.live], [*made.away], made.failures) == ([], ["u"], 1)
    evolve(made, AttemptResuming(0, "u", "v", "b", "g", 110, "n"))
    given = resumption_of(made.moves["u"], ())
    assert (given.anew, given.log_offset, given.folder) == (True, 77, "/w/u")
    evolve(made, AttemptResumed(0, "u", 130))
    assert made.moves["u"].paused_ns == 100
    assert [drop.checkpoint for drop in made.drops.values()] == ["ck-1"]


@pytest.mark.parametrize("facts", [COPIES, (*COPIES[:-1],), (*COPIES, back(3))])
def test_a_snapshot_says_the_same(facts):
    """Copies that are kept, one that is under way, and one to which it goes back."""
    made = ledger(*facts)
    again = same(made)
    assert (again.copies, again.moves, again.drops, again.away) == (made.copies, made.moves, made.drops, made.away)
    assert [*compact(again)] == [*compact(made)]


def test_what_is_over_leaves_nothing():
    """All that is kept of an attempt is to be removed when that ends, and so is what is being made."""
    made = ledger(*COPIES, CopyBegan(0, "u", 40, "/w/u", (), "h", 3, 0))
    evolve(made, AttemptEnded(0, "u", FAILED, TaskState.PENDING, 50, failure=True))
    assert [*made.drops] == [copy_key("u", number) for number in (1, 2, 3, 4)]


def test_what_is_passed_over():
    """One that its machine refuses goes alone; where nobody comes, all of that machine go."""
    made = ledger(*COPIES, back(3))
    copies = made.copies["u"]
    assert [each.number for each in passed_over(copies, made.moves["u"])] == [2, 3]
    for _ in range(RETURNS):
        evolve(made, AttemptResuming(0, "u", "v", "b", "g", 110, "n"))
        assert not is_passed_over(made.moves["u"])
        evolve(made, AttemptUnplaced(0, "u", "n", 120, 115))
    assert [each.number for each in passed_over(copies, made.moves["u"])] == [3]
    evolve(made, CheckpointPassedOver(0, "u", 3, "why", 120))
    assert [each.number for each in made.copies["u"].kept] == [2]


@pytest.mark.parametrize(
    ("kind", "exit_code", "goes"), [("COMMAND", 1, True), ("CALLABLE", 1, False), ("CALLABLE", -9, True)]
)
def test_what_a_callable_raised_is_its_result(kind, exit_code, goes):
    """An attempt has one result: a callable that raised begins from nothing, one that was killed goes back."""
    made = ledger(*COPIES)
    made.spec = attrs.evolve(made.spec, entrypoint=attrs.evolve(made.spec.entrypoint, kind=EntrypointKind[kind]))
    assert may_go_back(made, Ending.FAILED, Judgement(TaskState.PENDING, failure=True), exit_code) is goes


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint_every_ns": EVERY - 1},
        {"retry_from_checkpoint": True},
        {"checkpoint_every_ns": EVERY, "keep_checkpoints": 0},
        {"checkpoint_every_ns": EVERY, "group_by": "slice-id"},
    ],
)
def test_what_cannot_be_asked_for(wrong):
    """Too often, from nothing, none kept, and of a gang."""
    with pytest.raises(InvalidArgument):
        check_spec(command_spec(**wrong))
