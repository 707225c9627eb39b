"""What a wish and a word come to: every case, and what it counts against (INV-J5)."""

from itertools import product

import attrs
import pytest
from jobs_world import command_spec

from iriscw.jobs.lifecycle import CONSEQUENCES, LOST, Budget, judge
from iriscw.jobs.links.agreement import (
    AGREEMENT,
    Step,
    Told,
    Wish,
    Word,
    step_for,
    step_for_unwanted,
    tell_of,
    wish_for,
    word_of,
)
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, Suspension, TaskState

SPEC = command_spec(max_retries_failure=2, max_retries_preemption=2)
ORDERED = (None, *Ending)
ALIVE = tuple(Observation("u", state) for state in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING))
ENDED = tuple(Observation("u", TaskState.RUNNING, AttemptEnd(ending), True) for ending in Ending)


def judged(told, *, started, verdict=None):
    """Judge what a job is told, as it does."""
    started = started or told.started
    return judge(SPEC, verdict, told.ending, started=started, failures=0, preemptions=0, unstarted=0)


def test_the_table_is_complete():
    """Each wish meets each word; only what nobody wants and nobody knows is not a case."""
    cases = set(product(Wish, Word)) - {(Wish.NOTHING, Word.FRESH), (Wish.NOTHING, Word.GONE)}
    assert set(AGREEMENT) == cases


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("ordered", ORDERED)
def test_who_saw_the_end_says_what_it_was(ordered, started):
    """The worker's word is told as it is, whatever was ordered, and whether it lives or has ended."""
    for seen in (*ALIVE, *ENDED):
        assert tell_of("u", ordered, seen, started=started) is seen
        step, told = AGREEMENT[wish_for(ordered), word_of(seen, started=started)]
        assert told is Told.WORD
        assert step_for(ordered, seen, started=started) is step


@pytest.mark.parametrize("ordered", ORDERED)
def test_what_had_started_and_is_unknown_is_lost(ordered):
    """An order is no observation: it counts as the infrastructure's doing, and its log is never called complete."""
    told = tell_of("u", ordered, None, started=True)
    assert (told.uid, told.ending, told.started) == ("u", Ending.MISSING, True)
    assert told.ending in LOST
    assert told.reason
    for verdict in (None, *(state for state in JobState if state.value in ("FAILED", "KILLED", "WORKER_FAILED"))):
        result = judged(told, started=True, verdict=verdict)
        assert (result.failure, result.preemption, result.unstarted) == (False, True, False)
    assert step_for(ordered, None, started=True) is Step.LEAVE


@pytest.mark.parametrize("ordered", ORDERED)
def test_what_never_started_counts_against_nothing(ordered):
    """It is ordered (again), or over with the ending of the stop."""
    told = tell_of("u", ordered, None, started=False)
    step = step_for(ordered, None, started=False)
    if ordered is None:
        assert (told, step) == (None, Step.RUN)
        return
    assert (told.ending, told.started, step) == (ordered, False, Step.LEAVE)
    result = judged(told, started=False)
    assert not result.failure
    assert not result.preemption


def test_a_failure_is_always_somebodys_word():
    """Of all cases, those that count as a failure are the ones in which a worker says so."""
    for ordered, seen, started in product(ORDERED, (None, *ENDED), (True, False)):
        told = tell_of("u", ordered, seen, started=started)
        if told is None:
            continue
        by_word = seen is not None and CONSEQUENCES[seen.ending].budget is Budget.FAILURE
        assert judged(told, started=started).failure == by_word


def test_nothing_runs_that_may_have_run():
    """Only what lives, or never started, is ordered to run; only what lives, to stop; only what is over is released."""
    for (wish, word), (step, told) in AGREEMENT.items():
        if step is Step.RUN:
            assert wish in (Wish.RUN, Wish.FREEZE, Wish.RETURN)
            assert wish is not Wish.RETURN or word is Word.FRESH
            assert word in (Word.ALIVE, Word.FRESH, Word.SUSPENDED)
        if step is Step.STOP:
            assert wish is not Wish.RUN
            assert word in (Word.ALIVE, Word.SUSPENDING, Word.SUSPENDED)
        if step is Step.RELEASE:
            assert wish is Wish.NOTHING
            assert word in (Word.SUSPENDED, Word.ENDED)
        assert (told is Told.WORD) == (word not in (Word.FRESH, Word.GONE) and wish is not Wish.NOTHING)


def test_what_is_suspended_is_nobodys_to_stop():
    """Unless its job says so: another worker may have it. It is frozen only where that is wanted, and told to go on."""
    suspended = Observation("u", TaskState.RUNNING, suspension=Suspension.SUSPENDED)
    assert step_for_unwanted(suspended) is Step.RELEASE
    assert step_for_unwanted(attrs.evolve(suspended, suspension=Suspension.SUSPENDING)) is Step.STOP
    assert step_for_unwanted(attrs.evolve(suspended, suspension=Suspension.RESUMING)) is Step.STOP
    for (wish, word), (step, _) in AGREEMENT.items():
        assert (step is Step.FREEZE) == ((wish, word) == (Wish.FREEZE, Word.ALIVE))
        assert (step is Step.GO_ON) == (wish in (Wish.RUN, Wish.RETURN) and word is Word.SUSPENDING)
        assert (step is Step.WITHDRAW) == ((wish, word) == (Wish.RETURN, Word.ALIVE))
    alive = Observation("u", TaskState.RUNNING)
    assert step_for(None, alive, started=True, freeze=True) is Step.FREEZE
    assert step_for(Ending.KILLED, alive, started=True, freeze=True) is Step.STOP


def test_words():
    """A word is read from what is seen; without it, from whether the attempt had started."""
    assert [word_of(seen, started=False) for seen in (ALIVE[0], ENDED[0], None)] == [Word.ALIVE, Word.ENDED, Word.FRESH]
    assert word_of(None, started=True) is Word.GONE
