"""Messages of the wire and values say the same, and nothing unknown gets through."""

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.client.model import AmountStatus, JobStatus, ProgressStatus
from iriscw.client.wire import job_status as read_job, submit_request, task_status as read_task
from iriscw.cloud.model import Capacity, Mode, Op
from iriscw.cloud.wire import read_amount
from iriscw.jobs import wire
from iriscw.jobs.messages import JobRow, JobTally, JobView, TaskRow
from iriscw.jobs.model import (
    Attempt,
    AttemptEnd,
    Band,
    Ending,
    Entrypoint,
    EntrypointKind,
    Existing,
    JobSpec,
    JobState,
    Observation,
    Preemption,
    RunOrder,
    TaskState,
)
from iriscw.jobs.traits import MAX_DETAIL_CHARS, Fault, ResultFacts
from iriscw.proto.iriscw import v1
from iriscw.rpc.encoding import decode, encode
from iriscw.runtime.vocabulary import MILLISECOND

ENTRYPOINT = Entrypoint(EntrypointKind.COMMAND, "0" * 64)


def test_job_spec() -> None:
    """A submission is read field by field; what is absent is the default, what is 0 is 0."""
    sent = v1.SubmitJobRequest(
        name="n",
        replicas=3,
        resources=v1.Amount(cpu_milli=5),
        environment={"A": "b"},
        ports=["p"],
        constraints=[
            v1.Constraint(
                key="k", op=v1.ConstraintOp.IN, values=[v1.AttributeValue(text="x"), v1.AttributeValue(number=2)]
            ),
            v1.Constraint(key="l", op=v1.ConstraintOp.EXISTS, mode=v1.ConstraintMode.PREFERRED),
        ],
        coscheduling=v1.Coscheduling(group_by="slice-id"),
        priority=v1.PriorityBand.PRODUCTION,
        timeout_ms=1500,
        max_retries_preemption=0,
        max_task_failures=2,
    )
    spec = wire.job_spec(sent, ENTRYPOINT, "job-parent")
    assert (spec.name, spec.replicas, spec.demand.cpu_milli, spec.environment) == ("n", 3, 5, (("A", "b"),))
    assert [(each.op, each.values, each.mode) for each in spec.constraints] == [
        (Op.IN, ("x", "2"), Mode.REQUIRED),
        (Op.EXISTS, (), Mode.PREFERRED),
    ]
    assert (spec.group_by, spec.band, spec.timeout_ns) == ("slice-id", Band.PRODUCTION, 1_500_000_000)
    assert (spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (0, 0, 2)
    assert (spec.parent_job_id, spec.detached) == ("job-parent", False)
    assert wire.job_spec(v1.SubmitJobRequest(name="n", detached=True), ENTRYPOINT, "job-parent").detached
    default = wire.job_spec(v1.SubmitJobRequest(name="n"), ENTRYPOINT, "")
    assert (default.max_retries_preemption, default.group_by, default.band) == (100, None, Band.INTERACTIVE)
    for mode in Preemption:
        spec = attrs.evolve(default, preemption=mode)
        sent = submit_request(spec, v1.Entrypoint(), key="k", existing=Existing.ERROR)
        assert wire.job_spec(sent, ENTRYPOINT, "").preemption is mode
    assert default.preemption is Preemption.KILL, "of a client that says nothing"


def test_a_task_that_gave_way_says_for_whom_and_what_it_waits_for() -> None:
    """Others that wait again say how they ended, and those that never ran what they wait for."""
    end = AttemptEnd(Ending.PREEMPTED, fault=Fault("", "it gave way to serve (production)"))
    attempt = Attempt("u", 1, "w", "a", TaskState.RUNNING, 1, end=end)
    row = TaskRow(0, TaskState.PENDING, reason=end.reason, attempt=attempt)
    assert wire.task_status("job-a", row, "no room").reason == "it gave way to serve (production); no room"
    failed = attrs.evolve(attempt, end=AttemptEnd(Ending.FAILED))
    assert wire.task_status("job-a", attrs.evolve(row, reason="boom", attempt=failed), "no room").reason == "boom"
    assert wire.task_status("job-a", TaskRow(0, TaskState.PENDING), "no room").reason == "no room"


@pytest.mark.parametrize(
    ("state", "started", "kind", "ending"),
    [
        ("RUNNING", True, "", None),
        ("BUILDING", False, "", None),
        ("ASSIGNED", False, "", None),
        ("UNSPECIFIED", False, "", None),
        ("SUCCEEDED", True, "", Ending.SUCCEEDED),
        ("FAILED", True, "ValueError", Ending.FAILED),
        ("FAILED", False, "ProgramMissing", Ending.FAILED),
        ("KILLED", True, "", Ending.KILLED),
        ("PREEMPTED", True, "", Ending.PREEMPTED),
        ("WORKER_FAILED", True, "", Ending.WORKER_LOST),
        ("WORKER_FAILED", False, "", Ending.REFUSED),
        ("COSCHED_FAILED", True, "", Ending.GANG_STOPPED),
        ("MISSING", False, "", Ending.MISSING),
    ],
)
def test_endings(state: str, started: bool, kind: str, ending: Ending | None) -> None:
    """Each end that a worker reports is read as what follows from it."""
    fault = v1.Fault(kind=kind, text="first\nlast") if kind else None
    sent = v1.AttemptObserved(attempt_uid="u", state=v1.TaskState[state], was_started=started, fault=fault)
    found = wire.read_observation(sent, logs_stored=4)
    assert (found.ending, found.logs_stored) == (ending, 4)
    assert found.reason == (f"{kind}: last" if kind else "")
    assert found.details == ("first\nlast" if ending is Ending.FAILED and kind else "")
    assert found.state in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
    assert wire.read_observation(sent, logs_stored=0, with_end=False).ending is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one line", ""),
        ("a\nb\n", "a\nb"),
        ("\n".join(map(str, range(100))), "...\n" + "\n".join(map(str, range(60, 100)))),
        ("a\n" + "x" * 5000, "...\n" + "x" * 4096),
        ("  File\x1b[31m\nboom", "  File\x1b[31m\nboom"),
    ],
    ids=["line", "lines", "many", "long", "as-it-was-said"],
)
def test_faults_keep_their_last_lines(text: str, kept: str) -> None:
    """Of what the user's code said the last 40 lines are kept, or 4096 characters of them; the reason is one line."""
    fault = v1.Fault(kind="ValueError", text=text)
    sent = v1.AttemptObserved(attempt_uid="u", state=v1.TaskState.FAILED, was_started=True, fault=fault)
    found = wire.read_observation(sent, logs_stored=0)
    assert found.details == kept
    assert "\n" not in found.reason


def row_of(number: int, **more: object) -> Attempt:
    """An attempt that failed."""
    fields = {"end": AttemptEnd(Ending.FAILED, 1, Fault("", "boom")), "log_offset": 4}
    fields |= {"worker_id": "w", "incarnation": "a"}
    times = {
        f"{what}_wall_ns": (number * 10 + n) * MILLISECOND for n, what in enumerate(("placed", "started", "ended"))
    }
    return Attempt(f"u{number}", number, state=TaskState.RUNNING, **{**fields, **times, **more})


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("__main__.MyErr", "Traceback\nMyErr: a", "MyErr: a"),
        ("__main__.MyErr", "Traceback\nMyErr", "MyErr"),
        ("m.MyErr", "Traceback\nm.MyErr: a", "m.MyErr: a"),
        ("ValueError", "Traceback\nMyErrors: a", "ValueError: MyErrors: a"),
        ("ProgramFailed", "exit code 1", "ProgramFailed: exit code 1"),
        ("AttemptStopped", "stopped: it ended when it was told to", "stopped: it ended when it was told to"),
    ],
)
def test_a_reason_names_its_error_once(kind: str, text: str, reason: str) -> None:
    """A traceback's last line names the error already, with or without its module."""
    sent = v1.AttemptObserved(
        attempt_uid="u", state=v1.TaskState.FAILED, was_started=True, fault=v1.Fault(kind=kind, text=text)
    )
    assert wire.read_observation(sent, logs_stored=0).reason == reason


def test_attempts_are_written_newest_first() -> None:
    """A task has its latest attempt first, then the earlier ones, each with its times, exit, worker and fault."""
    latest = Attempt("u3", 3, "x", "a", TaskState.RUNNING, placed_wall_ns=7 * MILLISECOND, gpus=("GPU-1",))
    earlier = (
        row_of(2, end=AttemptEnd(Ending.FAILED, 1, Fault("", "a\nboom"))),
        row_of(1, end=AttemptEnd(Ending.REFUSED, fault=Fault("", "boom"))),
    )
    row = TaskRow(0, TaskState.RUNNING, failures=2, worker_id="x", attempt=latest, earlier=earlier)
    newest, second, first = wire.task_status("job-a", row, "").attempts
    assert (newest.attempt_uid, newest.attempt_number, newest.state) == ("u3", 2, v1.TaskState.RUNNING)
    assert (newest.placed_at_ms, newest.fault, newest.exit) == (7, None, None)
    assert (second.attempt_number, second.worker_id, second.exit.code, second.fault.text) == (1, "w", 1, "a\nboom")
    assert (second.placed_at_ms, second.started_at_ms, second.finished_at_ms) == (20, 21, 22)
    assert (first.state, first.exit, first.fault.kind) == (v1.TaskState.WORKER_FAILED, None, "REFUSED")
    assert first.fault.text == "boom"
    assert (newest.reason, second.reason, first.reason) == ("", "boom", "boom")
    assert (newest.gpus, first.gpus) == (["GPU-1"], [])
    assert [each.ending.name for each in (newest, second, first)] == ["UNSPECIFIED", "FAILED", "REFUSED"]
    assert wire.said_chars(row) == len("boom") * 2 + len("a\nboom")


def test_why_an_attempt_ended_is_one_sentence_for_clients() -> None:
    """Beside what its code said in many lines; from a controller that says no reason it is the line that tells it."""
    row = TaskRow(
        0,
        TaskState.RUNNING,
        attempt=row_of(2, end=None),
        attempt_reason="worker out of reach",
        earlier=(row_of(1, end=AttemptEnd(Ending.FAILED, 1, Fault("", "a\nboom"))),),
    )
    sent = wire.task_status("job-a", row, "")
    lives, failed = read_task(sent).attempts
    assert (lives.ending, lives.reason, lives.fault) == (None, "worker out of reach", "")
    assert (failed.reason, failed.fault) == ("boom", "a\nboom")
    sent.attempts[1].reason, sent.attempts[1].fault.text = "", "Traceback:\n  x\nValueError: no"
    assert read_task(sent).attempts[1].reason == "ValueError: no"


@pytest.mark.parametrize(
    ("state", "waiting", "reason", "waits"),
    [
        (JobState.PENDING, 1, "", True),
        (JobState.RUNNING, 1, "", True),
        (JobState.RUNNING, 0, "", False),
        (JobState.RUNNING, 1, "worker out of reach", False),
        (JobState.KILLED, 1, "", False),
    ],
)
def test_a_listing_says_why_tasks_wait(state: JobState, waiting: int, reason: str, waits: bool) -> None:
    """The scheduler's reason is asked for where tasks wait and the job has none of its own; counts are by state."""
    counts = tuple((state, count) for state, count in ((TaskState.PENDING, waiting), (TaskState.RUNNING, 2)) if count)
    tally = JobTally(counts, failures=3, preemptions=4, started_wall_ns=5 * MILLISECOND)
    row = JobRow("job-a", "uid", "name", state, reason, 3, 1 * MILLISECOND, 0, tally)
    assert wire.waits(row) is waits
    written = wire.job_row(row, 7, "no room" if waits else "")
    assert written.reason == (reason or ("no room" if waits else ""))
    assert {each.state.name: each.count for each in written.tasks} == {state.name: count for state, count in counts}
    assert (written.failures, written.preemptions, written.started_at_ms, written.version) == (3, 4, 5, 7)
    asked = attrs.evolve(row, demand=Capacity(500, 1, 2, 3, "H100"), band=Band.BATCH, parent_job_id="job-p")
    written = wire.job_row(asked, 7)
    assert read_amount(written.resources) == asked.demand
    assert (written.priority, written.parent_job_id) == (v1.PriorityBand.BATCH, "job-p")


def test_a_failed_job_says_what_its_task_said() -> None:
    """A job's fault is the text of its failed task, or the reason where there is none; the reason stays a sentence."""
    spec = JobSpec("n", ENTRYPOINT, Capacity(1))
    view = JobView("job-a", "uid", spec, JobState.FAILED, "why", (), 1, 0, "", 1, 9, 5 * MILLISECOND, "a\nboom")
    written = wire.job_status(view, version=1, entrypoint="e")
    assert (written.reason, written.fault.text, written.started_at_ms) == ("why", "a\nboom", 5)
    assert wire.job_status(attrs.evolve(view, fault=""), version=1, entrypoint="e").fault.text == "why"


def test_a_client_reads_all_that_is_known_of_a_job() -> None:
    """No field is lost on the way: of a job by itself, and of one in a listing, which knows less."""
    counts, demand = ((TaskState.FAILED, 1), (TaskState.RUNNING, 2)), Capacity(1, 2, 3, 4, "H100")
    spec = JobSpec("n", ENTRYPOINT, demand, replicas=3, band=Band.BATCH, parent_job_id="job-p")
    times = {"submitted_wall_ns": 11 * MILLISECOND, "ended_wall_ns": 13 * MILLISECOND}
    started = {"started_wall_ns": 12 * MILLISECOND, "suspended": 2}
    view = JobView("job-a", "uid", spec, JobState.FAILED, "why", counts, 5, 6, "", **times, **started, fault="boom")
    far = v1.Progress(done_milli=1_500, total_milli=3_000, text="half")
    read = read_job(wire.job_status(view, version=7, entrypoint="python train.py", progress=far))
    assert read == JobStatus(
        "job-a", "uid", "n", JobState.FAILED, 7, 3, dict(counts), "why", "boom", "python train.py",
        AmountStatus(1, 2, 3, 4, "H100"), 5, 6, "BATCH", "job-p", 11, 12, 13, 2,
        ProgressStatus(1.5, 3, "half"),
    )  # fmt: skip
    tally = JobTally(counts, 5, 6, **started)
    row = JobRow("job-a", "uid", "n", JobState.FAILED, "why", 3, **times, tally=tally, demand=demand, band=Band.BATCH)
    listed = read_job(wire.job_row(attrs.evolve(row, parent_job_id="job-p"), 7))
    assert listed == attrs.evolve(read, fault="", entrypoint="", progress=None)
    assert [name for name, value in attrs.asdict(read, recurse=False).items() if not value] == []


def test_a_program_that_cannot_start_counts_as_failed() -> None:
    """A missing program is the job's failure: it uses up its retries instead of being tried for ever."""
    sent = v1.AttemptObserved(attempt_uid="u", state=v1.TaskState.FAILED, was_started=False)
    assert wire.read_observation(sent, logs_stored=0).started
    lost = v1.AttemptObserved(attempt_uid="u", state=v1.TaskState.WORKER_FAILED, was_started=False)
    assert not wire.read_observation(lost, logs_stored=0).started


@pytest.mark.parametrize(("sent", "code"), [(v1.ProcessExit(code=3), 3), (v1.ProcessExit(signal=9), -9), (None, None)])
def test_exit(sent: v1.ProcessExit | None, code: int | None) -> None:
    """A signal is a negative exit code."""
    observed = v1.AttemptObserved(attempt_uid="u", state=v1.TaskState.FAILED, exit=sent)
    assert wire.read_observation(observed, logs_stored=0).exit_code == code


def test_specification() -> None:
    """It says what all attempts of the job share, and gives the worker no timeout of its own."""
    spec = JobSpec("n", ENTRYPOINT, Capacity(1), environment=(("A", "job"),), timeout_ns=5)
    order = RunOrder("u", "job-x", "uid", 2, 1, spec, namespace="job-top")
    document = v1.TaskSpecification(
        entrypoint=v1.Entrypoint(command=v1.Command(argv=["x"])), bundle_id="b", image="own:1", freezable=True
    )
    found = wire.specification(order, document, {"A": "job", "B": "cluster"})
    assert found.environment == {"A": "job", "B": "cluster"}
    assert (found.bundle_id, found.timeout_ms, found.num_tasks, found.image) == ("b", 0, 1, "own:1")
    assert (found.freezable, found.namespace) == (True, "job-top")
    assert str(wire.of_freezable(spec).constraints[0]) == "freezable"  # only where a worker says that it can
    (own,) = wire.of_task_images(spec).constraints  # only where tasks have images
    assert (own.key, own.op.name, tuple(own.values)) == ("task-runtime", "IN", ("pod", "docker"))
    run = wire.run_attempt(order, b"h", "t")
    assert (run.task_id, run.task_index, run.attempt_number, run.token) == ("job-x/2", 2, 0, "t")


def test_tables_are_complete() -> None:
    """Every state and ending has a word on the wire."""
    assert wire.ENDED_AS.keys() == set(Ending)
    for state in JobState:
        assert wire.job_states([v1.JobState[state.name]]) == (state,)
    assert all(wire.stop_reason(ending) for ending in Ending)


@given(st.integers(0, (1 << 63) - 1))
def test_a_heartbeat_is_acknowledged_as_the_library_would(sequence: int) -> None:
    """The bytes that answer a heartbeat's are those of the message that acknowledges it."""
    beat = encode(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence)))
    ack = encode(v1.ControllerMessage(heartbeat_ack=v1.HeartbeatAck(sequence=sequence)))
    assert wire.heartbeat_ack(beat) == (ack if sequence else None), "a sequence of 0 has no bytes"


@given(st.binary(max_size=16) | st.binary(max_size=12).map(lambda rest: bytes([0x12, len(rest) + 1, 0x08]) + rest))
def test_other_bytes_are_left_to_the_library(data: bytes) -> None:
    """Only what reads as a heartbeat of one sequence is answered by its bytes, and with that sequence."""
    ack = wire.heartbeat_ack(data)
    if ack is not None:
        read = decode(data, v1.WorkerMessage)
        assert read == v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=read.heartbeat.sequence))
        assert decode(ack, v1.ControllerMessage).heartbeat_ack == v1.HeartbeatAck(sequence=read.heartbeat.sequence)


def ended(ending: Ending, exit_code: int | None = None, fault: Fault | None = None, **changes: object) -> Observation:
    kind = "TaskTimeout" if ending is Ending.TIMED_OUT else "Kind"
    said = None if ending is Ending.SUCCEEDED else Fault(kind, "text")
    end = AttemptEnd(ending, exit_code, fault or said)
    return Observation("a1", TaskState.RUNNING, end, **{"started": True, **changes})


@pytest.mark.parametrize("ending", list(Ending))
def test_the_controller_reads_every_ending(ending: Ending) -> None:
    """What the worker says of an end is what jobs hear of it."""
    assert wire.ending_of(wire.observation(ended(ending))) is ending


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
    assert wire.ending_of(sent) is ending


def test_an_observation_whole() -> None:
    """Every field arrives: milliseconds, signals, results, ports."""
    seen = ended(
        Ending.FAILED,
        exit_code=-9,
        log_offset=7,
        process_started_wall_ns=3 * MILLISECOND,
        process_ended_wall_ns=5 * MILLISECOND,
        ports=(("web", 80),),
        result=ResultFacts(2, "ab" * 32, "3.11"),
        gpus=("GPU-2", "GPU-1"),
    )
    assert wire.observation(seen) == v1.AttemptObserved(
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
    read = wire.read_observation(wire.observation(seen), logs_stored=7)
    assert attrs_of(read) == {**attrs_of(seen), "logs_stored": 7, "result": None}


def test_of_a_long_fault_the_end_is_told() -> None:
    """What the controller would cut off does not travel: a set of many long faults would be refused as a whole."""
    text = "begin" + "x" * MAX_DETAIL_CHARS + "the last line"
    told = wire.observation(ended(Ending.FAILED, fault=Fault("ValueError", text))).fault
    assert told is not None
    assert told.text == text[-MAX_DETAIL_CHARS:]


def test_where_an_attempt_is_reached_crosses_the_wire() -> None:
    """Host, ports and meeting point; a port that cannot be is none, and a host is no longer than a name is."""
    seen = Observation("a1", TaskState.RUNNING, started=True, ports=(("web", 80),), host="10.0.0.1", rendezvous_port=9)
    read = wire.read_observation(v1.AttemptObserved.parse(bytes(wire.observation(seen))), logs_stored=0)
    assert (read.host, read.ports, read.rendezvous_port) == ("10.0.0.1", (("web", 80),), 9)
    lies = v1.AttemptObserved(attempt_uid="a1", host="x" * 1000, rendezvous_port=70_000)
    read = wire.read_observation(lies, logs_stored=0)
    assert (len(read.host), read.rendezvous_port) == (255, 0)


def attrs_of(seen: Observation) -> dict[str, object]:
    """Its fields, by name."""
    return {name: getattr(seen, name) for name in Observation.__slots__}


def test_of_what_did_not_fail_by_itself_a_sentence_is_kept() -> None:
    """Only a failure of the user's code has more to say than fits into one line."""
    fault = Fault("Kind", "first\nlast")
    assert wire.read_observation(wire.observation(ended(Ending.FAILED, fault=fault)), logs_stored=0).end.fault == fault
    stopped = wire.read_observation(wire.observation(ended(Ending.KILLED, fault=fault)), logs_stored=0)
    assert (stopped.reason, stopped.details) == ("Kind: last", "")


@pytest.mark.parametrize("ending", [None, *Ending])
@pytest.mark.parametrize("told", [True, False])
def test_a_client_reads_how_an_attempt_ended(ending: Ending | None, told: bool) -> None:
    """One enum from the worker to the client; a controller of an earlier version tells it in other places."""
    row = TaskRow(0, TaskState.RUNNING, attempt=row_of(1, end=None if ending is None else AttemptEnd(ending)))
    sent = wire.task_status("job-a", row, "")
    if not told:
        sent.attempts[0].ending = v1.Ending.UNSPECIFIED
    assert read_task(sent).attempts[0].ending is ending
