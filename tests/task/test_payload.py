"""A call goes through bytes, or the error says which part cannot."""

import functools
import threading

import pytest

from iriscw.task import framing
from iriscw.task.framing import FrameCorrupt, PythonMismatch
from iriscw.task.payload import (
    MAX_PAYLOAD_BYTES,
    NotPicklable,
    PayloadTooLarge,
    load_payload,
    make_payload,
    read_summary,
)
from raised import that

LOCK = threading.Lock()


def uses_a_global_lock() -> None:
    with LOCK:
        pass


class Holder:
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        self.inner = {"deep": [1, threading.Lock()]}

    def method(self) -> None:
        """Do nothing."""


def test_closures_lambdas_and_arguments_come_through() -> None:
    """What the caller wrote is what is called."""
    factor = 3
    data = make_payload(lambda x, *, y: (x + y) * factor, [1], {"y": 2})
    assert load_payload(data)() == 9
    assert read_summary(data).python == framing.python_name(framing.this_python())


def test_the_name_of_the_call_is_readable_by_anybody() -> None:
    """Without unpickling."""
    assert read_summary(make_payload(Holder, [], {})).name == "Holder"
    assert read_summary(make_payload(functools.partial(max, 1), [2], {})).name == "partial"


def closes_over_a_lock():
    lock = threading.Lock()
    return lambda: lock


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "words"),
    [
        (print, [1, threading.Lock()], {}, ["argument 1", "_thread.lock"]),
        (print, [], {"end": threading.Lock()}, ["argument 'end'"]),
        (print, [{"a": [0, threading.Lock()]}], {}, ["argument 0['a'][1]"]),
        (closes_over_a_lock(), [], {}, ["the variable 'lock'", "closes over"]),
        (functools.partial(print, threading.Lock()), [], {}, ["argument 0"]),
        (Holder().method, [], {}, ["bound to.inner['deep'][1]"]),
    ],
)
def test_the_part_that_cannot_be_pickled_is_named(function, args, kwargs, words) -> None:
    """The way to the innermost culprit, and its type."""
    with pytest.raises(NotPicklable) as caught:
        make_payload(function, args, kwargs)
    for word in words:
        assert word in str(caught.value)


def test_a_global_that_cannot_be_pickled_is_named() -> None:
    """For functions that go by value, as those of a script do."""
    namespace = {"LOCK": LOCK, "__name__": "__main__"}
    exec("def main():\n    return LOCK", namespace)
    with pytest.raises(NotPicklable, check=that(names="LOCK")):
        make_payload(namespace["main"], [], {})


def test_what_cannot_be_called_is_refused() -> None:
    """Before anything else."""
    with pytest.raises(NotPicklable, check=that(comes_from="payload.make_payload")):
        make_payload(3, [], {})  # type: ignore[arg-type]


def test_too_much_is_refused() -> None:
    """With a way out."""
    with pytest.raises(PayloadTooLarge, check=that(comes_from="payload.make_payload")):
        make_payload(print, [b"x" * MAX_PAYLOAD_BYTES], {})


def test_another_python_is_refused_before_unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle of another version is never touched."""
    data = make_payload(exit, [3], {})
    monkeypatch.setattr("sys.version_info", (3, 99, 0))
    monkeypatch.setattr("pickle.loads", lambda _: pytest.fail("it was unpickled"))
    with pytest.raises(PythonMismatch):
        load_payload(data)


def test_damage_is_found_before_unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is damage."""
    data = bytearray(make_payload(print, [], {}))
    data[-1] ^= 1
    monkeypatch.setattr("pickle.loads", lambda _: pytest.fail("it was unpickled"))
    with pytest.raises(FrameCorrupt):
        load_payload(bytes(data))


def test_a_pickle_of_something_else_is_no_call() -> None:
    """A frame may be whole and still hold no call."""
    with pytest.raises(FrameCorrupt, check=that(comes_from="payload.load_payload")):
        load_payload(framing.frame(b"IRISCALL", {}, b"\x80\x04N."))


async def adds(one: int, other: int) -> int:
    """Add, after others had their turn."""
    import asyncio

    await asyncio.sleep(0)
    return one + other


def wraps(*args: int) -> object:
    """Return somebody else's coroutine."""
    return adds(*args)


async def leaves(code: int | None) -> None:
    """End the task."""
    raise SystemExit(code)


@pytest.mark.parametrize("function", [adds, functools.partial(adds, 1), wraps])
def test_what_is_asynchronous_is_run(function) -> None:
    """`async def`, what is partly called, and what gives a coroutine."""
    arguments = [2] if isinstance(function, functools.partial) else [1, 2]
    assert load_payload(make_payload(function, arguments, {}))() == 3


def test_an_asynchronous_exit() -> None:
    """It ends the task as any other."""
    assert load_payload(make_payload(leaves, [None], {}))() is None
    with pytest.raises(SystemExit):
        load_payload(make_payload(leaves, [3], {}))()
