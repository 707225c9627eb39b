"""The kinds of values that a configuration holds."""

import pytest
from hypothesis import given, strategies as st

from iriscw.config.errors import Misfit
from iriscw.config.kinds import ENTRIES_LIMIT, TEXT_LIMIT, Choice, Cpu, Flag, Size, Span, Text, TextMap, Whole, shown
from iriscw.config.model import AcceleratorType
from iriscw.config.quantities import NS_PER_MS, QuantityError
from raised import that

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


@pytest.mark.sampled(3)
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
        (Text(), 1, that(comes_from="kinds.Text.read")),
        (Text(), "a\nb", that(comes_from="kinds.Text.read")),
        (Text(), "x" * (TEXT_LIMIT + 1), that(comes_from="kinds.Text.read", names="1024")),
        (Text(empty=False), "", that(comes_from="kinds.Text.read")),
        (WORD, "A", that(comes_from="kinds.Text.read")),
        (Whole(), True, that(comes_from="kinds.Whole.read")),
        (Whole(), "1", that(comes_from="kinds.Whole.read")),
        (Whole(), 1.0, that(comes_from="kinds.Whole.read")),
        (Whole(minimum=1), 0, that(comes_from="kinds.Whole.read", names="1")),
        (Whole(), 10**4000, that(comes_from="kinds.Whole.read")),
        (Flag(), "no", that(comes_from="kinds.Flag.read")),
        (Span(minimum=NS_PER_MS), "0s", that(comes_from="kinds.Span.read", names="1ms")),
        (Span(maximum=NS_PER_MS), "2ms", that(comes_from="kinds.Span.read", names=("1ms", "2ms"))),
        (Size(minimum=2**20), "1KiB", that(comes_from="kinds.Size.read", names=("1KiB", "1MiB"))),
        (Cpu(), 0, that(comes_from="kinds.Cpu.read")),
        (Choice(AcceleratorType), "tpu", that(comes_from="kinds.Choice.read")),
        (Choice(AcceleratorType), "GPU", that(comes_from="kinds.Choice.read")),
        (NAMES, {"a": "x"}, that(comes_from="kinds.TextMap._entry", names="NAME")),
        (NAMES, {"A": 1}, that(comes_from="kinds.TextMap._entry")),
        (NAMES, {"A": "\0"}, that(comes_from="kinds.TextMap._entry")),
        (TextMap("[A-Z]+", "a NAME", limit=2), {"A": "xyz"}, that(comes_from="kinds.TextMap._entry", names="2")),
        (
            NAMES,
            {"A" * n: "" for n in range(1, ENTRIES_LIMIT + 2)},
            that(comes_from="kinds.TextMap.read", names="257"),
        ),
        (NAMES, ["A"], that(comes_from="kinds.TextMap.read")),
        (
            TextMap("[A-Z]+", "a NAME", value_pattern="[0-9]+", value_meaning="a number"),
            {"A": "x"},
            that(comes_from="kinds.TextMap._entry"),
        ),
    ],
)
def test_refusals_say_why(kind, value, says):
    """The message says what was wrong, on one short line."""
    with pytest.raises(Misfit, check=says) as caught:
        kind.read(value)
    assert len(str(caught.value)) < 200


def test_a_refusal_never_shows_a_variables_value():
    """Values of environments may be secret."""
    for value in ({"TOKEN": "hunter2"}, {"TOKEN": ["hunter2"]}, {"TOKEN": "hunter2\0"}, "hunter2", ["hunter2"]):
        with pytest.raises(Misfit) as caught:
            TextMap("[A-Z]+", "a NAME", limit=3).read(value)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(Misfit, check=that(comes_from="kinds.TextMap._entry", names="TOKEN")) as caught:
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
