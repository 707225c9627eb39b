"""Arguments and values of calls of hosted actors, as bytes: pickled, with large buffers beside the pickle."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

from iriscw._errors import IriscwError
from iriscw.hosted.errors import CallFailed, RemoteTraceback
from iriscw.task.payload import NotPicklable
from iriscw.task.result import load_result, read_result_summary

BESIDE_BYTES: Final = 64 << 10
"""Buffers from here on travel beside the pickle, and are not copied into it."""

MAX_BESIDE: Final = 1000
"""Of one call; further ones are copied."""

_PLAIN: Final = (type(None), bool, int, float, str, bytes)
"""What is pickled the same by everybody."""

PROTOCOL: Final = 5

Part: TypeAlias = "bytes | memoryview"


def passed(value: object, own_code: Callable[[], AbstractContextManager[None]] | None = None) -> list[Part]:
    """Return the parts that a value travels as: the pickle, and its buffers.

    Args:
        value: what travels.
        own_code: gives a block in which the user's own modules, which the other side does not have, travel by value.

    Raises:
        NotPicklable: it cannot travel.
    """
    with contextlib.suppress(RecursionError):
        if _is_plain(value):
            return [pickle.dumps(value, PROTOCOL)]
    import cloudpickle  # type: ignore[import-untyped]

    buffers: list[Part] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # it is not in one piece
            return True
        if len(raw) < BESIDE_BYTES or len(buffers) == MAX_BESIDE:
            return True
        # What is written to after this must not travel: what cannot be written to here may be, where it is a view of.
        buffers.append(raw if type(raw.obj) is bytes else bytes(raw))
        return False

    file = io.BytesIO()
    try:
        with own_code() if own_code is not None else contextlib.nullcontext():
            cloudpickle.Pickler(file, PROTOCOL, buffer_callback=stays_inside).dump(value)
    except Exception as error:
        raise NotPicklable(f"{type(value).__name__} cannot be pickled: {error}") from error
    return [file.getbuffer(), *buffers]


def passed_whole(value: object, own_code: Callable[[], AbstractContextManager[None]] | None = None) -> bytes:
    """Return one pickle that holds a value with its buffers; arguments and errors as :func:`passed`."""
    import cloudpickle

    try:
        with own_code() if own_code is not None else contextlib.nullcontext():
            data: bytes = cloudpickle.dumps(value, PROTOCOL)
    except Exception as error:
        raise NotPicklable(f"{type(value).__name__} cannot be pickled: {error}") from error
    return data


def received(parts: Sequence[memoryview]) -> Any:  # whatever was passed
    """Return the value that travelled as these parts. Only from who may run code here.

    Raises:
        Exception: what the pickle raises.
    """
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - both sides have proved to have the attempt's key


def failure(data: bytes) -> Exception:
    """Return the error that was sent as :func:`~iriscw.task.result.encode_exception` writes it, to be raised here.

    What cannot be raised here, or would end this process, is told as :class:`CallFailed`.
    """
    try:
        summary = read_result_summary(data)
    except IriscwError as damage:
        return CallFailed(f"an error of the other side cannot be read: {damage}")
    error: object
    try:
        error, text = load_result(data), f"{summary.error_type}: {summary.message}"
    except Exception as unreadable:  # noqa: BLE001 - a class of the user's may raise anything
        error = None
        text = f"{summary.error_type}: {summary.message} (it cannot be read here: {type(unreadable).__name__})"
    # What a future cannot hold, or what would end a task or the process, is told as ours.
    whole = isinstance(error, Exception) and not isinstance(error, StopIteration)
    raised = error if whole and isinstance(error, Exception) else CallFailed(text, error_type=summary.error_type)
    try:
        raised.__cause__ = RemoteTraceback(summary.traceback)
    except Exception:  # noqa: BLE001 - a class of the user's may allow nothing
        return CallFailed(text, error_type=summary.error_type)
    return raised


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return type(value) is tuple and all(_is_plain(each) for each in value)
    return type(value) in _PLAIN or (type(value) is dict and not value)
