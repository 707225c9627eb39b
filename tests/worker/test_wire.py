"""Between the worker's words and the protocol's: every word has its translation, and the controller reads it back."""

import pytest

from iriscw.cloud.model import Attributes, Capacity
from iriscw.controller import wire as controllers
from iriscw.jobs.model import Ending, GangPlace
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw.worker import wire
from iriscw.worker.messages import (
    Changed,
    ContinueAttempt,
    Desired,
    Flush,
    ForgetAttempt,
    Goodbye,
    Heartbeat,
    HeartbeatAcked,
    ObservedAll,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    TurnedAway,
    Welcomed,
)
from iriscw.worker.model import (
    Fault,
    Observation,
    Order,
    Phase,
    RefusalReason,
    ResultFacts,
    Resumption,
    StopCause,
)


def ended(ending: Ending, **changes: object) -> Observation:
    kind = "TaskTimeout" if ending is Ending.TIMED_OUT else "Kind"
    fault = None if ending is Ending.SUCCEEDED else Fault(kind, "text")
    return Observation("a1", Phase.ENDED, **{"was_started": True, "ending": ending, "fault": fault, **changes})


@pytest.mark.parametrize("ending", list(Ending))
def test_the_controller_reads_every_ending(ending: Ending) -> None:
    """What the worker says of an end is what jobs hear of it."""
    assert controllers.ending_of(wire.observed(ended(ending))) is ending


@pytest.mark.parametrize(
    ("state", "was_started", "ending"),
    [
        (v1.TaskState.FAILED, True, Ending.FAILED),
        (v1.TaskState.WORKER_FAILED, True, Ending.WORKER_LOST),
        (v1.TaskState.WORKER_FAILED, False, Ending.REFUSED),
        (v1.TaskState.COSCHED_FAILED, True, Ending.GANG_STOPPED),
        (v1.TaskState.RUNNING, True, None),
    ],
)
@pytest.mark.parametrize("told", [v1.Ending.UNSPECIFIED, v1.Ending(99)])
def test_a_worker_of_another_version(state, was_started, ending, told) -> None:
    """Who says no ending, or one that is not known here, is read by the state."""
    sent = v1.AttemptObserved(attempt_uid="a1", state=state, was_started=was_started, ending=told)
    assert controllers.ending_of(sent) is ending


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_no_live_phase_is_an_end(phase: Phase) -> None:
    """Whatever a live attempt is doing, the controller does not take it for over."""
    assert controllers.ending_of(wire.observed(Observation("a1", phase))) is None


def test_an_observation_whole() -> None:
    """Every field arrives: milliseconds, signals, results, ports."""
    seen = ended(
        Ending.FAILED,
        exit_signal=9,
        log_bytes=7,
        started_wall_ns=3 * MILLISECOND,
        ended_wall_ns=5 * MILLISECOND,
        ports=(("web", 80),),
        result=ResultFacts(2, "ab" * 32, "3.11"),
        gpus=("GPU-2", "GPU-1"),
    )
    assert wire.observed(seen) == v1.AttemptObserved(
        attempt_uid="a1",
        ending=v1.Ending.FAILED,
        state=v1.TaskState.FAILED,
        exit=v1.ProcessExit(signal=9),
        fault=v1.Fault(kind="Kind", text="text"),
        log_end_offset=7,
        result=v1.ResultRef(size_bytes=2, sha256=bytes.fromhex("ab" * 32), python_version="3.11"),
        started_at_ms=3,
        finished_at_ms=5,
        ports={"web": 80},
        was_started=True,
        gpus=["GPU-2", "GPU-1"],
    )
    assert controllers.observation(wire.observed(seen), logs_stored=7).gpus == seen.gpus


def test_of_a_long_fault_the_end_is_told() -> None:
    """What the controller would cut off does not travel: a set of many long faults would be refused as a whole."""
    text = "begin" + "x" * wire.MAX_TOLD_CHARS + "the last line"
    told = wire.observed(ended(Ending.FAILED, fault=Fault("ValueError", text))).fault
    assert told is not None
    assert told.text == text[-wire.MAX_TOLD_CHARS :]
    assert wire.MAX_TOLD_CHARS == controllers.MAX_FAULT_CHARS


def test_upward() -> None:
    """Each item is one message; what only the stream reads is none."""
    seen = Observation("a1", Phase.RUNNING)
    assert wire.up(Heartbeat(3)).heartbeat.sequence == 3
    assert wire.up(ObservedAll(2, (seen,))).observed_set.attempts == [wire.observed(seen)]
    assert wire.up(Changed(seen)).observed == wire.observed(seen)
    assert wire.up(Goodbye("so long")).goodbye.reason == "so long"
    assert wire.up(Flush()) is None
    assert wire.amount(Capacity(1, 2, 3, 4, "H100")) == v1.Amount(
        cpu_milli=1, memory_bytes=2, disk_bytes=3, gpu_count=4, gpu_class="H100"
    )
    pairs = wire.attributes(Attributes((("zone", "z"), ("rank", 3))))
    assert pairs == {"zone": v1.AttributeValue(text="z"), "rank": v1.AttributeValue(number=3)}


def test_downward() -> None:
    """Each message is one item; data is none."""
    sent = v1.RunAttempt(
        attempt_uid="a1", specification_hash=b"\xab", task_id="j/1", task_index=1, attempt_number=2, token="t"
    )
    meant = Order("a1", "ab", "j/1", 1, 2, (), "t")
    assert wire.down(v1.ControllerMessage(run=sent)) == RunAttempt(meant)
    assert wire.down(v1.ControllerMessage(desired_set=v1.DesiredSet(round=4, attempts=[sent]))) == Desired(4, (meant,))
    stop = v1.StopAttempt(attempt_uid="a1", reason=v1.StopReason.COSCHED_FAILED, grace_ms=5)
    assert wire.down(v1.ControllerMessage(stop=stop)) == StopAttempt("a1", StopCause.GANG, 5 * MILLISECOND)
    assert wire.down(v1.ControllerMessage(forget=v1.ForgetAttempt(attempt_uid="a1"))) == ForgetAttempt("a1")
    assert wire.down(v1.ControllerMessage(heartbeat_ack=v1.HeartbeatAck(sequence=6))) == HeartbeatAcked(6)
    ack = v1.HeartbeatAck(sequence=6, heartbeat_interval_ms=5)
    assert wire.down(v1.ControllerMessage(heartbeat_ack=ack)) == HeartbeatAcked(6, 5 * MILLISECOND)
    refused = v1.Refused(reason=v1.RefusalReason.BUSY, text="later", retry_after_ms=2)
    assert wire.down(v1.ControllerMessage(refused=refused)) == TurnedAway(RefusalReason.BUSY, "later", 2 * MILLISECOND)
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
    phases = {
        Phase.SUSPENDING: v1.Suspension.SUSPENDING,
        Phase.SUSPENDED: v1.Suspension.SUSPENDED,
        Phase.RESUMING: v1.Suspension.RESUMING,
        Phase.REVOKING: v1.Suspension.RESUMING,
        Phase.RUNNING: v1.Suspension.UNSPECIFIED,
    }
    for phase, suspension in phases.items():
        told = wire.observed(Observation("a1", phase, True, folder="/w/a1"))
        assert (told.state, told.suspension, told.folder) == (v1.TaskState.RUNNING, suspension, "/w/a1")
    assert wire.down(v1.ControllerMessage(suspend=v1.SuspendAttempt(attempt_uid="a1"))) == SuspendAttempt("a1")
    assert wire.down(v1.ControllerMessage(continue_=v1.ContinueAttempt(attempt_uid="a1"))) == ContinueAttempt("a1")
    resumption = v1.Resumption(
        grant="g1", folder="/w/a1", started_at_ms=5, timeout_ms=7, paused_ms=-3, ports={"web": 80, "api": 81}
    )
    resumption.gpus = ["GPU-2", "GPU-1"]
    order = wire.order(v1.RunAttempt.parse(bytes(v1.RunAttempt(attempt_uid="a1", resumption=resumption))))
    meant = Resumption(
        "g1", "/w/a1", 5 * MILLISECOND, 7 * MILLISECOND, 0, (("api", 81), ("web", 80)), ("GPU-2", "GPU-1")
    )
    assert order.resumption == meant
    assert wire.order(v1.RunAttempt(attempt_uid="a1")).resumption is None


def test_where_a_member_of_a_gang_stands_crosses_the_wire() -> None:
    """As the controller writes it; of a job that is not a gang there is nothing."""
    place = GangPlace(1, 2, 3, 4, leads=False, waits=True, leader_host="10.0.0.1", leader_port=9)
    sent = v1.RunAttempt(attempt_uid="a1", gang=controllers._gang_place(place))
    order = wire.order(v1.RunAttempt.parse(bytes(sent)))
    assert (order.gang, order.waits) == (place, True)
    assert wire.order(v1.RunAttempt(attempt_uid="a1")).gang is None


def test_where_an_attempt_is_reached_crosses_the_wire() -> None:
    """Host, ports and meeting point; a port that cannot be is none, and a host is no longer than a name is."""
    seen = Observation("a1", Phase.RUNNING, True, 5, (("web", 80),), host="10.0.0.1", rendezvous_port=9)
    read = controllers.observation(v1.AttemptObserved.parse(bytes(wire.observed(seen))), logs_stored=0)
    assert (read.host, read.ports, read.rendezvous_port) == ("10.0.0.1", (("web", 80),), 9)
    lies = v1.AttemptObserved(attempt_uid="a1", host="x" * 1000, rendezvous_port=70_000)
    read = controllers.observation(lies, logs_stored=0)
    assert (len(read.host), read.rendezvous_port) == (255, 0)
