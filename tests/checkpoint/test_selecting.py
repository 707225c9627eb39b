"""Selectors of labels: what each form asks for, and what is none."""

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.checkpoint.selecting import MAX_SELECTOR_CHARS, Requirement, Selector, read_selector
from profiles import examples
from raised import that

MODEL_A = {"model": "a", "version": "2"}

NAMES = st.text("abz019./_-", min_size=1, max_size=4).filter(lambda name: name not in ("in", "notin"))
VALUES = st.text("abz019./_-", max_size=3)
REQUIREMENTS = st.builds(
    Requirement, NAMES, st.none() | st.lists(VALUES, min_size=1, max_size=3).map(tuple), st.booleans()
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True),
        ("  ", True),
        ("model=a", True),
        ("model==a", True),
        ("model=b", False),
        (" model = a , version != 1 ", True),
        ("model=a,version!=2", False),
        ("model in (b, a)", True),
        ("model in (b,c)", False),
        ("model notin (b,c),version", True),
        ("model notin(a)", False),
        ("!model", False),
        ("! owner", True),
        ("owner!=ann", True),
        ("owner notin (ann)", True),
        ("owner=", False),
        ("model in ()", False),
        ("in=1", False),
        ("in", False),
    ],
)
def test_what_a_selector_wants(text, wanted):
    """Each form means what it means to Kubernetes: what is not there is not equal to anything."""
    assert read_selector(text).matches(MODEL_A) is wanted


NO_SELECTORS = (
    "=a",
    "model=a=b",
    "a=(b)",
    "model=a,",
    ",model=a",
    "model in a",
    "model in (a",
    "model in (a b)",
    "a b",
)


@pytest.mark.parametrize("text", [*NO_SELECTORS, "!", "!a=b"])
def test_what_is_no_selector(text):
    """It is refused by name, and never taken for another one."""
    with pytest.raises(InvalidArgument, check=that(names="selector")):
        read_selector(text)


def test_a_selector_without_end():
    """Its length is bounded, and reading it takes no time that grows with its square."""
    with pytest.raises(InvalidArgument, check=that(names=str(MAX_SELECTOR_CHARS))):
        read_selector("a" * (MAX_SELECTOR_CHARS + 1))
    assert len(read_selector(",".join(["a"] * (MAX_SELECTOR_CHARS // 2))).requirements) == MAX_SELECTOR_CHARS // 2


def test_labels_that_cannot_be_read():
    """Only a selector that asks for nothing wants them: nobody knows what they are."""
    assert read_selector("").matches(None)
    assert not read_selector("!model").matches(None)


@examples(60)
@given(st.lists(REQUIREMENTS, max_size=4).map(tuple))
def test_what_is_written_is_read(requirements):
    """Each selector has a text that means it."""
    assert read_selector(",".join(map(written, requirements))) == Selector(requirements)


def written(requirement):
    """Write a requirement as users do."""
    if requirement.values is None:
        return ("!" if requirement.negated else "") + requirement.name
    if len(requirement.values) == 1:
        return f"{requirement.name}{'!=' if requirement.negated else '='}{requirement.values[0]}"
    return f"{requirement.name} {'notin' if requirement.negated else 'in'} ({','.join(requirement.values)})"
