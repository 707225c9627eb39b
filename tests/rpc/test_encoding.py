"""Messages are encoded and decoded as betterproto2 does it, without asking it for a default each time."""

import dataclasses

import betterproto2
import pytest
from hypothesis import given, strategies as st

from iriscw.proto.iriscw import v1
from iriscw.rpc import encoding
from iriscw.rpc.encoding import decode, encode
from profiles import examples
from raised import that

CLASSES = sorted(
    (each for each in vars(v1).values() if isinstance(each, type) and issubclass(each, betterproto2.Message)),
    key=lambda each: each.__name__,
)
INT_32, INT_64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = {
    betterproto2.TYPE_INT32: INT_32,
    betterproto2.TYPE_INT64: INT_64,
    betterproto2.TYPE_UINT32: st.integers(0, (1 << 32) - 1),
    betterproto2.TYPE_UINT64: st.integers(0, (1 << 64) - 1),
    betterproto2.TYPE_BOOL: st.booleans(),
    betterproto2.TYPE_STRING: st.text(max_size=200),
    betterproto2.TYPE_BYTES: st.binary(max_size=200),
}


def value_of(kind, held, depth):
    """A value of one kind of field."""
    if kind == betterproto2.TYPE_ENUM:
        return st.one_of(st.sampled_from(list(held)), INT_32.map(held))
    return message_of(held, depth - 1) if kind == betterproto2.TYPE_MESSAGE else VALUES[kind]


@st.composite
def message_of(draw, message_type, depth=3):
    """Any message of a class, some of its fields set."""
    known = message_type._betterproto
    values = {}
    for name, meta in known.meta_by_field_name.items():
        held = known.cls_by_field[name]
        if not draw(st.booleans()) or (depth == 0 and meta.proto_type in ("message", "map")):
            continue
        if meta.proto_type == betterproto2.TYPE_MAP:
            key, value = (
                value_of(each.proto_type, known.cls_by_field.get(f"{name}.value"), depth) for each in meta.map_meta
            )
            values[name] = draw(st.dictionaries(key, value, max_size=3))
        else:
            one = value_of(meta.proto_type, held, depth)
            values[name] = draw(st.lists(one, max_size=3) if meta.repeated else one)
    return message_type(**values)


ANY = st.sampled_from(CLASSES).flatmap(message_of)


@given(ANY)
@examples(150)
def test_as_the_library_does(message):
    """The same bytes, and from them the same message, types of values included."""
    data = bytes(message)
    assert encode(message) == data
    read = decode(data, type(message))
    assert read == type(message).parse(data)
    assert repr(read) == repr(type(message).parse(data))
    assert encode(read) == data


@given(ANY, st.sampled_from(CLASSES))
@examples(100)
def test_fields_of_newer_peers_are_kept(message, other):
    """What a class does not know travels on, in the order in which it came."""
    unknown = b"".join(b"\xfa\x7f" + bytes([n]) + bytes(n) for n in range(3)) + b"\xf9\x7f" + bytes(8)
    data = bytes(message) + unknown + b"\xfd\x7f" + bytes(4) + b"\xf8\x7f\x80\x01"
    read = decode(data, type(message))
    assert read == type(message).parse(data)
    assert encode(read) == bytes(type(message).parse(data)) == data


def test_every_message_has_a_plan():
    """No class of our protocols is left to the library, nor an empty message of it."""
    assert [each.__name__ for each in CLASSES if encoding._plan_of(each) is None] == []
    assert [each.__name__ for each in CLASSES if encode(each()) or decode(b"", each) != each()] == []


def test_single_numbers_of_a_packed_field():
    """A repeated number may come packed, or one by one, or both."""
    data = b"\x1a\x02\x01\x02" + b"\x18\x03"
    assert decode(data, v1.ListJobsRequest).states == v1.ListJobsRequest.parse(data).states
    assert len(decode(data, v1.ListJobsRequest).states) == 3


def test_too_large_a_number():
    """A number that has no place in 64 bits is the sender's fault."""
    with pytest.raises(ValueError, check=that(comes_from="encoding._number")):
        encode(v1.Heartbeat(sequence=-(1 << 63) - 1))


def test_other_kinds_are_left_to_the_library():
    """A class with a field of a kind that our protocols do not have is encoded by the library."""

    @dataclasses.dataclass(eq=False, repr=False)
    class Measure(betterproto2.Message):
        value: float = betterproto2.field(1, betterproto2.TYPE_DOUBLE)

    assert encode(Measure(1.5)) == bytes(Measure(1.5))
    assert decode(bytes(Measure(1.5)), Measure).value == 1.5


def test_defaults_are_asked_for_once(monkeypatch):
    """The library computes defaults for each field of each message; here none is, but for the class's first."""
    asked = []
    message = v1.RunAttempt(attempt_uid="a", environment={"k": "v"}, gang=v1.GangPlace(nodes=2))
    data = encode(message)
    monkeypatch.setattr(betterproto2.Message, "_get_field_default", lambda self, name: asked.append(name))
    for _ in range(10):
        assert encode(message) == data
        decode(data, v1.RunAttempt)
    assert asked == []
