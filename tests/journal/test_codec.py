"""The codec: what is written can be read, and nothing else is written."""

import enum
import json
from collections.abc import Mapping
from typing import Literal, NewType

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.journal.codec import Mismatch, codec_for
from iriscw.runtime.vocabulary import ActorPath, message
from raised import that

Token = NewType("Token", str)


class Phase(enum.Enum):
    """An enum with values of both kinds."""

    RUNNING = "running"
    CODE = 3


@message
class Place:
    """A nested message."""

    worker: str
    slot: int


@attrs.frozen
class Everything:
    """One field of each kind, one of them private."""

    text: str
    number: int
    flag: bool
    blob: bytes
    phase: Phase
    path: ActorPath
    token: Token
    mode: Literal["process", 2]
    maybe: int | None
    places: tuple[Place, ...]
    pair: tuple[str, int]
    names: list[str]
    labels: Mapping[str, Place]
    nested: tuple[tuple[Place | None, ...], ...]
    nothing: None = None
    _private: int = 0


places = st.builds(Place, st.text(), st.integers())
everything = st.builds(
    Everything,
    text=st.text(st.characters(codec=None)),
    number=st.integers(),
    flag=st.booleans(),
    blob=st.binary(),
    phase=st.sampled_from(Phase),
    path=st.text().map(ActorPath),
    token=st.text(),
    mode=st.sampled_from(["process", 2]),
    maybe=st.none() | st.integers(),
    places=st.lists(places).map(tuple),
    pair=st.tuples(st.text(), st.integers()),
    names=st.lists(st.text()),
    labels=st.dictionaries(st.text(), places).map(lambda found: dict(sorted(found.items()))),
    nested=st.lists(st.lists(st.none() | places).map(tuple)).map(tuple),
    private=st.integers(),
)


@given(everything)
def test_round_trip(value):
    """Reading what was written gives an equal value, of the same types inside."""
    codec = codec_for(Everything)
    again = codec.decode(json.loads(codec.encode(value)))
    assert again == value
    assert type(again.path) is ActorPath
    assert repr(again) == repr(value)


@given(everything)
def test_canonical(value):
    """The text is what a sorted, compact, ASCII dump of it gives, so equal values have equal texts."""
    text = codec_for(Everything).encode(value)
    assert text.isascii()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


WRONG = {
    "text": [1, None, b"x", ActorPath("/a")],
    "number": [True, 1.0, "1", None],
    "flag": [1, "true", None],
    "blob": ["x", bytearray(b"x")],
    "phase": ["running", 3, None],
    "path": ["/plain"],
    "mode": ["other", 2.0, True],
    "maybe": ["1", False],
    "places": [[Place("a", 1)], (1,), (Place("a", "b"),)],
    "pair": [("a",), ("a", 1, 2), ["a", 1]],
    "names": [("a",), [1]],
    "labels": [{1: Place("a", 1)}, {"a": 1}, [("a", 1)]],
    "nothing": [0, ""],
}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, values in WRONG.items() for bad in values])
def test_wrong_value(name, bad):
    """A field that is not of its type is refused by name when written."""
    good = Everything("t", 1, True, b"", Phase.CODE, ActorPath("/a"), Token("t"), 2, None, (), ("a", 1), [], {}, ())
    codec = codec_for(Everything)
    codec.encode(good)
    with pytest.raises(Mismatch, check=that(names=name)):
        codec.encode(attrs.evolve(good, **{name: bad}))


JSON_WRONG = [
    ("text", 1), ("number", "1"), ("number", True), ("number", 1.5), ("flag", 0), ("blob", "not base64!"),
    ("blob", "Bo=="),
    ("blob", 3), ("phase", "gone"), ("phase", []), ("path", 4), ("maybe", "x"), ("places", {}), ("pair", ["a"]),
    ("labels", []), ("nothing", 1), ("places", [{"worker": "a"}]), ("places", [{"worker": "a", "slot": 1, "x": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bad"), JSON_WRONG)
def test_wrong_json(name, bad):
    """JSON that does not fit is refused by name when read."""
    good = Everything("t", 1, True, b"", Phase.CODE, ActorPath("/a"), Token("t"), 2, None, (), ("a", 1), [], {}, ())
    codec = codec_for(Everything)
    fields = json.loads(codec.encode(good))
    with pytest.raises(Mismatch, check=that(names=name)):
        codec.decode({**fields, name: bad})


def test_missing_and_unknown_fields():
    """A missing field takes its default if it has one; an unknown field is refused."""
    codec = codec_for(Place)
    with pytest.raises(Mismatch, check=that(comes_from="codec._decode_attrs.decode", names="slot")):
        codec.decode({"worker": "a"})
    with pytest.raises(Mismatch, check=that(comes_from="codec._decode_attrs.decode", names="other")):
        codec.decode({"worker": "a", "slot": 1, "zone": 1, "other": 2})

    @attrs.frozen
    class WithDefault:
        name: str = "unnamed"

    assert codec_for(WithDefault).decode({}) == WithDefault()


def test_validators_have_their_say():
    """A class that refuses its fields makes the value unreadable, with the reason."""

    @attrs.frozen
    class Positive:
        number: int = attrs.field(validator=attrs.validators.gt(0))

    with pytest.raises(Mismatch, check=that(comes_from="codec._decode_attrs.decode")):
        codec_for(Positive).decode({"number": -1})


class Mixed(enum.Enum):
    """An enum that cannot be journaled."""

    A = 1.5


@pytest.mark.parametrize(
    "bad", [float, set[str], frozenset[int], object, str | int, dict[int, str], Mixed, tuple[float, ...], complex]
)
def test_undeclarable(bad):
    """Types without an exact, ordered text are refused when declared."""
    with pytest.raises(InvalidArgument):
        codec_for(bad)


def test_undeclarable_fields():
    """The refusal names the field."""

    @attrs.frozen
    class Timed:
        boot: float

    @attrs.frozen
    class Hidden:
        cache: int = attrs.field(init=False, default=0)

    with pytest.raises(InvalidArgument, check=that(names="Timed.boot")):
        codec_for(Timed)
    with pytest.raises(InvalidArgument, check=that(names=("Hidden", "cache"))):
        codec_for(Hidden)


def test_mappings_come_back_sorted():
    """A mapping is written, and so comes back, in the order of its keys."""
    codec = codec_for(dict[str, int])
    assert list(codec.decode(json.loads(codec.encode({"b": 1, "a": 2})))) == ["a", "b"]


def test_no_fields():
    """A class without fields is an empty object."""

    @attrs.frozen
    class Nothing:
        pass

    codec = codec_for(Nothing)
    assert codec.encode(Nothing()) == "{}"
    assert codec.decode({}) == Nothing()
