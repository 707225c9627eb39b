"""The life of an attempt: the table, restarts at every point, and what each end means."""

import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import Ctx

from iriscw.bundles.unpack import BundleCorrupt
from iriscw.jobs.model import Ending, GangPlace, Resumption
from iriscw.jobs.traits import Fault
from iriscw.processes.ends import ProcessEnd
from iriscw.runtime.vocabulary import Cancel, Completed, Decision, Emit, Failed, Run, SetTimer, Tell
from iriscw.worker import lifecycle
from iriscw.worker.attempt import TRANSITIONS, Attempt, evolve
from iriscw.worker.effects import Adopt, AwaitEnd, EndAttempt, Fetch, Finish, Permit, Remove, Start, Started, Withdraw
from iriscw.worker.judging import STOPPED, judge, refusal
from iriscw.worker.messages import (
    AttemptChanged,
    AttemptReleased,
    AttemptReport,
    Due,
    ForgetAttempt,
    RunAttempt,
    StopAttempt,
)
from iriscw.worker.model import AttemptPhase, Order, StopCause
from iriscw.worker.ports import AttemptWithdrawn, ProgramMissing
from iriscw.worker.records import AttemptAccepted, AttemptEnded, AttemptStarted, AttemptStarting, AttemptStopping

ORDER = Order("a1", "00" * 32, "job-a/0", 0, 0)
RULES = lifecycle.rules()
EXITED = Finish(ProcessEnd(code=0, log_bytes=10), 9)


class Actor:
    """One attempt with its decisions: keeps records, as the journal does, and the effects that run."""

    def __init__(self) -> None:
        self.ctx = Ctx(1)
        self.records: list[object] = []
        self.state = Attempt("a1")
        self.commands: tuple = ()
        self.starts = 0
        self.reports: list = []
        self.phases: list = []

    def tell(self, message: object) -> tuple:
        outcome = RULES[type(message)](self.state, message, self.ctx)
        records = outcome.records if isinstance(outcome, Decision) else ()
        self.commands = (outcome.commands if isinstance(outcome, Decision) else outcome) or ()
        for record in records:
            evolve(self.state, record)
            self.records.append(record)
        self._see()
        return self.commands

    def _see(self) -> None:
        self.starts += sum(1 for each in self.runs(Start))
        self.reports += [
            each.message.observation
            for each in self.commands
            if isinstance(each, Tell) and isinstance(each.message, AttemptReport)
        ]
        self.phases += [
            each.event.phase
            for each in self.commands
            if isinstance(each, Emit) and isinstance(each.event, AttemptChanged)
        ]

    def runs(self, kind: type) -> list:
        return [each.effect for each in self.commands if isinstance(each, Run) and isinstance(each.effect, kind)]

    def restart(self) -> None:
        """The worker dies and the next one replays the records."""
        self.state = Attempt("a1")
        for record in self.records:
            evolve(self.state, record)
        self.commands = lifecycle.resume(self.state, self.ctx)
        self._see()

    def to(self, phase: AttemptPhase) -> "Actor":
        steps = {
            AttemptPhase.FETCHING: [RunAttempt(ORDER)],
            AttemptPhase.STARTING: [Completed("fetch", Fetch(ORDER), None)],
            AttemptPhase.RUNNING: [Completed("start", Start(ORDER), Started(5, 0, (("web", 80),)))],
            AttemptPhase.STOPPING: [StopAttempt("a1", StopCause.KILLED, 7)],
        }
        for reached, messages in steps.items():
            if self.state.phase is phase:
                break
            for message in messages:
                self.tell(message)
            assert self.state.phase is reached
        return self


def test_the_whole_way() -> None:
    """Each effect leaves with the record that must be on disk before it; each phase is reported."""
    actor = Actor()
    actor.tell(RunAttempt(ORDER))
    assert actor.runs(Fetch) == [Fetch(ORDER)]
    actor.tell(Completed("fetch", Fetch(ORDER), None))
    assert actor.runs(Start) == [Start(ORDER)]
    assert isinstance(actor.records[-1], AttemptStarting)
    actor.tell(Completed("start", Start(ORDER), Started(5, 0, (("web", 80),))))
    assert actor.runs(AwaitEnd) == [AwaitEnd("a1")]
    actor.tell(Completed("await", AwaitEnd("a1"), EXITED))
    assert actor.phases == [AttemptPhase.FETCHING, AttemptPhase.STARTING, AttemptPhase.RUNNING, AttemptPhase.ENDED]
    assert len(actor.reports) == len(actor.phases)
    end = actor.reports[-1]
    assert (end.ending, end.exit_code, end.log_offset, end.ports) == (Ending.SUCCEEDED, 0, 10, (("web", 80),))
    assert actor.tell(ForgetAttempt("a1")) == (Run("remove", Remove("a1")),)
    (released,) = actor.tell(Completed("remove", Remove("a1"), None))
    assert released.message == AttemptReleased("a1")


def test_gpus_that_others_gave_are_told_and_kept() -> None:
    """In a pod the node gives them: what is seen of that is a record, and reported with the start and the end."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(Completed("start", Start(ORDER), Started(5, 0, (), ("GPU-1",))))
    assert actor.reports[-1].gpus == ("GPU-1",)
    actor.restart()
    actor.tell(Completed("adopt", Adopt("a1", ended=False), True))
    actor.tell(Completed("await", AwaitEnd("a1"), EXITED))
    assert actor.reports[-1].gpus == ("GPU-1",)


def test_no_token_is_ever_a_record() -> None:
    """Orders carry secrets; records hold the task's id and nothing else of them."""
    actor = Actor()
    actor.tell(RunAttempt(Order("a1", "00", "job-a/0", 0, 0, (("A", "secret"),), "token")))
    assert actor.records == [AttemptAccepted("job-a/0")]


@pytest.mark.parametrize("phase", [AttemptPhase.STARTING, AttemptPhase.RUNNING, AttemptPhase.STOPPING])
def test_after_a_restart_a_process_is_adopted(phase: AttemptPhase) -> None:
    """Whatever may have a process is looked for, and waited for if it is there."""
    actor = Actor().to(phase)
    actor.restart()
    assert actor.commands == (Run("adopt", Adopt("a1", ended=False)),)
    actor.tell(Completed("adopt", Adopt("a1", ended=False), True))
    assert actor.runs(AwaitEnd)
    assert bool(actor.runs(EndAttempt)) == (phase is not AttemptPhase.RUNNING)


@pytest.mark.parametrize(
    "phase", [AttemptPhase.FETCHING, AttemptPhase.STARTING, AttemptPhase.RUNNING, AttemptPhase.STOPPING]
)
def test_after_a_restart_what_is_not_there_is_missing(phase: AttemptPhase) -> None:
    """It is reported as lost, with whether it ever ran."""
    actor = Actor().to(phase)
    actor.restart()
    actor.tell(Completed("adopt", Adopt("a1", ended=False), False))
    assert actor.reports[-1].ending is Ending.MISSING
    assert actor.reports[-1].started == (phase in (AttemptPhase.RUNNING, AttemptPhase.STOPPING))


@pytest.mark.parametrize("found", [False, True])
def test_a_stop_overtakes_the_look_for_its_process(found: bool) -> None:
    """Stopped after a restart, before anybody knows whether it is there: it ends once."""
    actor = Actor().to(AttemptPhase.FETCHING)
    actor.restart()
    actor.tell(StopAttempt("a1", StopCause.LEASE, 0))
    assert actor.reports[-1].ending is Ending.REFUSED
    assert actor.tell(Completed("adopt", Adopt("a1", ended=False), found)) == ()
    assert sum(isinstance(record, AttemptEnded) for record in actor.records) == 1


def test_a_timeout_goes_on_after_a_restart() -> None:
    """What is left of it is counted on the wall clock; one that has passed is due at once."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(Completed("start", Start(ORDER), Started(100, 50, ())))
    assert SetTimer("timeout", 50, Due("timeout")) in actor.commands
    for wall, left in ((120, 30), (1000, 0)):
        actor.ctx.at(wall)
        actor.restart()
        actor.tell(Completed("adopt", Adopt("a1", ended=False), True))
        assert SetTimer("timeout", left, Due("timeout")) in actor.commands
    actor.tell(Due("timeout"))
    actor.tell(Completed("await", AwaitEnd("a1"), Finish(ProcessEnd(signal=15, stopped=True), 9)))
    assert (actor.reports[-1].ending, actor.reports[-1].end.fault.kind) == (Ending.TIMED_OUT, "TaskTimeout")


def test_a_stop_while_it_starts_waits_for_the_process() -> None:
    """The runtime is asked to give it up; if that was too late, the process is stopped as soon as it is known."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(StopAttempt("a1", StopCause.PREEMPTED, 7))
    assert (actor.state.phase, actor.commands) == (AttemptPhase.WITHDRAWN, (Run("withdraw", Withdraw("a1")),))
    assert actor.tell(StopAttempt("a1", StopCause.PREEMPTED, 5)) == ()
    assert actor.tell(Completed("withdraw", Withdraw("a1"), None)) == ()
    actor.tell(Completed("start", Start(ORDER), Started(5, 99, ())))
    assert (actor.state.phase, actor.runs(EndAttempt)) == (AttemptPhase.STOPPING, [EndAttempt("a1", 5)])


@pytest.mark.parametrize("cause", [StopCause.KILLED, StopCause.TIMEOUT])
def test_a_start_that_was_given_up_in_time_ended_as_it_was_stopped(cause: StopCause) -> None:
    """It never started, and is not the worker's failure."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(StopAttempt("a1", cause, 7))
    actor.tell(Failed("start", Start(ORDER), AttemptWithdrawn("it was stopped before it began")))
    end = actor.reports[-1]
    assert (end.ending, end.started, end.end.fault.kind) == (STOPPED[cause], False, "AttemptWithdrawn")


def test_a_withdrawal_that_failed_is_tried_again_while_it_matters() -> None:
    """Until it is known what became of the start."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(StopAttempt("a1", StopCause.KILLED, 7))
    (later,) = actor.tell(Failed("withdraw", Withdraw("a1"), OSError("no")))
    assert actor.tell(later.message) == (Run("withdraw", Withdraw("a1")),)
    actor.tell(Completed("start", Start(ORDER), Started(5, 0, ())))
    assert actor.tell(later.message) == ()


def test_a_stop_before_it_starts_ends_it() -> None:
    """Nothing ran: it has ended at once, and the fetch is given up."""
    actor = Actor().to(AttemptPhase.FETCHING)
    actor.tell(StopAttempt("a1", StopCause.KILLED, 7))
    assert Cancel("fetch") in actor.commands
    assert (actor.reports[-1].ending, actor.reports[-1].started) == (Ending.KILLED, False)


def test_a_later_stop_only_shortens_the_grace() -> None:
    """The first cause stays; a longer grace changes nothing."""
    actor = Actor().to(AttemptPhase.STOPPING)
    assert actor.tell(StopAttempt("a1", StopCause.LEASE, 9)) == ()
    actor.tell(StopAttempt("a1", StopCause.LEASE, 0))
    assert actor.runs(EndAttempt) == [EndAttempt("a1", 0)]
    assert actor.state.stop == AttemptStopping(StopCause.KILLED, 0)


def test_an_end_that_cannot_be_had_is_asked_for_again() -> None:
    """Processes that do not die keep the attempt alive: nothing claims that it is over."""
    actor = Actor().to(AttemptPhase.STOPPING)
    (timer,) = actor.tell(Failed("end", EndAttempt("a1", 7), OSError("they do not die")))
    assert actor.state.phase is AttemptPhase.STOPPING
    assert actor.tell(timer.message) == (Run("end", EndAttempt("a1", 7)),)


def test_a_live_attempt_is_not_forgotten() -> None:
    """A release that comes too early removes nothing."""
    actor = Actor().to(AttemptPhase.RUNNING)
    actor.tell(ForgetAttempt("a1"))
    assert not actor.runs(Remove)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ProgramMissing("no"), Ending.FAILED), (BundleCorrupt("no"), Ending.REFUSED)],
)
def test_a_start_that_failed(error: Exception, outcome: Ending) -> None:
    """The job's faults are told from the worker's; neither counts as started."""
    actor = Actor().to(AttemptPhase.STARTING)
    actor.tell(Failed("start", Start(ORDER), error))
    assert (actor.reports[-1].ending, actor.reports[-1].started) == (outcome, False)
    assert actor.reports[-1].end.fault.kind == type(error).__name__


def test_an_unknown_specification_is_missing() -> None:
    """The controller knows that word: it sends the specification again with the next attempt."""
    assert refusal(Fault("SpecificationUnknown", "")) is Ending.MISSING


@pytest.mark.parametrize("cause", list(StopCause))
def test_judge(cause: StopCause) -> None:
    """A program that ended by itself counts as what it says, even if a stop was on its way."""
    assert judge(EXITED, cause) is Ending.SUCCEEDED
    assert judge(Finish(ProcessEnd(code=3), 0), cause) is Ending.FAILED
    assert judge(Finish(ProcessEnd(signal=15, stopped=True), 0), cause) is STOPPED[cause]
    assert judge(Finish(ProcessEnd(code=0, stopped=True), 0), None) is Ending.KILLED
    assert judge(Finish(ProcessEnd(signal=9, stopped=True, lease_over=True), 0), cause) is STOPPED[cause]
    assert judge(Finish(ProcessEnd(signal=9, stopped=True, lease_over=True), 0), None) is STOPPED[StopCause.LEASE]
    assert judge(Finish(ProcessEnd(signal=9, out_of_memory=True), 0), None) is Ending.FAILED
    assert judge(Finish(ProcessEnd(), 0), None) is Ending.MISSING


def test_every_phase_can_end_and_none_comes_back() -> None:
    """The table: ENDED is reached from everywhere and left for nowhere; nothing returns to NEW."""
    assert set(TRANSITIONS) == set(AttemptPhase)
    assert TRANSITIONS[AttemptPhase.ENDED] == {}
    for phase, moves in TRANSITIONS.items():
        assert phase is AttemptPhase.ENDED or moves[AttemptEnded] is AttemptPhase.ENDED
        assert AttemptPhase.NEW not in moves.values()
    assert [phase for phase, moves in TRANSITIONS.items() if AttemptStarted in moves] == [
        AttemptPhase.STARTING,
        AttemptPhase.WITHDRAWN,
    ]


STEPS = st.sampled_from(
    [
        RunAttempt(ORDER),
        StopAttempt("a1", StopCause.KILLED, 7),
        ForgetAttempt("a1"),
        Due("timeout"),
        "fetched",
        "started",
        "refused",
        "finished",
        "adopted",
        "lost",
        "restart",
    ]
)
ANSWERS = {
    "fetched": (Fetch, lambda effect: Completed("fetch", effect, None)),
    "started": (Start, lambda effect: Completed("start", effect, Started(5, 50, ()))),
    "refused": (Start, lambda effect: Failed("start", effect, OSError("no"))),
    "finished": (AwaitEnd, lambda effect: Completed("await", effect, EXITED)),
    "adopted": (Adopt, lambda effect: Completed("adopt", effect, True)),
    "lost": (Adopt, lambda effect: Completed("adopt", effect, False)),
}


@given(st.lists(STEPS, max_size=30))
def test_nothing_is_ever_started_twice(steps: list) -> None:
    """Whatever comes in whatever order, with restarts anywhere: one start at most, one end, and it stays ended."""
    actor, running = Actor(), {}
    for step in steps:
        if step == "restart":
            running.clear()
            actor.restart()
        elif isinstance(step, str):
            kind, answer = ANSWERS[step]
            if kind not in running:
                continue
            actor.tell(answer(running.pop(kind)))
        else:
            actor.tell(step)
        for command in actor.commands:
            if isinstance(command, Run):
                running[type(command.effect)] = command.effect
            elif isinstance(command, Cancel) and command.key == "fetch":
                running.pop(Fetch, None)
    assert actor.starts <= 1
    assert sum(isinstance(record, AttemptEnded) for record in actor.records) <= 1
    live = [each.ending is None for each in actor.reports]
    assert live == sorted(live, reverse=True), "what has ended lives again"


MEMBER = attrs.evolve(ORDER, gang=GangPlace(0, 1, 1, 2, leads=False, waits=True))
"""Of a gang whose leader does not run yet."""
GO = attrs.evolve(ORDER, gang=GangPlace(0, 1, 1, 2, leads=False, leader_host="10.0.0.1", leader_port=9))


def test_a_member_waits_for_its_leader() -> None:
    """It has all that it needs fetched, starts when it is ordered again, once, and is told where the leader is."""
    actor = Actor()
    actor.tell(RunAttempt(MEMBER))
    assert actor.runs(Fetch)
    actor.tell(Completed("fetch", Fetch(MEMBER), None))
    actor.tell(RunAttempt(MEMBER))
    assert (actor.starts, actor.state.phase) == (0, AttemptPhase.FETCHING)
    actor.tell(RunAttempt(GO))
    assert actor.runs(Start) == [Start(GO)]
    actor.tell(RunAttempt(GO))
    assert actor.starts == 1


def test_a_leader_may_be_there_first() -> None:
    """A member that hears of its leader while something is still being fetched starts as soon as it is here."""
    actor = Actor()
    actor.tell(RunAttempt(MEMBER))
    actor.tell(RunAttempt(GO))
    assert actor.starts == 0
    actor.tell(Completed("fetch", Fetch(MEMBER), None))
    assert actor.runs(Start) == [Start(GO)]


def test_a_member_that_waits_is_stopped_at_once() -> None:
    """Nothing of it runs; and an order that comes late starts it no more."""
    actor = Actor()
    actor.tell(RunAttempt(MEMBER))
    actor.tell(Completed("fetch", Fetch(MEMBER), None))
    actor.tell(StopAttempt("a1", StopCause.GANG, 7))
    assert (actor.reports[-1].ending, actor.reports[-1].started) == (Ending.GANG_STOPPED, False)
    actor.tell(RunAttempt(GO))
    assert actor.starts == 0


def test_what_waited_is_lost_with_its_worker() -> None:
    """A worker that comes back has never begun it, and says so: its gang is placed anew."""
    actor = Actor()
    actor.tell(RunAttempt(MEMBER))
    actor.tell(Completed("fetch", Fetch(MEMBER), None))
    actor.restart()
    actor.tell(RunAttempt(GO))
    assert actor.starts == 0
    actor.tell(Completed("adopt", Adopt("a1", ended=False), False))
    assert (actor.reports[-1].ending, actor.reports[-1].started) == (Ending.MISSING, False)


def test_where_it_is_reached_is_reported() -> None:
    """Host, ports and a leader's meeting point are told with each word from the start on, by the next process, too."""
    actor = Actor().to(AttemptPhase.STARTING)
    started = Started(5, 0, (("web", 80),), host="10.0.0.1", rendezvous_port=20_000)
    actor.tell(Completed("start", Start(ORDER), started))
    actor.restart()
    seen = actor.state.observation()
    assert (seen.host, seen.ports, seen.rendezvous_port) == ("10.0.0.1", (("web", 80),), 20_000)


def test_what_goes_on_elsewhere_is_reached_where_it_was() -> None:
    """Its machine is the same, and it listens where it listened: the next worker says so, and its context too."""
    actor = Actor()
    leave = Resumption("g1", "/w/a1", ports=(("web", 80),), host="10.0.0.1")
    actor.tell(RunAttempt(attrs.evolve(ORDER, resumption=leave)))
    assert [each.host for each in actor.runs(Permit)] == ["10.0.0.1"]
    seen = actor.state.observation()
    assert (seen.host, seen.ports) == ("10.0.0.1", (("web", 80),))
