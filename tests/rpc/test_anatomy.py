"""What a message takes is known before anything is built from it."""

import sys

import pytest
from hypothesis import given, settings, strategies as st
from rpc_echo import EchoRequest

from iriscw._errors import InvalidArgument
from iriscw.proto.iriscw import v1
from iriscw.rpc import anatomy
from iriscw.rpc.anatomy import MAX_UNKNOWN_BYTES, by_number, examine
from iriscw.rpc.errors import MalformedMessage, MessageTooLarge
from raised import that

PLENTY = 1 << 30


def varint(number: int) -> bytes:
    """A number as it stands on the wire."""
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def held(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def parts(data: bytes, message_type: type, most: int = PLENTY, **field_bytes: int) -> int:
    """The parts of a message."""
    return examine(data, message_type, most, by_number(message_type, field_bytes))


COUNTED = [
    (v1.GetJobRequest(), 0),
    (v1.SubmitJobRequest(name="x", replicas=1), 2),
    (v1.SubmitJobRequest(constraints=[v1.Constraint()] * 3), 6),
    (v1.SubmitJobRequest(environment={"a": "b"}), 4),
    (v1.SubmitJobRequest(ports=["a", "b"]), 2),
    (v1.SubmitJobRequest(priority=v1.PriorityBand.BATCH), 2),
    (v1.SubmitJobRequest(timeout_ms=-1), 2),
    (v1.SubmitJobRequest(timeout_ms=1_700_000_000_000), 2),
    (v1.SubmitJobRequest(timeout_ms=30_000_000_000), 1),
    (v1.ListJobsRequest(states=[v1.JobState.FAILED] * 5), 6),
    (v1.SubmitJobRequest(entrypoint=v1.Entrypoint(callable=v1.Callable(payload=b"x" * 100_000))), 5),
]


@pytest.mark.parametrize(("message", "count"), COUNTED)
def test_count(message, count):
    """Fields count one, messages and enumerations two, packed fields their bytes; what is opaque is not entered."""
    data = bytes(message)
    assert parts(data, type(message)) == count
    assert parts(data, type(message), count) == count
    if count:
        with pytest.raises(
            MessageTooLarge, check=that(comes_from="anatomy._walk", names=(type(message).__name__, count - 1))
        ):
            parts(data + b"\xf8\x7c\x01", type(message), count - 1)


@pytest.mark.parametrize(
    ("data", "message_type"),
    [
        (held(8, b""), v1.SubmitJobRequest),
        (held(6, held(1, b"k")), v1.SubmitJobRequest),
        (b"\x20\x01", v1.SubmitJobRequest),
        (held(3, held(2, b"")), v1.WorkerMessage),
        (held(99, b""), v1.WorkerMessage),
        (held(3, b"\x01" * 64), v1.ListJobsRequest),
    ],
)
def test_it_ends_at_the_bound(data, message_type):
    """However much is left, no more of it is looked at: garbage behind the bound is not even met."""
    limit = 100
    with pytest.raises(MessageTooLarge):
        parts(data * (limit + 2) + b"\xff" * 1000, message_type, limit)


def test_nothing_is_built(monkeypatch):
    """A message of two million messages is refused without one of them."""
    monkeypatch.setattr(v1.Constraint, "__init__", lambda _self: pytest.fail("a message was built"))
    with pytest.raises(MessageTooLarge):
        parts(held(8, b"") * 2_000_000, v1.SubmitJobRequest, 10_000)


MALFORMED = {
    "a number where a text is": b"\x10\x01",
    "a list where a number is": held(4, b"\x01\x02"),
    "a text where a message is": b"\x18\x01",
    "a group": b"\x13",
    "an unknown group": b"\xf3\x7c",
    "no number": b"\x00\x01",
    "cut in a tag": b"\x80",
    "cut in a number": b"\x20\x80",
    "cut in a length": b"\x12\x80",
    "cut in a text": b"\x12\x05ab",
    "cut in a message": held(3, b"\x0a\x05a"),
    "a message longer than what holds it": b"\x1a\x04\x0a\x05ab",
    "a number without an end": b"\x20" + b"\xff" * 100_000,
    "a number of eleven bytes": b"\x20" + b"\x80" * 10 + b"\x01",
    "a tag of ten bytes": b"\xa0" + b"\x80" * 8 + b"\x01\x01",
    "a length of ten bytes": b"\x12" + b"\x80" * 9 + b"\x01",
    "a length beyond the message": b"\x12\xff\xff\xff\xff\x0f",
    "half a double word": b"\xf9\x7c\x00\x00",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what):
    """What the decoder would take for something else, or for less, is refused by name."""
    with pytest.raises(MalformedMessage):
        parts(MALFORMED[what], v1.SubmitJobRequest)


def test_unknown_fields():
    """A newer peer's fields pass, up to a size: the decoder copies what it has of them for each further one."""
    newer = held(1999, b"x" * 100) + b"\xf8\x7c\x05" + b"\xf9\x7c" + b"8 bytes!" + b"\xfd\x7c" + b"four"
    assert parts(newer, EchoRequest) == 4
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk")):
        parts(held(1999, b"x" * 100) * (MAX_UNKNOWN_BYTES // 100), EchoRequest)
    inside = held(3, held(3, held(1999, b"x" * 1000) * 20))
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk")):
        parts(inside, v1.WorkerMessage)


def test_bounds_of_fields():
    """A field may be bounded on its own, at the top and nowhere else; its siblings are as free as they were."""
    log = bytes(v1.WorkerMessage(log=v1.LogChunk(data=b"x" * 1000)))
    assert parts(log, v1.WorkerMessage, log=2000) == parts(log, v1.WorkerMessage)
    with pytest.raises(
        MessageTooLarge, check=that(comes_from="anatomy._walk", names=("WorkerMessage.log", "1003", "999"))
    ):
        parts(log, v1.WorkerMessage, log=999)
    assert parts(log, v1.WorkerMessage, result=1)
    with pytest.raises(InvalidArgument, check=that(comes_from="anatomy.by_number", names="nonsense")):
        by_number(v1.WorkerMessage, {"nonsense": 1})


def test_depth(monkeypatch):
    """Messages in messages have a bound, without which a class that holds itself could be entered for ever."""
    deep = bytes(v1.SubmitJobRequest(entrypoint=v1.Entrypoint(command=v1.Command(argv=["x"]))))
    assert parts(deep, v1.SubmitJobRequest) == 5
    monkeypatch.setattr(anatomy, "MAX_DEPTH", 1)
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk", names="1")):
        parts(deep, v1.SubmitJobRequest)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([v1.SubmitJobRequest, v1.WorkerMessage, v1.ListJobsRequest]))
def test_any_bytes(data, message_type):
    """Any bytes are counted or refused by name; what passes has no field of a type that is not its own."""
    try:
        count = parts(data, message_type)
    except (MessageTooLarge, MalformedMessage):
        return
    assert count <= 2 * len(data)
    try:
        message = message_type.FromString(data)
    except (UnicodeDecodeError, OverflowError):
        return
    assert message_type.FromString(bytes(message)) == message


def test_it_costs_little():
    """The walk of a message takes a small part of decoding it, measured in calls of functions rather than in time."""
    message = v1.WorkerMessage(
        observed_set=v1.ObservedSet(attempts=[v1.AttemptObserved(attempt_uid="a" * 16, log_end_offset=5)] * 300)
    )
    data = bytes(message)
    assert calls(lambda: parts(data, v1.WorkerMessage)) * 5 < calls(lambda: v1.WorkerMessage.FromString(data))


def calls(run) -> int:
    """How many functions ``run`` calls, of Python and of C."""
    count = 0

    def profile(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
