"""Iterators among the arguments of a call: each item is asked for when the actor has room for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from iriscw._errors import InvalidArgument
from iriscw.hosted.drivers.link import Part
from iriscw.hosted.drivers.streams import ReaderLeft, StreamSender
from iriscw.hosted.frames import FrameKind, written_stream
from iriscw.hosted.model import MAX_STREAM_ARGUMENTS
from iriscw.task.result import encode_exception
from iriscw.task.streaming import Giving, OwnCode, StreamPlace, give_all, give_all_from_thread

Send: TypeAlias = Callable[[FrameKind, Sequence[Part]], None]


class ArgumentSource:
    """One iterator among the arguments. All but :meth:`close` is on the event loop of the calls.

    Args:
        items: a generator, or an async iterator.
        number: of its stream.
        own_code: as :func:`~iriscw.task.passing.passed` takes it.
        loop: where an async iterator goes on; None for a generator, which gets a thread of its own.
    """

    def __init__(
        self, items: Any, number: int, own_code: OwnCode | None, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._items = items
        self._number = number
        self._own_code = own_code
        self._loop = loop
        self._sender: StreamSender | None = None
        self._giving: asyncio.Task[None] | concurrent.futures.Future[None] | None = None

    def more(self, count: int, send: Send) -> None:
        """Go on: so many items were taken. The first time, begin.

        Raises:
            CallRefused: so many were not given.
        """
        if self._sender is None:
            head, home = written_stream(self._number), asyncio.get_running_loop()
            self._sender = sender = StreamSender(lambda item: send(FrameKind.ITEM, [head, *item]))
            if self._loop is None:
                giving = functools.partial(self._give_from_thread, sender, home, send)
                threading.Thread(target=giving, name="iriscw argument", daemon=True).start()
            elif self._loop is home:
                self._giving = home.create_task(self._give(sender, home, send))
            else:
                giving_there = self._give(_FarSender(sender, home), home, send)
                self._giving = asyncio.run_coroutine_threadsafe(giving_there, self._loop)
        self._sender.taken(count)

    def close(self) -> None:
        """Give no more: the call is over. What has begun is closed where it goes on; what has not, was never asked."""
        if self._sender is not None:
            self._sender.close()
        if self._giving is not None:
            self._giving.cancel()

    async def _give(self, sender: Giving, home: asyncio.AbstractEventLoop, send: Send) -> None:
        error: Exception | None = None
        try:
            await give_all("", self._items, sender, self._own_code)
        except ReaderLeft:
            return
        except Exception as raised:  # noqa: BLE001 - whatever it is, the method that reads is told
            error = raised
        self._ended(error, home, send)

    def _give_from_thread(self, sender: StreamSender, home: asyncio.AbstractEventLoop, send: Send) -> None:
        error: Exception | None = None
        try:
            give_all_from_thread("", self._items, sender, home, self._own_code)
        except (ReaderLeft, concurrent.futures.CancelledError):
            return
        except Exception as raised:  # noqa: BLE001 - as above
            error = raised
        self._ended(error, home, send)

    def _ended(self, error: Exception | None, home: asyncio.AbstractEventLoop, send: Send) -> None:
        end: list[Part] = [written_stream(self._number)]
        if error is not None:
            end.append(encode_exception(error))
        with contextlib.suppress(RuntimeError):  # the loop may have ended, and the call with it
            home.call_soon_threadsafe(send, FrameKind.ENDED, end)


@attrs.frozen
class _FarSender:
    """A sender of another event loop."""

    _sender: StreamSender
    _home: asyncio.AbstractEventLoop

    async def given(self, parts: Sequence[Part]) -> None:
        """As :meth:`StreamSender.given`."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._sender.given(parts), self._home))


def without_iterators(
    args: Sequence[Any], kwargs: Mapping[str, Any], own_code: OwnCode | None, sources: list[ArgumentSource]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with a place for each iterator; these become ``sources``.

    Raises:
        InvalidArgument: they are too many, or one needs an event loop where none runs.
    """

    def placed(name: str, argument: object) -> object:
        generator = inspect.isgenerator(argument)
        if not generator and not hasattr(type(argument), "__anext__"):
            return argument
        if len(sources) == MAX_STREAM_ARGUMENTS:
            raise InvalidArgument(f"{name}: a call has at most {MAX_STREAM_ARGUMENTS} iterators as arguments")
        loop: asyncio.AbstractEventLoop | None = None
        if not generator:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                text = f"{name}: an async iterator goes on on an event loop, and none runs here; give a generator"
                raise InvalidArgument(text) from None
        sources.append(ArgumentSource(argument, len(sources) + 1, own_code, loop))
        return StreamPlace(len(sources))

    return (
        tuple(placed(f"argument {number}", each) for number, each in enumerate(args)),
        {name: placed(name, each) for name, each in kwargs.items()},
    )
