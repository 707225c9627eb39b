"""The words actors decide in: values that compare, print and cost as promised."""

import typing

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw import runtime
from iriscw.runtime import (
    KEEP,
    MICROSECOND,
    MILLISECOND,
    NANOSECOND,
    ROOT,
    SECOND,
    ActorPath,
    Decision,
    StopReason,
    Tell,
    message,
    seconds,
)
from iriscw.runtime.interpreter import COMMANDS
from iriscw.runtime.vocabulary import Command
from raised import that

names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)


@message
class Example:
    """Something to send."""

    number: int
    text: str = ""


def test_units():
    """Times are whole nanoseconds."""
    assert (NANOSECOND, MICROSECOND, MILLISECOND, SECOND) == (1, 1_000, 1_000_000, 1_000_000_000)
    assert seconds(1.5) == 1_500_000_000
    assert type(seconds(0.1)) is int
    assert seconds(0.000_000_000_6) == 1


def test_messages_are_values():
    """Messages compare by value, have no dictionary, and are no keys: a mutable value must not be one."""
    assert Example(1) == Example(1, "")
    assert Example(1) != Example(2)
    assert not hasattr(Example(1), "__dict__")
    with pytest.raises(AttributeError):
        Example(1).colour = "red"
    with pytest.raises(TypeError, check=that(names="Example")):
        hash(Example(1))
    assert repr(Example(1)) == "Example(number=1, text='')"


@given(st.lists(names))
def test_paths_round_trip(parts):
    """Name and parent undo what ``/`` does, however deep."""
    path = ROOT
    for part in parts:
        child = path / part
        assert (child.parent, child.name) == (path, part)
        assert type(child) is type(child.parent) is ActorPath
        path = child
    assert path == "/" + "/".join(parts)


def test_the_root():
    """The root has no name and is its own parent."""
    assert ROOT == "/"
    assert ROOT.name == ""
    assert ROOT.parent == ROOT
    assert repr(ROOT / "a") == "ActorPath('/a')"
    assert f"{ROOT / 'a'}" == "/a"


def test_decisions_keep_by_default():
    """A decision that says nothing keeps the state: None is a state like any other."""
    assert Decision() == Decision(KEEP, (), ())
    assert Decision(None).state is None
    assert repr(KEEP) == "KEEP"


def test_every_command_is_carried_out():
    """The type of all commands, the interpreter's table and the public names agree."""
    commands = typing.get_args(Command)
    assert set(commands) == set(COMMANDS)
    assert {command.__name__ for command in commands} <= set(runtime.__all__)


def test_words_are_slotted():
    """No command or answer has a dictionary: millions of them are made."""
    words = [getattr(runtime, name) for name in runtime.__all__]
    values = [
        word for word in words if isinstance(word, type) and attrs.has(word) and word.__module__.endswith("vocabulary")
    ]
    assert Tell in values
    assert len(values) > 30
    for word in values:
        assert word.__dictoffset__ == 0, word


def test_reasons_are_text():
    """A stop's reason shows as a word in traces."""
    assert [reason.value for reason in StopReason] == ["normal", "failed", "quarantined", "absent"]
