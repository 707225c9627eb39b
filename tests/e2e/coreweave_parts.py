"""What a cluster for tests stands on: event loops in threads, a name that leads to the controller, a store.

Each part lives in a thread of its own, so that one that waits (for an API server that was killed) holds up no other.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from iriscw_sims.objects.messages import CreateBucket, Request
from iriscw_sims.objects.rules import AWS
from iriscw_sims.objects.serve.server import S3Server
from iriscw_sims.objects.storage import ObjectStorage

PATIENCE_S = 60
BUCKET = "iris"
KEY = "CWKEY"
CREDENTIALS = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = not-a-secret\n"
CHUNK_BYTES = 1 << 16


class LoopThread:
    """Something asynchronous, open in a thread of its own, with an event loop of its own.

    Args:
        make: Opens it.
        name: Of the thread.

    Raises:
        BaseException: whatever opening it raises.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager], name: str) -> None:
        self._make = make
        self._opened: concurrent.futures.Future = concurrent.futures.Future()
        self._ended: concurrent.futures.Future = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.thing = self._opened.result(PATIENCE_S)
        """What was opened; only its own loop may touch it."""

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self._make() as thing:
            self._opened.set_result(thing)
            await self._end.wait()

    def call(self, function: Callable, *args: object) -> object:
        """Call a function in its loop, and give what it gives. If the thing has ended, that is raised."""
        told: concurrent.futures.Future = concurrent.futures.Future()

        def run() -> None:
            try:
                told.set_result(function(*args))
            except BaseException as error:
                told.set_exception(error)

        self.check()
        self._loop.call_soon_threadsafe(run)
        concurrent.futures.wait([told, self._ended], 2 * PATIENCE_S, concurrent.futures.FIRST_COMPLETED)
        self.check()
        return told.result(0)

    def check(self) -> None:
        """Raise what ended it, if it has ended."""
        if self._ended.done():
            self._ended.result()
            raise RuntimeError(f"{self._thread.name} has ended")

    def close(self) -> None:
        """Leave it, and wait until it is left; raise what ended it."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._loop.call_soon_threadsafe(self._end.set)
        self._ended.result(2 * PATIENCE_S)
        self._thread.join()


class ServiceName:
    """What stands for a Service: one address that leads to the pod behind it, whichever that is now."""

    def __init__(self) -> None:
        self.endpoint: tuple[str, int] | None = None
        self.port = 0
        self._links: set[asyncio.Task] = set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ServiceName]:
        """Lead there, until the block is left."""
        server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for link in [*self._links]:
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._links.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._joined(reader, writer)
        finally:
            self._links.discard(task)
            writer.transport.abort()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.endpoint is None:
            return
        there, back = await asyncio.open_connection(*self.endpoint)
        try:
            ways = [asyncio.ensure_future(_pass(reader, back)), asyncio.ensure_future(_pass(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            back.transport.abort()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        sink.write(data)
        await sink.drain()


@asynccontextmanager
async def object_storage() -> AsyncIterator[S3Server]:
    """Serve a simulated S3 with one bucket and one key."""
    storage = ObjectStorage(AWS)
    storage.add_key(KEY)
    assert storage.handle(Request(BUCKET, CreateBucket(), KEY), 0).ok
    async with S3Server(storage) as server:
        yield server
