"""Suspending and resuming: two workers of one machine, images that anybody may thaw, restarts at every point."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from test_lifecycle import ORDER, Actor
from worker_world import Ctx

from iriscw.jobs.model import Ending, Resumption, Suspension, TaskState
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.grants import GrantRefused
from iriscw.runtime.vocabulary import Cancel, CancelTimer, Completed, Failed, Run, SetTimer
from iriscw.worker.effects import (
    Adopt,
    AwaitEnd,
    AwaitThaw,
    EndAttempt,
    Finish,
    LetGo,
    Permit,
    Remove,
    Revoke,
    Start,
    Started,
)
from iriscw.worker.judging import STOPPED
from iriscw.worker.messages import (
    AttemptReleased,
    ContinueAttempt,
    Due,
    ForgetAttempt,
    GpusGiven,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    WithdrawGrant,
)
from iriscw.worker.model import AttemptPhase, Order, StopCause
from iriscw.worker.ports import ResumeRefused
from iriscw.worker.records import AttemptEnded

GONE = Finish(ProcessEnd(text="nobody saw how", log_bytes=10), 9, folder="/w/a1")
EXITED = Finish(ProcessEnd(code=0, log_bytes=10), 9)
KILLED = Finish(ProcessEnd(signal=9, stopped=True, log_bytes=10), 9)


def resumed(grant: str = "g1", **words) -> RunAttempt:
    """An order to bring it back."""
    return RunAttempt(Order("a1", "", "job-a/0", 0, 0, resumption=Resumption(grant, "/w/a1", 5, **words)))


def suspended() -> Actor:
    """An attempt that is frozen."""
    actor = Actor().to(AttemptPhase.RUNNING)
    actor.tell(SuspendAttempt("a1"))
    actor.tell(Completed("await", AwaitEnd("a1"), GONE))
    return actor


def resuming(**words) -> Actor:
    """One that another worker had, and that may be thawed."""
    actor = Actor()
    actor.tell(resumed(**words))
    actor.tell(Completed("permit", Permit("a1", "g1", "/w/a1"), None))
    return actor


def test_the_way_to_another_worker() -> None:
    """Each phase is reported; the grant is on the disk before it is offered, and offered before anybody is told so."""
    actor = Actor().to(AttemptPhase.RUNNING)
    assert actor.tell(ContinueAttempt("a1"))
    actor.tell(SuspendAttempt("a1"))
    assert actor.state.phase is AttemptPhase.SUSPENDING
    actor.tell(Completed("await", AwaitEnd("a1"), GONE))
    seen = actor.reports[-1]
    assert (seen.suspension, seen.folder, seen.live, seen.ending) == (Suspension.SUSPENDED, "/w/a1", False, None)
    (let_go,) = actor.tell(ForgetAttempt("a1"))
    assert let_go == Run("let-go", LetGo("a1"))
    (released,) = actor.tell(Completed("let-go", LetGo("a1"), None))
    assert released.message == AttemptReleased("a1")

    other = Actor()
    other.tell(resumed(ports=(("web", 80),)))
    assert other.runs(Permit) == [Permit("a1", "g1", "/w/a1")]
    assert (other.reports[-1].suspension, other.reports[-1].folder) == (Suspension.RESUMING, "")
    other.tell(Completed("permit", Permit("a1", "g1", "/w/a1"), None))
    assert other.runs(AwaitThaw) == [AwaitThaw("a1", "g1")]
    assert other.reports[-1].folder == "/w/a1"
    other.tell(Completed("thaw", AwaitThaw("a1", "g1"), None))
    assert other.runs(AwaitEnd)
    seen = other.reports[-1]
    assert (seen.suspension, seen.started, seen.process_started_wall_ns) == (Suspension.NONE, True, 5)
    assert (seen.state, seen.ports) == (TaskState.RUNNING, (("web", 80),))
    assert other.starts == 0


def test_a_leave_brings_back_once() -> None:
    """Its order is told again with each stream. One that was suspended again since is not brought back by it."""
    actor = resuming()
    actor.tell(Completed("thaw", AwaitThaw("a1", "g1"), None))
    actor.tell(SuspendAttempt("a1"))
    actor.tell(Completed("await", AwaitEnd("a1"), GONE))
    actor.tell(resumed())
    assert (actor.state.phase, actor.reports[-1].suspension) == (AttemptPhase.SUSPENDED, Suspension.SUSPENDED)
    actor.tell(resumed("g2"))
    assert actor.state.phase is AttemptPhase.RESUMING


@pytest.mark.parametrize("gpus", [(), ("GPU-1",)])
def test_it_comes_back_while_it_is_let_go(gpus: tuple[str, ...]) -> None:
    """Letting it go would undo the grant, and its actor ends with that: the order is for the next one."""
    actor = suspended()
    order = resumed(gpus=gpus)
    if gpus:
        actor.tell(order)
    (let_go,) = actor.tell(ForgetAttempt("a1"))
    assert actor.tell(GpusGiven(order.order, gpus) if gpus else order) == ()
    released, again = actor.tell(Completed("let-go", let_go.effect, None))
    assert (released.message, again.message) == (AttemptReleased("a1"), order)
    assert [each.message for each in actor.tell(order)] == [order]
    assert (actor.state.phase, actor.runs(Permit)) == (AttemptPhase.SUSPENDED, [])


def test_a_program_that_ends_before_it_is_frozen_has_ended() -> None:
    """Suspending changes nothing about what it did by itself."""
    actor = Actor().to(AttemptPhase.RUNNING)
    actor.tell(SuspendAttempt("a1"))
    actor.tell(Completed("await", AwaitEnd("a1"), EXITED))
    assert actor.reports[-1].ending is Ending.SUCCEEDED


def test_one_that_runs_on_and_is_lost_is_missing() -> None:
    """Only what was said to be frozen may be gone."""
    actor = Actor().to(AttemptPhase.RUNNING)
    actor.tell(SuspendAttempt("a1"))
    actor.tell(ContinueAttempt("a1"))
    actor.tell(Completed("await", AwaitEnd("a1"), GONE))
    assert actor.reports[-1].ending is Ending.MISSING
    assert actor.runs(Adopt) == [Adopt("a1", ended=True)], "its log is sent to its end"


@pytest.mark.parametrize("cause", list(StopCause))
def test_a_stop_of_a_suspended_attempt(cause: StopCause) -> None:
    """It ends with its job, and not with its worker or that one's lease. Its log is as long as it was."""
    actor = suspended()
    actor.tell(StopAttempt("a1", cause, 7))
    stays = cause in (StopCause.LEASE, StopCause.DRAINING)
    assert actor.reports[-1].ending is (None if stays else STOPPED[cause])
    assert (actor.reports[-1].started, actor.reports[-1].log_offset) == (True, GONE.end.log_bytes)


@pytest.mark.parametrize("too_late", [False, True])
def test_a_stop_takes_the_leave_back(too_late: bool) -> None:
    """If that is too late it runs, and is stopped as any other."""
    actor = resuming()
    actor.tell(StopAttempt("a1", StopCause.PREEMPTED, 7))
    assert actor.runs(Revoke) == [Revoke("a1", "g1")]
    assert actor.tell(Completed("thaw", AwaitThaw("a1", "g1"), None)) == ()
    actor.tell(Completed("revoke", Revoke("a1", "g1"), too_late))
    if too_late:
        assert (actor.state.phase, actor.runs(EndAttempt)) == (AttemptPhase.STOPPING, [EndAttempt("a1", 7)])
        actor.tell(Completed("await", AwaitEnd("a1"), KILLED))
    assert actor.reports[-1].ending is Ending.PREEMPTED
    # What was not brought back is frozen as it was: it is let go, and may be granted again. What ran is removed.
    (last,) = actor.tell(ForgetAttempt("a1"))
    assert last == (Run("remove", Remove("a1")) if too_late else Run("let-go", LetGo("a1")))
    assert again_runs(actor, last)


@pytest.mark.parametrize("too_late", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_grant_is_given_back(too_late: bool, restarted: bool) -> None:
    """Then it is suspended as before, and which grant that was is told; if that is too late it runs on."""
    actor = resuming()
    assert actor.tell(WithdrawGrant("a1", "another")) == actor.tell(WithdrawGrant("a1", "g0"))
    assert actor.state.phase is AttemptPhase.RESUMING
    actor.tell(WithdrawGrant("a1", "g1"))
    if restarted:
        actor.restart()
    assert actor.runs(Revoke) == [Revoke("a1", "g1")]
    actor.tell(Completed("revoke", Revoke("a1", "g1"), too_late))
    seen = actor.reports[-1]
    if too_late:
        assert (actor.state.phase, actor.runs(AwaitEnd)) == (AttemptPhase.RUNNING, [AwaitEnd("a1")])
        assert (seen.suspension, seen.withdrawn) == (Suspension.NONE, "")
        return
    assert (seen.suspension, seen.withdrawn, seen.ending) == (Suspension.SUSPENDED, "g1", None)
    actor.tell(resumed("g1"))
    assert actor.state.phase is AttemptPhase.SUSPENDED
    actor.tell(resumed("g2"))
    assert (actor.state.phase, actor.reports[-1].withdrawn) == (AttemptPhase.RESUMING, "")


def test_a_stop_while_a_grant_is_given_back() -> None:
    """It ends if nobody has taken the grant, and is stopped if somebody has."""
    actor = resuming()
    actor.tell(WithdrawGrant("a1", "g1"))
    actor.tell(StopAttempt("a1", StopCause.KILLED, 7))
    actor.tell(Completed("revoke", Revoke("a1", "g1"), False))
    assert actor.reports[-1].ending is Ending.KILLED


def again_runs(actor: Actor, run: Run) -> bool:
    """Whether an effect that failed is tried again, until it succeeds."""
    (timer,) = actor.tell(Failed(run.key, run.effect, OSError("no room")))
    assert isinstance(timer, SetTimer)
    return actor.tell(timer.message) == (run,)


def test_a_leave_that_is_refused_ends_it() -> None:
    """Somebody else may let it go on: it is not ours, and that is told."""
    actor = Actor()
    actor.tell(resumed())
    actor.tell(Failed("permit", Permit("a1", "g1", "/w/a1"), GrantRefused("another grant is on offer")))
    end = actor.reports[-1]
    assert (end.ending, end.end.fault.kind, end.started) == (Ending.WORKER_LOST, "GrantRefused", True)
    actor = Actor()
    actor.tell(resumed())
    (timer,) = actor.tell(Failed("permit", Permit("a1", "g1", "/w/a1"), OSError("the disk is full")))
    assert isinstance(timer, SetTimer)
    assert actor.tell(timer.message) == (Run("permit", Permit("a1", "g1", "/w/a1")),)


@pytest.mark.parametrize(("too_late", "stopped"), [(False, False), (True, False), (False, True)])
def test_what_a_worker_cannot_bring_back_is_returned(too_late: bool, stopped: bool) -> None:
    """Another may be able to. If an earlier life of this worker had offered it, and it was taken, it runs here."""
    actor = Actor()
    actor.tell(resumed())
    if stopped:
        actor.tell(StopAttempt("a1", StopCause.KILLED, 7))
    actor.tell(Failed("permit", Permit("a1", "g1", "/w/a1"), ResumeRefused("it has other folders")))
    if stopped:
        assert actor.reports[-1].ending is Ending.KILLED
        return
    actor.restart()
    assert actor.runs(Revoke) == [Revoke("a1", "g1")]
    actor.tell(Completed("revoke", Revoke("a1", "g1"), too_late))
    seen = actor.reports[-1]
    why = "ResumeRefused: it has other folders"
    wanted = (Suspension.NONE, "", "") if too_late else (Suspension.SUSPENDED, "g1", why)
    assert (seen.suspension, seen.withdrawn, seen.withdrawn_reason, seen.ending) == (*wanted, None)


def test_what_is_suspended_counts_against_no_timeout() -> None:
    """What is left of it goes on when it runs again; none is due meanwhile."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(Completed("start", Start(ORDER), Started(100, 50, ())))
    actor.tell(SuspendAttempt("a1"))
    actor.tell(Completed("await", AwaitEnd("a1"), GONE))
    assert CancelTimer("timeout") in actor.commands
    other = resuming(timeout_ns=50, paused_ns=1000)
    other.ctx.at(1030)
    other.tell(Completed("thaw", AwaitThaw("a1", "g1"), None))
    assert SetTimer("timeout", 25, Due("timeout")) in other.commands


@pytest.mark.parametrize(
    ("actor", "owed"),
    [
        (suspended(), ()),
        (resuming(), (Run("permit", Permit("a1", "g1", "/w/a1")),)),
    ],
)
def test_after_a_restart(actor: Actor, owed: tuple) -> None:
    """Nothing is owed for what is frozen; what may be thawed is offered again, which is once and the same."""
    actor.restart()
    assert actor.commands == owed
    if owed:
        actor.tell(StopAttempt("a1", StopCause.KILLED, 7))
        assert not actor.runs(Revoke), "not while it may be offered yet"
        actor.tell(Completed("permit", owed[0].effect, None))
        assert actor.runs(Revoke)
        actor.restart()
        assert actor.commands == (Run("revoke", Revoke("a1", "g1")),)


class Machine:
    """One program, its images and its grants, as the file system and CRIU have them."""

    def __init__(self) -> None:
        self.running = True
        self.frozen = False
        self.offered = ""
        self.taken: list[str] = []
        self.withdrawn: list[str] = []
        self.ran_for: list[str] = []

    def freeze(self) -> None:
        if self.running:
            self.running, self.frozen = False, True

    def thaw(self) -> None:
        """Anybody brings the images back; twice where they like."""
        if self.frozen and not self.running and self.offered:
            self.taken.append(self.offered)
            self.offered, self.running = "", True

    def carry_out(self, effect: object) -> object:
        """Return what an effect gives; None while it waits, an error if it fails."""
        match effect:
            case Permit(grant=grant):
                if grant in self.withdrawn or self.offered not in ("", grant):
                    return GrantRefused("no")
                if grant not in self.taken:
                    self.offered = grant
                return "done"
            case AwaitThaw(grant=grant):
                return "done" if grant in self.taken else None
            case Revoke(grant=grant):
                if self.offered == grant:
                    self.offered = ""
                    self.withdrawn.append(grant)
                return grant in self.taken
            case AwaitEnd():
                return None if self.running else GONE
            case EndAttempt():
                self.running = False
                return "done"
            case Adopt(ended=ended):
                return True if not ended else "done"
            case _:
                return "done"


class Node:
    """One worker's actor for the attempt, with the effects that run."""

    def __init__(self, machine: Machine, actor: Actor) -> None:
        self.machine, self.actor = machine, actor
        self.effects: dict[str, object] = {}
        self.actor.ctx = Ctx(1)

    def tell(self, message: object) -> None:
        self.actor.tell(message)
        self._take()

    def restart(self) -> None:
        self.effects.clear()
        self.actor.restart()
        self._take()

    def _take(self) -> None:
        for command in self.actor.commands:
            if isinstance(command, Run):
                self.effects[command.key] = command.effect
            elif isinstance(command, Cancel):
                self.effects.pop(command.key, None)

    def advance(self, number: int) -> None:
        """Let one of the effects come to its end, if it can."""
        if not self.effects:
            return
        key = list(self.effects)[number % len(self.effects)]
        effect = self.effects[key]
        found = self.machine.carry_out(effect)
        if found is None:
            return
        del self.effects[key]
        if isinstance(found, Exception):
            self.tell(Failed(key, effect, found))
        else:
            self.tell(Completed(key, effect, None if found == "done" else found))


STEPS = st.tuples(
    st.sampled_from(
        [
            *("suspend", "continue", "freeze", "thaw", "resume", "resume", "withdraw"),
            *("stop", "forget", "restart", "advance", "advance"),
        ]
    ),
    st.integers(0, 1),
    st.integers(0, 3),
)


FROZEN = [("suspend", 0, 0), ("freeze", 0, 0), ("advance", 0, 0)]
BEGUN = [[], FROZEN, [*FROZEN, ("resume", 1, 0)], [*FROZEN, ("resume", 1, 0), ("advance", 1, 0)]]
"""Where a walk begins: the way to the interesting places is long."""


@given(st.sampled_from(BEGUN), st.lists(STEPS, max_size=30))
def test_it_is_never_there_twice_and_what_has_ended_stays_so(begun: list, steps: list) -> None:
    """A controller that keeps its rules, and others who do not: it is there once, and by the grant of who has it."""
    machine = Machine()
    nodes = [Node(machine, Actor().to(AttemptPhase.RUNNING)), Node(machine, Actor())]
    nodes[0].effects["await"] = AwaitEnd("a1")
    holder, grants = 0, 0
    for what, which, number in begun + steps:
        node = nodes[holder]
        phase = node.actor.state.phase
        if what == "freeze" and phase is AttemptPhase.SUSPENDING:
            machine.freeze()
        elif what == "thaw":
            machine.thaw()
        elif what == "suspend":
            node.tell(SuspendAttempt("a1"))
        elif what == "continue" and machine.running:
            node.tell(ContinueAttempt("a1"))
        elif (
            what == "resume"
            and phase is AttemptPhase.SUSPENDED
            and nodes[which].actor.state.phase
            in (
                AttemptPhase.NEW,
                AttemptPhase.SUSPENDED,
            )
        ):
            grants, holder = grants + 1, which
            nodes[which].tell(resumed(f"g{grants}"))
        elif what == "stop":
            nodes[which].tell(StopAttempt("a1", list(StopCause)[number], 0))
        elif what == "withdraw":
            node.tell(WithdrawGrant("a1", f"g{grants}"))
        elif what == "restart":
            nodes[which].restart()
        elif what == "advance":
            nodes[which].advance(number)
        ends = [each for each in nodes if each.actor.state.phase is AttemptPhase.ENDED]
        assert not (machine.running and nodes[holder] in ends), "it has ended and runs"
        assert not (machine.offered and nodes[holder] in ends), "it has ended and may be brought back"
        assert len(machine.taken) == len({*machine.taken}) <= grants
        for each in nodes:
            assert each.actor.starts <= 1
            assert sum(isinstance(record, AttemptEnded) for record in each.actor.records) <= 1
