"""Between the worker's words and the protocol's: every word has its translation."""

import pytest

from iriscw.dialling.messages import Heartbeat, HeartbeatAcked, TurnedAway, Welcomed
from iriscw.jobs import wire as jobs
from iriscw.jobs.model import GangPlace, Observation, Resumption, Suspension, TaskState
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw.worker import wire
from iriscw.worker.messages import (
    ContinueAttempt,
    DesiredAttempts,
    Flush,
    ForgetAttempt,
    Goodbye,
    HeldChanged,
    ObservedAll,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    WithdrawGrant,
)
from iriscw.worker.model import SEEN_AS, AttemptPhase, Order, StopCause


@pytest.mark.parametrize("phase", [phase for phase in AttemptPhase if phase is not AttemptPhase.ENDED])
def test_no_live_phase_is_an_end(phase: AttemptPhase) -> None:
    """Whatever a live attempt is doing, the controller does not take it for over."""
    state, suspension = SEEN_AS[phase]
    sent = jobs.observation(Observation("a1", state, suspension=suspension))
    assert jobs.ending_of(sent) is None
    assert jobs.read_observation(sent, logs_stored=0).state is state


def test_upward() -> None:
    """Each item is one message; what only the stream reads is none."""
    seen = Observation("a1", TaskState.RUNNING, started=True)
    assert wire.up(Heartbeat(3)).heartbeat.sequence == 3
    assert wire.up(ObservedAll(2, (seen,))).observed_set.attempts == [jobs.observation(seen)]
    assert wire.up(HeldChanged(seen)).observed == jobs.observation(seen)
    assert wire.up(Goodbye("so long")).goodbye.reason == "so long"
    assert wire.up(Flush()) is None


def test_downward() -> None:
    """Each message is one item; data is none."""
    sent = v1.RunAttempt(
        attempt_uid="a1", specification_hash=b"\xab", task_id="j/1", task_index=1, attempt_number=2, token="t"
    )
    meant = Order("a1", "ab", "j/1", 1, 2, (), "t")
    assert wire.down(v1.ControllerMessage(run=sent)) == RunAttempt(meant)
    assert wire.down(v1.ControllerMessage(desired_set=v1.DesiredSet(round=4, attempts=[sent]))) == DesiredAttempts(
        4, (meant,)
    )
    stop = v1.StopAttempt(attempt_uid="a1", reason=v1.StopReason.COSCHED_FAILED, grace_ms=5)
    assert wire.down(v1.ControllerMessage(stop=stop)) == StopAttempt("a1", StopCause.GANG, 5 * MILLISECOND)
    assert wire.down(v1.ControllerMessage(forget=v1.ForgetAttempt(attempt_uid="a1"))) == ForgetAttempt("a1")
    assert wire.down(v1.ControllerMessage(heartbeat_ack=v1.HeartbeatAck(sequence=6))) == HeartbeatAcked(6)
    ack = v1.HeartbeatAck(sequence=6, heartbeat_interval_ms=5)
    assert wire.down(v1.ControllerMessage(heartbeat_ack=ack)) == HeartbeatAcked(6, 5 * MILLISECOND)
    refused = v1.Refused(reason=v1.RefusalReason.BUSY, text="later", retry_after_ms=2)
    assert wire.down(v1.ControllerMessage(refused=refused)) == TurnedAway("busy", "later", 2 * MILLISECOND)
    assert wire.down(v1.ControllerMessage(log_ack=v1.LogAck())) is None
    welcome = v1.Welcome(session_id="s", heartbeat_interval_ms=2, lease_ms=3)
    assert wire.welcomed(welcome) == Welcomed("s", 2 * MILLISECOND, 3 * MILLISECOND)


def test_no_token_is_shown() -> None:
    """An order prints without its secrets."""
    text = repr(wire.order(v1.RunAttempt(attempt_uid="a1", token="secret", environment={"A": "hidden"})))
    assert "secret" not in text
    assert "hidden" not in text


@pytest.mark.parametrize("content", [b"\xff\xff\xff", bytes(v1.TaskSpecification(job_id="j"))])
def test_a_specification_that_is_none(content: bytes) -> None:
    """Damaged bytes, and one that says nothing to run, are refused by name."""
    with pytest.raises(wire.MalformedSpecification):
        wire.specification(content)


def test_suspending_and_resuming() -> None:
    """To whoever does not look at the suspension such an attempt runs; a grant keeps all that was told."""
    for suspension in Suspension:
        told = jobs.observation(Observation("a1", TaskState.RUNNING, suspension=suspension, folder="/w/a1"))
        assert (told.state, told.folder) == (v1.TaskState.RUNNING, "/w/a1")
        assert jobs.read_observation(told, logs_stored=0).suspension is suspension
    assert wire.down(v1.ControllerMessage(suspend=v1.SuspendAttempt(attempt_uid="a1"))) == SuspendAttempt("a1")
    assert wire.down(v1.ControllerMessage(continue_=v1.ContinueAttempt(attempt_uid="a1"))) == ContinueAttempt("a1")
    withdraw = v1.ControllerMessage(withdraw=v1.WithdrawGrant(attempt_uid="a1", grant="g1"))
    assert wire.down(v1.ControllerMessage.parse(bytes(withdraw))) == WithdrawGrant("a1", "g1")
    told = jobs.observation(
        Observation("a1", TaskState.RUNNING, suspension=Suspension.SUSPENDED, withdrawn="g1", withdrawn_reason="no")
    )
    read = jobs.read_observation(told, logs_stored=0)
    assert (read.withdrawn, read.withdrawn_reason) == ("g1", "no")
    resumption = v1.Resumption(
        grant="g1", folder="/w/a1", started_at_ms=5, timeout_ms=7, paused_ms=-3, ports={"web": 80, "api": 81}
    )
    resumption.gpus = ["GPU-2", "GPU-1"]
    order = wire.order(v1.RunAttempt.parse(bytes(v1.RunAttempt(attempt_uid="a1", resumption=resumption))))
    meant = Resumption(
        "g1", "/w/a1", 5 * MILLISECOND, 0, (("api", 81), ("web", 80)), ("GPU-2", "GPU-1"), timeout_ns=7 * MILLISECOND
    )
    assert order.resumption == meant
    assert wire.order(v1.RunAttempt(attempt_uid="a1")).resumption is None


def test_where_a_member_of_a_gang_stands_crosses_the_wire() -> None:
    """As the controller writes it; of a job that is not a gang there is nothing."""
    place = GangPlace(1, 2, 3, 4, leads=False, waits=True, leader_host="10.0.0.1", leader_port=9)
    sent = v1.RunAttempt(attempt_uid="a1", gang=jobs._gang_place(place))
    order = wire.order(v1.RunAttempt.parse(bytes(sent)))
    assert (order.gang, order.waits) == (place, True)
    assert wire.order(v1.RunAttempt(attempt_uid="a1")).gang is None
