"""The kinds of values that a configuration holds."""

import pytest
from hypothesis import given, strategies as st

from iriscw.config.errors import Misfit
from iriscw.config.kinds import ENTRIES_LIMIT, TEXT_LIMIT, Choice, Cpu, Flag, Size, Span, Text, TextMap, Whole, shown
from iriscw.config.model import AcceleratorType
from iriscw.config.quantities import NS_PER_MS, QuantityError

WORD = Text(pattern="[a-z]+", meaning="a word", empty=False)
NAMES = TextMap("[A-Z]+", "a NAME")
WHOLES = [Whole(), Whole(minimum=1, maximum=9)]
KINDS = [
    Text(),
    WORD,
    *WHOLES,
    Flag(),
    Size(),
    Size(minimum=2**10),
    Span(),
    Span(minimum=NS_PER_MS),
    Cpu(),
    Choice(AcceleratorType),
    NAMES,
]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["cpu", "1s", "1GiB", 7, "500m"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("AB", max_size=2), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@given(value=anything)
def test_what_is_read_can_be_written_and_read_again(kind, value):
    """Any plain value is either refused by name, or has a canonical form that reads the same."""
    try:
        read = kind.read(value)
    except (Misfit, QuantityError):
        return
    assert kind.read(kind.write(read)) == read


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Text(), 1, "put it in quotes"),
        (Text(), "a\nb", "one line"),
        (Text(), "x" * (TEXT_LIMIT + 1), "at most 1024"),
        (Text(empty=False), "", "empty"),
        (WORD, "A", "'A' is not a word"),
        (Whole(), True, "not a whole number"),
        (Whole(), "1", "not a whole number"),
        (Whole(), 1.0, "not a whole number"),
        (Whole(minimum=1), 0, "not between 1"),
        (Whole(), 10**4000, "a huge number"),
        (Flag(), "no", "neither true nor false"),
        (Span(minimum=NS_PER_MS), "0s", "less than 1ms"),
        (Size(minimum=2**20), "1KiB", "1KiB is less than 1MiB"),
        (Cpu(), 0, "the least is 1m"),
        (Choice(AcceleratorType), "tpu", "not one of: cpu, gpu"),
        (Choice(AcceleratorType), "GPU", "not one of"),
        (NAMES, {"a": "x"}, "'a' is not a NAME"),
        (NAMES, {"A": 1}, "put it in quotes"),
        (NAMES, {"A": "\0"}, "cannot be printed"),
        (TextMap("[A-Z]+", "a NAME", limit=2), {"A": "xyz"}, "at most 2"),
        (NAMES, {"A" * n: "" for n in range(1, ENTRIES_LIMIT + 2)}, "257 entries"),
        (NAMES, ["A"], "not a mapping"),
        (
            TextMap("[A-Z]+", "a NAME", value_pattern="[0-9]+", value_meaning="a number"),
            {"A": "x"},
            "A is not a number",
        ),
    ],
)
def test_refusals_say_why(kind, value, says):
    """The message says what was wrong, on one short line."""
    with pytest.raises(Misfit, match=says) as caught:
        kind.read(value)
    assert len(str(caught.value)) < 200


def test_a_refusal_never_shows_a_variables_value():
    """Values of environments may be secret."""
    for value in ({"TOKEN": "hunter2"}, {"TOKEN": ["hunter2"]}, {"TOKEN": "hunter2\0"}, "hunter2", ["hunter2"]):
        with pytest.raises(Misfit) as caught:
            TextMap("[A-Z]+", "a NAME", limit=3).read(value)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(Misfit, match="TOKEN is not text") as caught:
        NAMES.read({"TOKEN": 31337})
    assert "31337" not in str(caught.value)


def test_a_map_is_sorted():
    """The order in which a map was written does not matter."""
    read = NAMES.read({"B": "1", "A": "2"})
    assert list(read) == ["A", "B"]


def test_shown_is_short():
    """A value in a message is a word, not a page."""
    assert shown("x" * 1000) == repr("x" * 61 + "...")
    assert [shown(None), shown(True), shown([1]), shown({}), shown(2)] == [
        "nothing",
        "true",
        "a list",
        "a mapping",
        "2",
    ]
