"""Which attempts are here: one actor each, a limit, and a memory of those that were released."""

import sys
from pathlib import Path

from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import Ctx

from iriscw.jobs.model import Ending, Resumption
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import Decision, Forget, Run, SetTimer, Spawn, StopChild, StopReason, Tell, Terminated
from iriscw.worker.effects import DropStrangers
from iriscw.worker.messages import (
    ATTEMPTS,
    AttemptReleased,
    AttemptReport,
    ContinueAttempt,
    ForgetAttempt,
    Holding,
    ReportNow,
    Resync,
    RunAttempt,
    StopAll,
    StopAttempt,
    SuspendAttempt,
)
from iriscw.worker.model import MAX_ATTEMPTS, Order, StopCause
from iriscw.worker.records import AttemptDropped, AttemptKnown
from iriscw.worker.registry import MAX_RELEASED, AttemptRegistry, AttemptRegistryDecisions, compact, evolve

DECISIONS = AttemptRegistryDecisions(lambda uid: ChildSpec(uid, Behavior()))
RULES = DECISIONS.rules()


def tell(registry: AttemptRegistry, message: object) -> tuple:
    outcome = RULES[type(message)](registry, message, Ctx())
    if isinstance(outcome, Decision):
        for record in outcome.records:
            evolve(registry, record)
        return outcome.commands
    return outcome or ()


def run(uid: str) -> RunAttempt:
    return RunAttempt(Order(uid, "00", "job-a/0", 0, 0))


def replayed(*records: object) -> AttemptRegistry:
    registry = AttemptRegistry()
    for record in records:
        evolve(registry, record)
    return registry


def test_an_attempt_gets_one_actor() -> None:
    """The first order spawns it, later ones are passed on."""
    registry = AttemptRegistry()
    assert [type(each) for each in tell(registry, run("a1"))] == [Spawn, Tell]
    assert not any(isinstance(each, Spawn) for each in tell(registry, run("a1")))
    assert list(registry.known) == ["a1"]


def test_a_released_uid_never_comes_back() -> None:
    """Its order is answered MISSING; its actor is stopped, and its records go once it is gone."""
    registry = replayed(AttemptKnown("a1"))
    commands = tell(registry, AttemptReleased("a1"))
    assert StopChild("a1") in commands
    assert tell(registry, Terminated(ATTEMPTS / "a1", StopReason.NORMAL)) == (Forget("a1"),)
    (answer,) = tell(registry, run("a1"))
    assert answer.message.observation.ending is Ending.MISSING


def test_what_was_suspended_here_comes_back() -> None:
    """With leave a released uid is known again, once its actor of before is gone; without, it never starts."""
    order = RunAttempt(Order("a1", "", "job-a/0", 0, 0, resumption=Resumption("g1", "/w/a1")))
    registry = replayed(AttemptKnown("a1"))
    tell(registry, AttemptReleased("a1"))
    (timer,) = tell(registry, order)
    assert isinstance(timer, SetTimer)
    tell(registry, Terminated(ATTEMPTS / "a1", StopReason.NORMAL))
    (answer,) = tell(registry, run("a1"))
    assert answer.message.observation.ending is Ending.MISSING
    assert [type(each) for each in tell(registry, timer.message)] == [Spawn, Tell]
    assert "a1" not in registry.released
    for message in (SuspendAttempt("a1"), ContinueAttempt("a1")):
        assert [each.message for each in tell(registry, message)] == [message]
        assert tell(AttemptRegistry(), message) == ()


def test_a_worker_holds_so_many_and_no_more() -> None:
    """Beyond the limit an order ends at once, by name; nothing is known of it."""
    registry = replayed(*(AttemptKnown(f"a{number}") for number in range(MAX_ATTEMPTS)))
    (answer,) = tell(registry, run("one more"))
    assert isinstance(answer.message, AttemptReport)
    assert answer.message.observation.end.fault.kind == "TooManyAttempts"
    assert "one more" not in registry.known


def test_what_is_not_here_is_released_and_not_stopped() -> None:
    """A release of an unknown uid is confirmed; a stop of one changes nothing."""
    (answer,) = tell(AttemptRegistry(), ForgetAttempt("a1"))
    assert answer.message == AttemptReleased("a1")
    assert tell(AttemptRegistry(), StopAttempt("a1", StopCause.KILLED, 0)) == ()


def test_resync_and_stop_all_reach_everyone() -> None:
    """All are named, and each is told."""
    registry = replayed(AttemptKnown("a1"), AttemptKnown("a2"))
    assert [each.message for each in tell(registry, Resync())] == [Holding(("a1", "a2")), ReportNow(), ReportNow()]
    stops = tell(registry, StopAll(StopCause.LEASE, 3))
    assert [each.message for each in stops] == [StopAttempt(uid, StopCause.LEASE, 3) for uid in ("a1", "a2")]


def test_a_new_process_looks_for_strangers() -> None:
    """Every known attempt gets its actor, and whatever else runs is ended."""
    commands = list(DECISIONS.resume(replayed(AttemptKnown("a1")), Ctx()))
    assert [type(each) for each in commands] == [Spawn, Run]
    assert commands[-1].effect == DropStrangers(("a1",))


def test_released_uids_are_bounded() -> None:
    """The oldest are forgotten first."""
    registry = replayed(*(AttemptDropped(f"a{number}") for number in range(MAX_RELEASED + 1)))
    assert len(registry.released) == MAX_RELEASED
    assert "a0" not in registry.released


NUMBERS = st.lists(st.tuples(st.sampled_from([AttemptKnown, AttemptDropped]), st.integers(0, 5)))


@given(NUMBERS)
def test_a_snapshot_says_the_same(steps: list) -> None:
    """Replaying what ``compact`` gives leads to an equal state, in the same order."""
    registry = replayed(*(kind(f"a{number}") for kind, number in steps))
    again = replayed(*compact(registry))
    assert list(again.known) == list(registry.known)
    assert list(again.released) == list(registry.released)
