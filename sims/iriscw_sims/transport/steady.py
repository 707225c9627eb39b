"""What keeps libraries from being deterministic on a virtual loop, put right for as long as a block lasts.

Theory of operation. A virtual loop decides the order of callbacks, but code on it has other sources of order and time:

* anyio keeps the scopes inside a scope in a set, whose order is that of addresses in memory. Here it is that of entry.
  (Sets of tasks have an order already: :class:`~iriscw_sims.transport.loop.SteadyTask`.)
* anyio's threads are not the loop's executor. Here they do as the loop's ``threads`` says.
* Some libraries read ``time.monotonic()`` past the loop: grpclib does for deadlines and pings. Here they read the
  loop's clock.
* The garbage collector runs when it likes, and what it finalises runs code. Here it runs at the end.

All of it is private to those libraries. Where one has changed, :func:`steady` refuses to begin rather than let runs
differ.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from anyio._backends import _asyncio as backend

from iriscw._errors import InvalidArgument
from iriscw_sims.transport.errors import Unsimulated
from iriscw_sims.transport.loop import VirtualLoop

CLOCKED = ("grpclib.client", "grpclib.metadata", "grpclib.protocol", "grpclib.server")
"""Modules that call ``time.monotonic()``."""


class _LoopTime:
    """The ``time`` module, on the loop's clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Ordered(dict[Any, None]):
    """A set in the order of entry."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)

    remove = dict.__delitem__


@contextmanager
def steady(loop: VirtualLoop, clocked: tuple[str, ...] = CLOCKED) -> Generator[None]:
    """Make what runs on ``loop`` inside this block deterministic. One block at a time.

    Args:
        loop: whose clock and thread policy count.
        clocked: names of modules that read ``time.monotonic()``; those that are not imported do not matter.

    Raises:
        InvalidArgument: one of the modules has no ``time`` to replace.
        Unsimulated: anyio is not as it was when this was written.
    """
    with ExitStack() as stack:
        for name in clocked:
            module = sys.modules.get(name)
            if module is not None:
                if getattr(module, "time", None) is not time:
                    raise InvalidArgument(f"{name} does not import the module time: its clock cannot be replaced")
                stack.enter_context(_replaced(module, "time", _LoopTime(loop)))
        stack.enter_context(_replaced(backend.CancelScope, "__init__", _ordered_scopes(backend.CancelScope.__init__)))
        stack.enter_context(_replaced(backend.AsyncIOBackend, "run_sync_in_worker_thread", _threads_of(loop)))
        stack.enter_context(_collected_at_the_end())
        yield


def _ordered_scopes(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807 - it takes the original's place
        original(self, *args, **options)
        if not isinstance(getattr(self, "_child_scopes", None), set):
            raise Unsimulated("this anyio keeps nested scopes elsewhere: runs on it are not deterministic")
        self._child_scopes = _Ordered()

    return __init__


def _threads_of(loop: VirtualLoop) -> Any:
    async def run_sync_in_worker_thread(
        cls: Any, /, func: Callable[..., Any], args: tuple[Any, ...], *_: object, **__: object
    ) -> Any:
        await cls.checkpoint()
        loop.require_inline(func)
        return func(*args)

    return classmethod(run_sync_in_worker_thread)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    original = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def _collected_at_the_end() -> Generator[None]:
    """Collect nothing inside the block, and what it made after it: the rest is frozen, so that this is quick."""
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_enabled:
            gc.enable()
