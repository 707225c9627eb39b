"""Decisions of ``/operations``: what a daemon over a simulated machine does not come to."""

import pytest

from iriscw._errors import InvalidArgument
from iriscw.agent.errors import AgentStopping, OperationUnknown, TooManyOperations
from iriscw.agent.operations import (
    OPERATIONS,
    Asked,
    BeginOperation,
    Claim,
    ClaimAgain,
    CleanUp,
    GiveUpAll,
    OperationAside,
    OperationClosed,
    OperationKind,
    OperationOver,
    OperationsDecisions,
    OperationStage,
    StopOperation,
    taken_up,
)
from iriscw.freeze.messages import CancelOperation, FreezeTree
from iriscw.freeze.model import FreezePlan, TaskIdentity
from iriscw.runtime import Behavior, ChildSpec
from iriscw.runtime.vocabulary import (
    KEEP,
    ChildFailed,
    Completed,
    Decision,
    Emit,
    Failed,
    Forget,
    Refuse,
    Reply,
    ReplyTo,
    Run,
    SetTimer,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Watch,
)
from iriscw.testing.contexts import FakeContext

A, B, C = (Asked(name, OperationKind.FREEZE, f"freeze-{name}") for name in ("a", "b", "c"))
ORDER = FreezeTree(FreezePlan("a", TaskIdentity(1, 2, "boot"), "ram"))
ASKER = ReplyTo(7)


class Actor:
    """The decisions with their state."""

    def __init__(self, owed=(), over=(), limit=2):
        self.decisions = OperationsDecisions(lambda asked: ChildSpec(asked.operation, Behavior()))
        self.state = taken_up(limit, owed, over)
        self.begins_with = list(self.decisions.resume(self.state, FakeContext()))

    def __call__(self, message, reply_to=None):
        """Decide, and give the commands."""
        decided = self.decisions.rules()[type(message)](self.state, message, FakeContext(reply_to=reply_to))
        if isinstance(decided, Decision):
            if decided.state is not KEEP:
                self.state = decided.state
            return list(decided.commands)
        return list(decided or ())

    def running(self, asked=A, order=ORDER):
        """Have one run."""
        self(BeginOperation(asked, order), ASKER)
        self(Completed("claim", Claim(asked), None))
        return self


def refusals(commands):
    """Return the errors that commands refuse with."""
    return [type(each.error) for each in commands if isinstance(each, Refuse)]


def test_one_is_begun_once_its_target_is_claimed():
    """Not before; then its actor is told, and whoever asked hears of it."""
    actor = Actor()
    assert actor(BeginOperation(A, ORDER), ASKER) == [Run(("claim", "a"), Claim(A))]
    spawned, told, replied = actor(Completed("claim", Claim(A), None))
    assert isinstance(spawned, Spawn)
    assert (told, replied) == (Tell(OPERATIONS / "a", ORDER), Reply(to=ASKER))


def test_one_ends_in_order():
    """Its actor stops, then what it left is removed, then its records go and that is told."""
    actor = Actor().running()
    assert actor(OperationOver("a")) == [StopChild("a"), Watch(OPERATIONS / "a")]
    assert actor(OperationOver("a")) == []
    assert actor(Terminated(OPERATIONS / "a", StopReason.NORMAL)) == [Run(("clean", "a"), CleanUp("a"))]
    assert actor(Completed("clean", CleanUp("a"), None)) == [Forget("a"), Emit(OperationClosed("a"))]
    assert actor.state.entries == {}


def test_a_failure_to_clean_up_changes_nothing():
    """The operation is over all the same."""
    actor = Actor().running()
    actor(OperationOver("a"))
    assert actor(Failed("clean", CleanUp("a"), OSError())) == [Forget("a"), Emit(OperationClosed("a"))]


def test_limits():
    """One too many, one that is there already, and any while the agent ends, are refused by name."""
    actor = Actor(limit=1).running()
    commands = actor(BeginOperation(B, ORDER), ASKER)
    assert refusals(commands) == [TooManyOperations]
    assert commands[-1] == Emit(OperationClosed("b"))  # whoever asked may have left, and it is shown still
    actor = Actor().running()
    assert refusals(actor(BeginOperation(A, ORDER), ASKER)) == [InvalidArgument]
    assert actor(GiveUpAll("the end")) == [Tell(OPERATIONS / "a", CancelOperation("the end"))]
    assert refusals(actor(BeginOperation(B, ORDER), ASKER)) == [AgentStopping]


def test_what_counts_against_the_limit():
    """Not what is put aside, nor what an earlier life left and waits for its target; it does when it runs."""
    actor = Actor(limit=1).running()
    actor(ChildFailed(OPERATIONS / "a", 1, None, ZeroDivisionError("x"), True))
    assert actor(BeginOperation(B, ORDER), ASKER) == [Run(("claim", "b"), Claim(B))]
    assert refusals(actor(BeginOperation(C, ORDER), ASKER)) == [TooManyOperations]
    actor = Actor(owed=[A], limit=1)
    actor(Failed("claim", Claim(A), KeyError("busy")))
    actor(BeginOperation(B, ORDER), ASKER)
    actor(Failed("claim", Claim(B), KeyError("busy")))
    actor(Completed("claim", Claim(A), None))
    assert refusals(actor(BeginOperation(B, ORDER), ASKER)) == [TooManyOperations]
    actor(OperationOver("a"))
    assert refusals(actor(BeginOperation(B, ORDER), ASKER)) == [TooManyOperations]


def test_a_target_that_somebody_has():
    """A new operation is refused with what was said; one that is owed waits, and tries again."""
    actor = Actor(owed=[B])
    assert actor.begins_with == [Run(("claim", "b"), Claim(B))]
    actor(BeginOperation(A, ORDER), ASKER)
    commands = actor(Failed("claim", Claim(A), KeyError("busy")))
    assert refusals(commands) == [KeyError]
    assert commands[-1] == Emit(OperationClosed("a"))
    (timer,) = actor(Failed("claim", Claim(B), KeyError("busy")))
    assert isinstance(timer, SetTimer)
    assert timer.message == ClaimAgain("b")
    assert actor(ClaimAgain("b")) == [Run(("claim", "b"), Claim(B))]
    assert [type(each) for each in actor(Completed("claim", Claim(B), None))] == [Spawn]
    assert actor(ClaimAgain("b")) == []


def test_what_is_stopped_before_it_began():
    """A new operation never begins; one that is owed is taken up, and undone where it still may be."""
    actor = Actor(owed=[B])
    actor(BeginOperation(A, ORDER), ASKER)
    assert actor(StopOperation("a", "gone")) == []
    assert actor(StopOperation("b", "gone"), ASKER) == [Reply()]
    commands = actor(Completed("claim", Claim(A), None))
    assert refusals(commands) == [AgentStopping]
    assert commands[-1] == Run(("clean", "a"), CleanUp("a"))
    spawned, told = actor(Completed("claim", Claim(B), None))
    assert isinstance(spawned, Spawn)
    assert told == Tell(OPERATIONS / "b", CancelOperation("gone"))


def test_one_is_told_to_stop_once():
    """However often somebody says so: its mailbox never fills. One that is not there is told by name."""
    actor = Actor().running()
    assert actor(StopOperation("a", "x")) == [Tell(OPERATIONS / "a", CancelOperation("x"))]
    assert actor(StopOperation("a", "y")) == []
    assert refusals(actor(StopOperation("none", "y"), ASKER)) == [OperationUnknown]
    assert actor(StopOperation("none", "y")) == []


def test_what_was_over_is_cleaned_up():
    """An agent that died between the end and the removal leaves that to the next one."""
    actor = Actor(over=[A])
    assert actor.begins_with == [Run(("clean", "a"), CleanUp("a"))]


@pytest.mark.parametrize("quarantined", [False, True])
def test_one_that_fails_again_and_again(quarantined):
    """It is told of when it is put aside, and keeps its place: nobody may touch its target."""
    actor = Actor().running()
    commands = actor(ChildFailed(OPERATIONS / "a", 1, None, ZeroDivisionError("x"), quarantined))
    assert commands == ([Emit(OperationAside("a", "ZeroDivisionError: x"))] if quarantined else [])
    assert actor.state.entries["a"].stage is (OperationStage.ASIDE if quarantined else OperationStage.RUNNING)
    assert actor(Terminated(OPERATIONS / "a", StopReason.QUARANTINED)) == []
