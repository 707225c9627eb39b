"""Errors across the wire."""

import sys

import pytest
from grpclib.const import Status
from hypothesis import given, strategies as st

from iriscw import _errors as errors
from iriscw._errors import InternalError, IriscwError, OperationError, UsageError
from iriscw.rpc import errors as rpc_errors
from iriscw.rpc.status import MAX_TEXT_CHARS, from_wire, to_wire

NAMED = sorted(
    {
        cls
        for module in (errors, rpc_errors)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, IriscwError) and not cls._abstract
    },
    key=lambda cls: cls.__name__,
)
FOR_CALLERS = [cls for cls in NAMED if issubclass(cls, UsageError | OperationError)]


@pytest.mark.parametrize("cls", FOR_CALLERS)
def test_round_trip(cls: type[IriscwError]) -> None:
    """Every named error comes back as its class, with its text."""
    wire = to_wire(cls("what happened"))
    back = from_wire(wire.status, wire.text, wire.name)
    assert type(back) is cls
    assert str(back) == "what happened"
    assert wire.status is not Status.OK


@pytest.mark.parametrize("cls", [cls for cls in NAMED if issubclass(cls, InternalError)])
def test_internal_errors_keep_their_text(cls: type[IriscwError]) -> None:
    """Our own bugs arrive as their class, without their text."""
    wire = to_wire(cls("a path of the server"))
    assert "path" not in wire.text
    assert type(from_wire(wire.status, wire.text, wire.name)) is cls


def test_strangers_errors() -> None:
    """Foreign exceptions leave as their class name only, and arrive as the peer's failure."""
    wire = to_wire(KeyError("secret"))
    assert (wire.status, wire.text, wire.name) == (Status.INTERNAL, "KeyError", "")
    assert type(from_wire(wire.status, wire.text)) is rpc_errors.RemoteFailure


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_every_status_means_something(status: Status) -> None:
    """A status without a name, or with an unknown or abstract one, is still a named error of ours."""
    for name in ("", "NoSuchThing", "UsageError", "ZeroDivisionError"):
        assert isinstance(from_wire(status, None, name), IriscwError)


class UsersOwn(UsageError):
    """Stands for an error of a package."""


def test_errors_of_packages_arrive() -> None:
    """By module and name: the name alone is iriscw's."""
    wire = to_wire(UsersOwn("too long"))
    back = from_wire(wire.status, wire.text, wire.name)
    assert (type(back), str(back)) == (UsersOwn, "too long")
    assert type(from_wire(wire.status, wire.text, "UsersOwn")) is rpc_errors.RemoteRefusal


def test_errors_of_packages_that_are_not_there() -> None:
    """The text names them, and nothing is imported because a peer says so."""
    back = from_wire(Status.INVALID_ARGUMENT, "too long", "antigravity.TooLong")
    assert type(back) is rpc_errors.RemoteRefusal
    assert str(back) == "antigravity.TooLong: too long"
    assert "antigravity" not in sys.modules


def test_a_name_that_trailers_cannot_carry() -> None:
    """It is left out: the call ends with the text all the same."""
    wire = to_wire(type("Zulässig", (UsageError,), {})("no"))
    assert (wire.name, wire.text) == ("", "no")


@given(st.text(max_size=3000))
def test_texts_are_bounded(text: str) -> None:
    """No text is longer on the wire than its bound, nor empty."""
    assert 0 < len(to_wire(errors.InvalidArgument(text)).text) <= MAX_TEXT_CHARS
