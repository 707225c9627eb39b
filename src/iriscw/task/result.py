"""How a callable ended, as bytes: its value, or its exception with the traceback as text.

The format is that of :mod:`iriscw.task.framing`. The summary says in plain JSON whether it succeeded and, if
not, the exception's type, message and traceback, so that the controller and the command line can show a
failure without unpickling anything. Only the client that submitted the job unpickles the body.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import attrs

from iriscw._errors import OperationError
from iriscw.task.framing import frame, unframe
from iriscw.task.sources import without_ours

MAX_RESULT_BYTES = 16 << 20
"""What the value of one task may take; more belongs into a file or an object of which the value is the name.
"""

MAX_TEXT_CHARS = 64 << 10
"""What is kept of a message, and of the end of a traceback: that is where the cause stands."""

_MAGIC = b"IRISDONE"


class ResultTooLarge(OperationError):
    """The task's value is larger than ``MAX_RESULT_BYTES``; the task counts as failed."""


class ResultNotPicklable(OperationError):
    """The task's value cannot be sent to another process; the task counts as failed."""


@attrs.frozen
class ResultSummary:
    """What anybody may know of a result. The last three are empty for a success."""

    succeeded: bool
    error_type: str = ""
    message: str = ""
    traceback: str = ""


def encode_value(value: object) -> bytes:
    """Return the bytes of a success.

    Raises:
        ResultNotPicklable: the value cannot be pickled.
        ResultTooLarge: it is too much.
    """
    import cloudpickle  # type: ignore[import-untyped]

    try:
        body: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise ResultNotPicklable(f"the task's value cannot be pickled: {error}") from error
    if len(body) > MAX_RESULT_BYTES:
        raise ResultTooLarge(f"the task's value takes {len(body)} bytes, more than {MAX_RESULT_BYTES}")
    return frame(_MAGIC, {"succeeded": True}, body)


def encode_exception(error: BaseException) -> bytes:
    """Return the bytes of a failure; an exception that cannot be pickled, or is too large, goes as text alone."""
    import cloudpickle

    text = "".join(traceback.format_exception(without_ours(error)))
    kind = type(error)
    summary = {
        "succeeded": False,
        "error_type": kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": _message(error)[:MAX_TEXT_CHARS],
        "traceback": text[-MAX_TEXT_CHARS:],
    }
    try:
        body: bytes = cloudpickle.dumps(error.with_traceback(None))
    except Exception:  # noqa: BLE001  # the summary holds the text; the object is a convenience
        body = b""
    return frame(_MAGIC, summary, body if len(body) <= MAX_RESULT_BYTES else b"")


def read_result_summary(data: bytes) -> ResultSummary:
    """Read what is said about a result; nothing is unpickled.

    Raises:
        FrameCorrupt, UnknownFormat: see ``unframe``.
    """
    content = unframe(_MAGIC, data).summary
    return ResultSummary(
        succeeded=content.get("succeeded") is True,
        error_type=_utf8(content.get("error_type", "")),
        message=_utf8(content.get("message", "")),
        traceback=_utf8(content.get("traceback", "")),
    )


def _utf8(value: object) -> str:
    """Return a text that can be passed on: names of files, for instance, may hold bytes that are none."""
    return str(value).encode(errors="backslashreplace").decode()


def load_result(data: bytes) -> Any:  # whatever the user's function gave
    """Unpickle what a task gave: its value, or its exception (None if that could not be sent).

    Only for the client that submitted the job.

    Raises:
        FrameCorrupt, UnknownFormat: see ``unframe``; nothing was unpickled.
        PythonMismatch: another Python wrote it; nothing was unpickled.
    """
    found = unframe(_MAGIC, data)
    found.check_python()
    return pickle.loads(found.body) if found.body else None  # noqa: S301  # the job's own value


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  # a user's __str__ may do anything
        return f"<its message cannot be shown: {type(broken).__name__}>"
