"""Streams of a hosted actor's calls, at the actor: what methods yield, and iterators among the arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, Protocol, TypeAlias

import attrs

from iriscw.hosted.drivers.streams import StreamArrivals, StreamSender
from iriscw.hosted.errors import StreamMismatch
from iriscw.task.context import InsideLoop
from iriscw.task.passing import Part, passed, received

GENERATORS: Final = (GeneratorType, AsyncGeneratorType)

OwnCode: TypeAlias = Callable[[], AbstractContextManager[None]]


@attrs.frozen
class StreamPlace:
    """Stands for an iterator among the arguments, where the call travels."""

    number: int


class ArgumentItems:
    """An iterator of the caller's, as a method gets it: for ``async for``, and for ``for`` in a method without it.

    Args:
        arrivals: what comes of it.
        loop: the actor's.
    """

    def __init__(self, arrivals: StreamArrivals, loop: asyncio.AbstractEventLoop) -> None:
        self._arrivals = arrivals
        self._loop = loop

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        coming = self._arrivals.next()
        if asyncio.get_running_loop() is self._loop:
            parts = await coming
        else:
            parts = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coming, self._loop))
        if parts is None:
            raise StopAsyncIteration
        return received(parts)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise InsideLoop("`for` would hold up the event loop that runs here: use `async for`")
        parts = asyncio.run_coroutine_threadsafe(self._arrivals.next(), self._loop).result()
        if parts is None:
            raise StopIteration
        return received(parts)


def has_places(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether there are iterators among the arguments."""
    return StreamPlace in map(type, args) or (bool(kwargs) and StreamPlace in map(type, kwargs.values()))


def is_of_loop(value: object) -> bool:
    """Whether what a method gave goes on on the event loop: it can be awaited."""
    return hasattr(type(value), "__await__")


class Giving(Protocol):
    """What takes items for a reader: a :class:`StreamSender`, here or on another event loop."""

    async def given(self, parts: Sequence[Part]) -> None:
        """As :meth:`StreamSender.given`."""


async def give_all(method: str, items: object, sender: Giving, own_code: OwnCode | None = None) -> None:
    """Send what an async iterator gives, as far as there is room; it is closed at the end, whatever that is.

    Raises:
        StreamMismatch: it is none.
        ReaderLeft: nobody reads any more.
        CallTooLarge, NotPicklable: an item cannot travel.
        Exception: what the iterator raises.
    """
    if not hasattr(type(items), "__aiter__"):
        raise _no_stream(method, items)
    iterator: Any = items
    if not hasattr(type(items), "aclose"):
        async for item in iterator:
            await sender.given(passed(item, own_code))
        return
    async with aclosing(iterator):
        async for item in iterator:
            await sender.given(passed(item, own_code))


def give_all_from_thread(
    method: str,
    items: object,
    sender: StreamSender,
    loop: asyncio.AbstractEventLoop,
    own_code: OwnCode | None = None,
) -> None:
    """Send what an iterator gives, from a thread; as :func:`give_all`."""
    if not hasattr(type(items), "__next__"):
        raise _no_stream(method, items)
    iterator: Any = items
    try:
        for item in iterator:
            asyncio.run_coroutine_threadsafe(sender.given(passed(item, own_code)), loop).result()
    finally:
        if hasattr(type(items), "close"):
            iterator.close()


def _no_stream(method: str, value: object) -> StreamMismatch:
    return StreamMismatch(f"{method} gives a {type(value).__name__}, and no stream: call handle.{method}(...)")
