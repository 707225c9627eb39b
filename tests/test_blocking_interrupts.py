"""Ctrl-C in a script that uses the blocking client: it is what the script hears, and nothing goes on behind it."""

import os
import signal
import threading
from contextlib import asynccontextmanager

import anyio
import pytest

from iriscw.client import loops


@pytest.fixture
def loop():
    """Yield the loop behind a block."""

    @asynccontextmanager
    async def nothing():
        yield None

    with loops.on_a_loop(nothing()) as (made, _):
        yield made


@pytest.fixture
def interrupt():
    """Have Ctrl-C come as soon as an event is set."""
    begun = threading.Event()

    def come():
        if begun.wait(30):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=come)
    thread.start()
    yield begun
    begun.set()
    thread.join()
    signal.signal(signal.SIGINT, before)


def test_what_is_called_ends(loop, interrupt):
    """The call is cancelled on its loop, and was not left to run until the block ends."""
    ended = threading.Event()

    async def call():
        try:
            interrupt.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        loop.call(call)
    assert ended.wait(30)


def test_a_stream_is_closed(loop, interrupt):
    """Its reader hears of Ctrl-C; that the stream is being read is no error of its own."""
    told = []

    async def lines():
        try:
            yield "first"
            interrupt.set()
            await anyio.sleep_forever()
        finally:
            told.append("closed")

    with pytest.raises(KeyboardInterrupt):
        told.extend(loops.iterated(loop, lines()))
    assert told == ["first", "closed"]


def test_a_reader_that_stops_early_closes_the_stream(loop):
    """As before."""
    told = []

    async def lines():
        try:
            yield 1
            yield 2
        finally:
            told.append("closed")

    for each in (reading := loops.iterated(loop, lines())):
        told.append(each)
        break
    reading.close()
    assert told == [1, "closed"]
