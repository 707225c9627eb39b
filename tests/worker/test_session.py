"""The worker's side of the stream: what is said when, the lease, and the end."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import Ctx

from iriscw.dialling.decision import FIRST_PAUSE_NS
from iriscw.dialling.messages import Heartbeat, HeartbeatAcked, TurnedAway, Welcomed
from iriscw.jobs.model import AttemptEnd, Ending, Observation, Suspension, TaskState
from iriscw.processes import lease as lease_file
from iriscw.runtime.vocabulary import (
    SECOND,
    Arrived,
    Close,
    Closed,
    Completed,
    Emit,
    Failed,
    Feed,
    FeedRefused,
    Open,
    Run,
    SetTimer,
    Tell,
)
from iriscw.worker import session as decisions
from iriscw.worker.effects import HoldLease
from iriscw.worker.messages import (
    AttemptReleased,
    AttemptReport,
    DesiredAttempts,
    Due,
    Flush,
    Flushed,
    Goodbye,
    HeldChanged,
    Holding,
    LeaseNotWritten,
    Leave,
    Left,
    ObservedAll,
    Orphaned,
    Resync,
    RunAttempt,
    StopAll,
    StopAttempt,
)
from iriscw.worker.model import SEEN_AS, AttemptPhase, Order, StopCause
from iriscw.worker.ports import WorkerTrouble
from iriscw.worker.session import LONGEST_PAUSE_NS, MIN_HEARTBEAT_NS, NEVER_NS, Session

RULES = decisions.rules()
LEASE = 10 * SECOND


class Actor:
    """The session with its decisions."""

    def __init__(self, granted_until: int | None = None, orphan_ns: int = 0, now: int = SECOND) -> None:
        self.ctx = Ctx(now)
        self.state = Session(LEASE, granted_until, orphan_ns)
        self.commands = decisions.resume(self.state, self.ctx)

    def tell(self, message: object) -> tuple:
        self.commands = RULES[type(message)](self.state, message, self.ctx) or ()
        return self.commands

    def arrive(self, item: object) -> tuple:
        return self.tell(Arrived("stream", item))

    def connect(self, lease_ns: int = LEASE) -> "Actor":
        self.tell(Holding(()))
        self.arrive(Welcomed("s1", SECOND, lease_ns))
        return self

    def fed(self) -> list:
        return [each.item for each in self.commands if isinstance(each, Feed)]

    def told(self) -> list:
        return [each.message for each in self.commands if isinstance(each, Tell)]

    def emitted(self, kind: type) -> list:
        return [each.event for each in self.commands if isinstance(each, Emit) and isinstance(each.event, kind)]

    def held(self) -> list:
        return [each.effect.until_ns for each in self.commands if isinstance(each, Run)]

    def orphan_timer(self) -> bool:
        return any(isinstance(each, SetTimer) and each.key == "orphan" and each.attentive for each in self.commands)

    def dials(self) -> bool:
        return any(isinstance(each, Open) for each in self.commands)


def seen(uid: str, phase: AttemptPhase = AttemptPhase.RUNNING) -> Observation:
    state, suspension = SEEN_AS.get(phase, (TaskState.RUNNING, Suspension.NONE))
    end = AttemptEnd(Ending.SUCCEEDED) if phase is AttemptPhase.ENDED else None
    return Observation(uid, state, end, suspension=suspension)


def order(uid: str) -> Order:
    return Order(uid, "00", "job-a/0", 0, 0)


def test_it_dials_when_it_knows_everything() -> None:
    """The first observed set must be complete: no stream before each attempt has reported or is gone."""
    actor = Actor()
    assert actor.told() == [Resync()]
    actor.tell(AttemptReport(seen("a1")))
    assert not actor.dials()
    actor.tell(Holding(("a1", "a2", "a3")))
    assert not actor.dials()
    actor.tell(AttemptReport(seen("a2")))
    assert not actor.dials()
    actor.tell(AttemptReleased("a3"))
    assert actor.dials()


def test_a_stream_begins_with_everything() -> None:
    """At the welcome all is said; at the desired set strangers are stopped, orders passed on, and all said again."""
    actor = Actor()
    actor.tell(AttemptReport(seen("a1")))
    actor.tell(AttemptReport(seen("a2", AttemptPhase.ENDED)))
    actor.connect()
    assert actor.fed()[0] == ObservedAll(0, (seen("a1"), seen("a2", AttemptPhase.ENDED)))
    actor.arrive(DesiredAttempts(4, (order("a3"),)))
    assert actor.fed() == [ObservedAll(4, (seen("a1"), seen("a2", AttemptPhase.ENDED)))]
    stop, run = actor.told()
    assert (stop.uid, stop.cause) == ("a1", StopCause.FENCED)
    assert run == RunAttempt(order("a3"))


def test_changes_follow_and_repeats_do_not() -> None:
    """While the stream is up each change is passed on, once."""
    actor = Actor().connect()
    actor.tell(AttemptReport(seen("a1")))
    assert actor.fed() == [HeldChanged(seen("a1"))]
    assert actor.tell(AttemptReport(seen("a1"))) == ()


def test_without_a_stream_nothing_is_sent() -> None:
    """What changes meanwhile is part of the next stream's beginning."""
    actor = Actor().connect()
    actor.tell(Closed("stream", OSError("gone")))
    assert actor.tell(AttemptReport(seen("a1"))) == ()
    actor.tell(Due("dial"))
    actor.arrive(Welcomed("s2", SECOND, LEASE))
    assert actor.fed()[0] == ObservedAll(0, (seen("a1"),))


def test_pauses_grow_and_are_bounded() -> None:
    """Between dials: doubling, jittered, at most the longest; a welcome starts them anew."""
    actor = Actor().connect()
    pauses = []
    for _ in range(12):
        actor.tell(Closed("stream", OSError("no")))
        pauses += [each.delay for each in actor.commands if isinstance(each, SetTimer) and each.key == "dial"]
    assert len(pauses) == 12
    assert pauses[0] <= 2 * FIRST_PAUSE_NS
    assert all(LONGEST_PAUSE_NS / 2 <= each <= LONGEST_PAUSE_NS for each in pauses[-4:])
    assert len(dict.fromkeys(pauses)) > 8


def test_the_lease_counts_from_when_a_heartbeat_was_sent() -> None:
    """An acknowledgement renews the contact to the moment its heartbeat left, not to when it came."""
    actor = Actor().connect()
    actor.tell(AttemptReport(seen("a1")))
    actor.ctx.at(3 * SECOND)
    actor.tell(Due("beat"))
    assert actor.fed() == [Heartbeat(2)]
    actor.ctx.at(9 * SECOND)
    actor.arrive(HeartbeatAcked(2))
    assert actor.state.contact == 3 * SECOND
    actor.ctx.at(13 * SECOND - 1)
    actor.tell(Due("lease"))
    assert StopAll(StopCause.LEASE, 0) not in actor.told()
    actor.ctx.at(13 * SECOND)
    actor.tell(Due("lease"))
    assert StopAll(StopCause.LEASE, 0) in actor.told()
    assert Close("stream") in actor.commands


def test_orders_from_before_the_lease_ended_are_dropped() -> None:
    """A process that slept longer than its lease finds old orders in its buffers: none is carried out."""
    for item in (RunAttempt(order("a1")), DesiredAttempts(1, (order("a1"),))):
        actor = Actor().connect()
        actor.ctx.at(SECOND + LEASE)
        actor.arrive(item)
        assert actor.told() == []
        assert Close("stream") in actor.commands


def test_a_lease_of_zero_never_ends() -> None:
    """The protocol's word for never."""
    actor = Actor().connect(lease_ns=0)
    actor.tell(AttemptReport(seen("a1")))
    actor.ctx.at(10**18)
    assert actor.tell(Due("lease")) == ()
    actor.arrive(RunAttempt(order("a2")))
    assert actor.told() == [RunAttempt(order("a2"))]


def test_the_lease_holds_without_a_stream_too() -> None:
    """A worker that never reached its controller ends what it adopted, once per lease."""
    actor = Actor()
    actor.tell(AttemptReport(seen("a1")))
    actor.ctx.at(SECOND + LEASE)
    actor.tell(Due("lease"))
    assert actor.told() == [StopAll(StopCause.LEASE, 0)]


def test_a_stream_that_cannot_keep_up_is_given_up() -> None:
    """The next one says everything again, so nothing is lost."""
    actor = Actor().connect()
    actor.tell(FeedRefused("stream", HeldChanged(seen("a1"))))
    assert Close("stream") in actor.commands
    assert actor.tell(FeedRefused("stream", HeldChanged(seen("a1")))) == ()


@pytest.mark.parametrize("retry_ns", [0, 5 * SECOND])
def test_being_turned_away(retry_ns: int) -> None:
    """With a time it dials again no earlier, and at most half later; without one it ends its attempts and leaves."""
    actor = Actor()
    actor.tell(Holding(()))
    actor.tell(AttemptReport(seen("a1")))
    away = TurnedAway("busy", "later", retry_ns)
    actor.arrive(away)
    actor.tell(Closed("stream", None))
    if retry_ns:
        (pause,) = [each.delay for each in actor.commands if isinstance(each, SetTimer)]
        assert retry_ns + FIRST_PAUSE_NS <= pause <= 1.5 * retry_ns + 2 * FIRST_PAUSE_NS
        return
    assert [each.cause for each in actor.told()] == [StopCause.FENCED]
    assert not actor.emitted(Left)
    actor.tell(AttemptReport(seen("a1", AttemptPhase.ENDED)))
    assert actor.emitted(Left) == [Left(away)]


def test_leaving_delivers_before_it_says_goodbye() -> None:
    """End all, flush, goodbye, hang up; new orders are not taken meanwhile."""
    actor = Actor().connect()
    actor.tell(AttemptReport(seen("a1")))
    actor.tell(Leave("drained", 5, 7))
    assert actor.told() == [StopAll(StopCause.DRAINING, 5)]
    assert actor.arrive(RunAttempt(order("a2"))) == ()
    actor.tell(AttemptReport(seen("a1", AttemptPhase.ENDED)))
    assert actor.fed() == [HeldChanged(seen("a1", AttemptPhase.ENDED)), Flush()]
    actor.arrive(Flushed())
    assert actor.fed() == [Goodbye("drained")]
    actor.tell(Closed("stream", None))
    assert actor.emitted(Left) == [Left()]


def test_leaving_without_a_stream_waits_for_the_attempts_only() -> None:
    """There is nobody to deliver to."""
    actor = Actor()
    actor.tell(Holding(()))
    actor.tell(Leave("drained", 5, 7))
    assert actor.emitted(Left) == [Left()]


def test_leaving_is_bounded() -> None:
    """A controller that acknowledges nothing does not keep the worker."""
    actor = Actor().connect()
    actor.tell(Leave("drained", 5, 7))
    assert SetTimer("flush", 7, Due("flush")) in actor.commands
    actor.tell(Due("flush"))
    assert actor.emitted(Left) == [Left()]


@given(st.lists(st.tuples(st.sampled_from(["ack", "beat", "lease", "pass"]), st.integers(0, 3 * SECOND)), max_size=40))
def test_attempts_are_killed_when_and_only_when_the_lease_is_over(steps: list) -> None:
    """Whatever the order of beats and acknowledgements: killed exactly if the last acknowledged beat is too old."""
    actor = Actor().connect()
    actor.tell(AttemptReport(seen("a1")))
    sent, contact = {actor.state.sequence: actor.ctx.now}, actor.ctx.now
    for step, pause in steps:
        actor.ctx.at(actor.ctx.now + pause)
        match step:
            case "beat" if actor.state.session_id:
                actor.tell(Due("beat"))
                sent[actor.state.sequence] = actor.ctx.now
            case "ack" if actor.state.session_id:
                newest = max(sent)
                actor.arrive(HeartbeatAcked(newest))
                contact = max(contact, sent[newest])
            case "lease":
                actor.tell(Due("lease"))
                assert (StopAll(StopCause.LEASE, 0) in actor.told()) == (actor.ctx.now - contact >= LEASE)
        assert set(actor.held()) <= {contact + LEASE}, "what is written down is never later than that"
        assert not any(isinstance(each, StopAttempt) for each in actor.told())


def test_the_controller_says_how_often_to_beat() -> None:
    """With the welcome, and with any acknowledgement from the next beat on; one that does not say leaves it."""
    actor = Actor().connect()

    def pause() -> int:
        actor.tell(Due("beat"))
        [delay] = [each.delay for each in actor.commands if isinstance(each, SetTimer) and each.key == "beat"]
        return delay

    before = pause()
    for told, wanted in ((7 * SECOND, 7 * SECOND), (0, 7 * SECOND), (1, MIN_HEARTBEAT_NS), (before, before)):
        actor.arrive(HeartbeatAcked(actor.state.sequence, told))
        assert pause() == wanted


def test_each_contact_moves_the_end_that_is_written_down() -> None:
    """From when the worker dialled, then from when an acknowledged heartbeat was sent; never from now."""
    actor = Actor()
    actor.tell(Holding(()))
    actor.ctx.at(3 * SECOND)
    actor.arrive(Welcomed("s1", SECOND, LEASE))
    assert actor.held() == [SECOND + LEASE]
    actor.ctx.at(5 * SECOND)
    actor.arrive(HeartbeatAcked(actor.state.sequence))
    assert actor.held() == [3 * SECOND + LEASE]
    actor.arrive(HeartbeatAcked(actor.state.sequence))
    assert actor.held() == [], "the same again says nothing new"
    assert actor.tell(Completed("lease", HoldLease(1), None)) == ()


def test_a_lease_without_an_end_is_written_as_such() -> None:
    """Both sides of the file mean the same by it."""
    actor = Actor()
    actor.tell(Holding(()))
    actor.arrive(Welcomed("s1", SECOND, 0))
    assert actor.held() == [NEVER_NS]
    assert NEVER_NS == lease_file.NEVER_NS


def test_a_lease_that_cannot_be_written_is_told() -> None:
    """It is in the log, not the end of the worker: the next heartbeat tries again."""
    actor = Actor().connect()
    actor.tell(Failed("lease", HoldLease(1), WorkerTrouble("no disk")))
    assert actor.emitted(LeaseNotWritten) == [LeaseNotWritten("WorkerTrouble: no disk")]


@pytest.mark.parametrize("granted", [0, 5 * SECOND, 20 * SECOND - 1])
def test_a_restart_gives_no_lease_of_its_own(granted: int) -> None:
    """The process that comes after the lease ended kills what it finds, without waiting for anybody."""
    actor = Actor(granted, now=20 * SECOND)
    assert SetTimer("lease", 0, Due("lease")) in actor.commands
    actor.tell(Holding(("a1",)))
    actor.tell(AttemptReport(seen("a1")))
    assert StopAttempt("a1", StopCause.LEASE, 0) in actor.told()
    actor.tell(Due("lease"))
    assert StopAll(StopCause.LEASE, 0) in actor.told()


def test_a_restart_goes_on_with_what_is_left_of_the_lease() -> None:
    """What is found lives on, for as long as it might have without the restart."""
    actor = Actor(20 * SECOND, now=17 * SECOND)
    assert SetTimer("lease", 3 * SECOND, Due("lease")) in actor.commands
    actor.tell(Holding(("a1",)))
    actor.tell(AttemptReport(seen("a1")))
    assert actor.told() == []
    actor.ctx.at(20 * SECOND)
    actor.tell(Due("lease"))
    assert actor.told() == [StopAll(StopCause.LEASE, 0)]


def test_a_lease_longer_than_the_next_is_not_carried_over() -> None:
    """A restart below a long lease, then a controller with a short one: it counts from the dial."""
    actor = Actor(1000 * SECOND, now=17 * SECOND)
    actor.tell(Holding(()))
    actor.arrive(Welcomed("s1", SECOND, LEASE))
    assert actor.held() == [17 * SECOND + LEASE]


def test_a_restart_without_a_lease_waits_for_the_next() -> None:
    """What was found ran without a lease, so it does."""
    actor = Actor(NEVER_NS).connect()
    assert actor.held() == [SECOND + LEASE]
    assert Actor(NEVER_NS).tell(Due("lease")) == ()


def test_without_any_controller_for_long_the_worker_ends_itself() -> None:
    """Its attempts first; there is nobody to say goodbye to."""
    actor = Actor(orphan_ns=30 * SECOND)
    assert actor.orphan_timer()
    actor.connect().tell(AttemptReport(seen("a1")))
    actor.tell(Closed("stream", None))
    actor.tell(Due("orphan"))
    assert actor.emitted(Orphaned) == [Orphaned(30 * SECOND)]
    [stop] = actor.told()
    assert (stop.cause, type(stop)) == (StopCause.DRAINING, StopAll)
    assert actor.emitted(Left) == []
    actor.tell(AttemptReport(seen("a1", AttemptPhase.ENDED)))
    assert actor.emitted(Left) == [Left(None, orphaned=True)]
    assert actor.tell(Due("orphan")) == ()


def test_any_word_of_a_controller_counts() -> None:
    """A welcome, an acknowledgement, a refusal for now: the time begins anew. A broken stream is no word."""
    actor = Actor(orphan_ns=30 * SECOND).connect()
    assert actor.orphan_timer()
    actor.arrive(HeartbeatAcked(actor.state.sequence))
    assert actor.orphan_timer()
    actor.arrive(TurnedAway("busy", "later", 5))
    assert actor.orphan_timer()
    actor.tell(Closed("stream", None))
    assert not actor.orphan_timer()


def test_by_default_a_worker_waits_for_ever() -> None:
    """Somebody else decides how long its pod lives."""
    actor = Actor()
    assert not actor.orphan_timer()
    assert not actor.connect().orphan_timer()
