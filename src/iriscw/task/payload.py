"""A call as bytes: a callable with its arguments, pickled by value where it has to be.

The client makes a payload, the controller keeps it and reads its summary (which Python it needs, how it is
called), and only the process of the task unpickles it. The format is that of :mod:`iriscw.task.framing`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import attrs

from iriscw._errors import UsageError
from iriscw.task import sources
from iriscw.task.framing import FrameCorrupt, frame, python_name, unframe

MAX_PAYLOAD_BYTES = 16 << 20
"""What a submission may carry; data belongs into files or object storage, of which the payload holds the
name.
"""

MAX_SEARCH_DEPTH = 6
"""How deep the search for the part that cannot be pickled goes."""

_MAGIC = b"IRISCALL"


class NotPicklable(UsageError, TypeError):
    """The callable or an argument cannot be sent to another process; the error says which part."""


class PayloadTooLarge(UsageError):
    """The pickled call is larger than ``MAX_PAYLOAD_BYTES``."""


@attrs.frozen
class Call:
    """A call that can be made."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self) -> Any:  # whatever the user's function gives
        """Make the call; ``sys.exit()`` and ``sys.exit(0)`` in it end it well, with None as its value.

        What gives a coroutine (``async def``, or what wraps one) is run to its end, on an event loop of asyncio's.
        """
        try:
            value = self.function(*self.args, **self.kwargs)
            return _run(value) if isinstance(value, Coroutine) else value
        except SystemExit as error:
            if error.code in {None, 0}:
                return None
            raise


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # takes 50 ms, which a task that is not asynchronous keeps

    return asyncio.run(coroutine)


@attrs.frozen
class PayloadSummary:
    """What anybody may know of a payload. ``python`` is ``3.11``: the worker's attribute must be the same."""

    python: str
    name: str


def make_payload(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the bytes of a call.

    Raises:
        NotPicklable: a part cannot be pickled, or ``function`` cannot be called.
        PayloadTooLarge: it is too much.
    """
    if not callable(function):
        raise NotPicklable(f"{_describe(function)} cannot be called")
    body = _pickled((function, tuple(args), dict(kwargs)), function, args, kwargs)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the call of {_name(function)} takes {len(body)} bytes, more than {MAX_PAYLOAD_BYTES}; "
            "pass the names of files or objects instead of their content"
        )
    return frame(_MAGIC, {"name": _name(function)}, body)


def read_summary(data: bytes) -> PayloadSummary:
    """Read what is said about a payload; nothing is unpickled.

    Raises:
        FrameCorrupt, UnknownFormat: see ``unframe``.
    """
    found = unframe(_MAGIC, data)
    return PayloadSummary(python_name(found.python), str(found.summary.get("name", "")))


def load_payload(data: bytes) -> Call:
    """Unpickle a call. Only for a process that may run the job's code.

    Raises:
        FrameCorrupt, UnknownFormat: see ``unframe``; nothing was unpickled.
        PythonMismatch: another Python wrote it; nothing was unpickled.
        Exception: what the pickle raises, such as ``ModuleNotFoundError`` for a module that is not here.
    """
    found = unframe(_MAGIC, data)
    found.check_python()
    loaded = sources.loads(found.body)
    if not isinstance(loaded, tuple) or len(loaded) != 3:
        raise FrameCorrupt("the pickle holds no call")
    return Call(*loaded)


def _pickled(whole: object, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        data = sources.dumps(whole)
    except Exception as error:
        culprit = _first_culprit(_parts(function, args, kwargs), MAX_SEARCH_DEPTH)
        raise NotPicklable(f"{culprit or _name(function)} cannot be pickled: {error}") from error
    return data


def culprit_of(label: str, value: object) -> str:
    """Name the innermost part of a value that cannot be pickled by itself; ``label`` is how the value is called."""
    return _first_culprit(iter(((label, value),)), MAX_SEARCH_DEPTH) or label


def _first_culprit(parts: Iterator[tuple[str, Any]], depth: int) -> str | None:
    """Name the innermost part that cannot be pickled by itself."""
    for label, value in parts:
        if _can_pickle(value):
            continue
        inner = _first_culprit(_inside(label, value), depth - 1) if depth else None
        return inner or f"{label} ({_describe(value)})"
    return None


def _parts(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"argument {number}", value) for number, value in enumerate(args))
    yield from ((f"argument {name!r}", value) for name, value in kwargs.items())
    yield (_name(function), function)


def _inside(label: str, value: object) -> Iterator[tuple[str, Any]]:
    """Yield what ``value`` takes along when it is pickled."""
    if isinstance(value, functools.partial):
        yield from _parts(value.func, value.args, value.keywords)
    elif isinstance(value, Mapping):
        yield from ((f"{label}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{label}[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield (f"the object that {label} is bound to", value.__self__)
    elif code := getattr(value, "__code__", None):
        cells = getattr(value, "__closure__", None) or ()
        for name, cell in zip(code.co_freevars, cells, strict=False):
            try:
                yield (f"the variable {name!r} that {label} closes over", cell.cell_contents)
            except ValueError:  # not filled yet
                continue
        names = getattr(value, "__globals__", {})
        for name in code.co_names:
            if name in names:
                yield (f"the global {name!r} that {label} uses", names[name])
        yield from ((f"a default value of {label}", item) for item in getattr(value, "__defaults__", None) or ())
    else:
        yield from ((f"{label}.{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _can_pickle(value: object) -> bool:
    import cloudpickle  # type: ignore[import-untyped]

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  # any error of a user's object means the same here
        return False
    return True


def _name(value: object) -> str:
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _describe(value: object) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"
