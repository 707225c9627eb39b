"""The wire schema: what its generated code does, and that it is the generated code."""

import builtins
import keyword
import os
import subprocess
import sys
import typing
from pathlib import Path

import betterproto2
import pytest
from hypothesis import given, strategies as st

import iriscw.proto.iriscw.v1 as v1
from profiles import examples
from raised import that

ROOT = Path(__file__).parents[2]
MESSAGES = sorted(
    (each for each in vars(v1).values() if isinstance(each, type) and issubclass(each, betterproto2.Message)),
    key=lambda each: each.__name__,
)
ENUMS = sorted(
    (each for each in vars(v1).values() if isinstance(each, type) and issubclass(each, betterproto2.Enum)),
    key=lambda each: each.__name__,
)


def fields(message):
    """Give a message's fields by name."""
    return message._betterproto.meta_by_field_name


def test_the_generated_code_is_committed(tmp_path):
    """`make proto` changes nothing: the code in src/iriscw/proto is that of protos/."""
    pytest.importorskip("grpc_tools")
    sources = sorted(str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto"))
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_betterproto2_out={tmp_path}",
        "--python_betterproto2_opt=client_generation=async,server_generation=async", *sources,
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(command, cwd=ROOT / "protos", check=True, capture_output=True, env={**os.environ, "PATH": path})
    committed = ROOT / "src/iriscw/proto"
    generated = {file.relative_to(tmp_path): file.read_text() for file in tmp_path.rglob("*.py")}
    assert generated
    assert generated == {name: (committed / name).read_text() for name in generated}
    assert {file.relative_to(committed) for file in committed.rglob("*.py")} == set(generated)


# What a field may hold, by its type on the wire.
SCALARS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "bool": st.booleans(),
}


def values(message, name, field, depth):
    """Draw what one field may hold, by the annotation of the generated class."""
    # `X | None`, `list[X]`, `dict[str, X]` or X itself: the class is the last that is one.
    hint = typing.get_type_hints(message, vars(v1))[name]
    kind = [part for part in (hint, *typing.get_args(hint)) if isinstance(part, type) and part is not type(None)][-1]
    if field.proto_type == "map":
        key, value = field.map_meta
        within = kind if value.proto_type == "message" else None
        return st.dictionaries(
            SCALARS[key.proto_type], messages(within, depth - 1) if within else SCALARS[value.proto_type], max_size=2
        )
    if field.proto_type == "enum":
        one = st.sampled_from(list(kind))
    else:
        one = messages(kind, depth - 1) if field.proto_type == "message" else SCALARS[field.proto_type]
    return st.lists(one, max_size=2) if field.repeated else one


@st.composite
def messages(draw, message, depth=4):
    """Draw a message: at most one member of each oneof."""
    chosen = {}
    taken = set()
    for name, field in fields(message).items():
        if field.group in taken or (depth <= 0 and field.proto_type in ("message", "map")) or not draw(st.booleans()):
            continue
        if field.group:
            taken.add(field.group)
        chosen[name] = draw(values(message, name, field, depth))
    return message(**chosen)


@examples(200)  # of two hundred messages
@given(st.sampled_from(MESSAGES).flatmap(messages))
def test_round_trip(sent):
    """Every message survives the wire."""
    assert type(sent).parse(bytes(sent)) == sent


def test_field_names_are_safe():
    """No field has the name of a method of the base class (decoding would break), a keyword or a builtin type."""
    taken = set(dir(betterproto2.Message)) | set(keyword.kwlist)
    types = {"bytes", "int", "str", "float", "bool", "list", "dict", "type"}
    assert types <= set(dir(builtins))
    assert {each.__name__: bad for each in MESSAGES if (bad := set(fields(each)) & (taken | types))} == {}


def test_units_are_last():
    """Whatever counts bytes or ms says so at its end."""
    plain = {"offset", "log_end_offset", "round", "sequence", "version", "after_version", "number"}
    plain |= {"starts", "pid_namespace"}  # a count, and the name of a namespace
    plain |= {"restarts", "queued", "capacity", "operations", "children"}  # counts of an actor
    counts = [
        (message.__name__, name)
        for message in MESSAGES
        if message is not v1.Duration
        for name, field in fields(message).items()
        if field.proto_type == "int64" and not name.endswith(("_ms", "_bytes", "_milli", "_ticks"))
    ]
    assert [each for each in counts if each[1] not in plain] == []


def test_enums_start_unspecified():
    """Zero is what an absent field reads as, so it means nothing in particular."""
    assert {enum.__name__: enum(0).name for enum in ENUMS if enum(0).name != "UNSPECIFIED"} == {}


def test_states_are_iriss():
    """Jobs and tasks have Iris's states with Iris's numbers; a task has four more."""
    job = ["PENDING", "BUILDING", "RUNNING", "SUCCEEDED", "FAILED", "KILLED", "WORKER_FAILED", "UNSCHEDULABLE"]
    task = [*job, "ASSIGNED", "PREEMPTED", "COSCHED_FAILED", "MISSING"]
    assert [(state.name, state.value) for state in v1.JobState][1:] == [(name, n) for n, name in enumerate(job, 1)]
    assert [(state.name, state.value) for state in v1.TaskState][1:] == [(name, n) for n, name in enumerate(task, 1)]
    assert [band.name for band in v1.PriorityBand][1:] == ["PRODUCTION", "INTERACTIVE", "BATCH"]


def test_unknown_fields_are_kept():
    """What a newer peer said survives an older one that passes the message on."""
    newer = bytes(v1.AttemptObserved(attempt_uid="a", state=v1.TaskState.RUNNING, log_end_offset=7))
    # An older peer's message: field 1 only. LogAck has fields 1 and 2, and AttemptObserved 2 and 5 beside it.
    older = v1.JobRef.parse(newer[: len(b"\x0a\x01a")] + b"\x9a\x06\x03xyz")
    assert older.job_id == "a"
    assert bytes(older).endswith(b"\x9a\x06\x03xyz")
    assert v1.JobRef.parse(bytes(older)) == older


def test_an_unknown_enum_number_survives():
    """A state that only a newer peer knows is read, and written back, as its number."""
    read = v1.AttemptObserved.parse(b"\x10\x63")
    assert read.state == 99
    assert bytes(read) == b"\x10\x63"


def test_absent_is_not_zero():
    """A retry budget that was not said differs from one of 0, and an absent message from an empty one."""
    assert v1.SubmitJobRequest.parse(b"").max_retries_preemption is None
    said = v1.SubmitJobRequest.parse(bytes(v1.SubmitJobRequest(max_retries_preemption=0)))
    assert said.max_retries_preemption == 0
    assert v1.SubmitJobRequest.parse(b"").resources is None
    assert v1.SubmitJobRequest.parse(bytes(v1.SubmitJobRequest(resources=v1.Amount()))).resources == v1.Amount()
    assert v1.FetchLogsRequest.parse(bytes(v1.FetchLogsRequest(task_index=0))).task_index == 0


@pytest.mark.parametrize(
    ("message", "group", "member", "value"),
    [
        (v1.WorkerMessage, "message", "goodbye", v1.Goodbye()),
        (v1.WorkerMessage, "message", "heartbeat", v1.Heartbeat()),
        (v1.ControllerMessage, "message", "desired_set", v1.DesiredSet()),
        (v1.ProcessExit, "how", "code", 0),
        (v1.AttributeValue, "value", "number", 0),
        (v1.AttributeValue, "value", "text", ""),
        (v1.PutBundleRequest, "part", "data", b""),
        (v1.PutActorStateRequest, "part", "data", b""),
        (v1.ActorStatePart, "part", "data", b""),
        (v1.Entrypoint, "kind", "command", v1.Command()),
    ],
)
def test_an_empty_member_of_a_oneof_is_still_said(message, group, member, value):
    """Which member was chosen survives the wire, even where its value is the default."""
    read = message.parse(bytes(message(**{member: value})))
    assert betterproto2.which_one_of(read, group) == (member, value)


def test_nothing_chosen_is_told_apart():
    """An empty message chose no member; a reader must refuse it."""
    assert betterproto2.which_one_of(v1.WorkerMessage.parse(b""), "message") == ("", None)


def test_two_members_on_the_wire_are_noticed():
    """The library keeps both where the standard says that the last wins: asking which is an error, never a guess."""
    both = bytes(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=1))) + bytes(v1.WorkerMessage(goodbye=v1.Goodbye()))
    with pytest.raises(RuntimeError, check=that(names=("heartbeat", "goodbye"))):
        betterproto2.which_one_of(v1.WorkerMessage.parse(both), "message")


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_read(data):
    """Bytes of a stranger are either a message or an ordinary error; nothing else happens."""
    failure = None
    try:
        v1.WorkerMessage.parse(data)
    except Exception as error:
        failure = error
    assert not isinstance(failure, RecursionError | MemoryError)


def test_a_specification_is_named_by_bytes_not_by_meaning():
    """The content of a specification travels as bytes: its hash is checked without encoding it again."""
    content = bytes(v1.TaskSpecification(job_id="a", environment={"B": "1", "A": "2"}, num_tasks=3))
    sent = v1.Specification(hash=b"h", content=content)
    read = v1.Specification.parse(bytes(sent))
    assert read.content == content
    assert v1.TaskSpecification.parse(read.content).environment == {"A": "2", "B": "1"}


def test_services():
    """The doors have the calls that clients and workers rely on, with their shapes."""
    shapes = {
        path.rpartition("/")[2]: (path.split("/")[1], handler.cardinality.name)
        for base in (v1.ControllerServiceBase(), v1.WorkerServiceBase())
        for path, handler in base.__mapping__().items()
    }
    agent = {path: handler.cardinality.name for path, handler in v1.AgentServiceBase().__mapping__().items()}
    assert agent == {"/iriscw.v1.AgentService/Connect": "STREAM_STREAM"}
    inspection = {path: each.cardinality.name for path, each in v1.InspectionServiceBase().__mapping__().items()}
    assert inspection == {f"/iriscw.v1.InspectionService/{name}": "UNARY_UNARY" for name in ("ListActors", "ListGpus")}
    streams = {
        "WatchJob": "UNARY_STREAM",
        "WatchJobs": "UNARY_STREAM",
        "FetchLogs": "UNARY_STREAM",
        "ExecTask": "UNARY_STREAM",
        "GetResults": "UNARY_STREAM",
        "PutBundle": "STREAM_UNARY",
        "PutActorState": "STREAM_UNARY",
        "GetActorState": "UNARY_STREAM",
        "ListNodeCheckpoints": "UNARY_STREAM",
        "WatchOrder": "UNARY_STREAM",
        "WatchEndpoints": "UNARY_STREAM",
        "WatchHostedActor": "UNARY_STREAM",
        "ResolveActors": "UNARY_STREAM",
    }
    unary = [
        "SubmitJob",
        "GetJob",
        "ListJobs",
        "ListTasks",
        "TerminateJob",
        "ListSlices",
        "ListPools",
        "ReopenPool",
        "GetClusterStatus",
        "ListNodes",
        "CheckpointTask",
        "RestoreCheckpoint",
        "SuspendTask",
        "ResumeTask",
        "DeleteCheckpoint",
        "MoveCheckpoint",
        "VerifyCheckpoint",
        "ListRepository",
        "CancelOrder",
        "GetAgentToken",
        "ForgetNode",
    ]
    client = {**streams, **dict.fromkeys(unary, "UNARY_UNARY")}
    worker = {"Connect": "STREAM_STREAM", "GetBundle": "UNARY_STREAM"}
    assert shapes == {name: ("iriscw.v1.ControllerService", shape) for name, shape in client.items()} | {
        name: ("iriscw.v1.WorkerService", shape) for name, shape in worker.items()
    }
