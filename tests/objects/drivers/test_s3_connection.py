"""Requests: what is loaded for them, how many there are at once, and how long is waited between tries."""

import asyncio
import socket
import subprocess
import sys

import anyio
import attrs
import pytest
from s3_stage import QUICK, Loopback, staged

from iriscw.objects.drivers.attempts import Attempts
from iriscw.objects.drivers.s3 import S3ObjectStore
from iriscw.objects.drivers.s3_place import S3Limits
from iriscw.objects.ports import IfAbsent, StoreUnreachable

pytestmark = pytest.mark.usefixtures("credentials")


def test_opening_a_store_loads_no_client() -> None:
    """The library is imported when a request is made, in a thread."""
    code = "import iriscw.objects.drivers.opening as o, sys; o.open_store('s3://bkt'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "iriscw" in loaded
    assert not loaded & {"aiobotocore", "botocore", "aiohttp"}


async def test_requests_have_places() -> None:
    """More than there are places for wait, and are told if none comes free."""
    async with staged() as stage:
        stage.surroundings.rates["object request slow"] = 1000
        store = stage.store(attrs.evolve(QUICK, requests=2))
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(store.put, f"{number}", b"x")
        assert len(stage.bodies()) == 6
        narrow = stage.store(attrs.evolve(QUICK, requests=1, place_s=0.001))
        told = []

        async def list_once():
            try:
                await narrow.list()
            except StoreUnreachable as error:
                told.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(list_once)
        assert len(told) == 1
        assert "no request of those under way ended" in told[0]


def test_pauses_grow_to_a_bound() -> None:
    """And differ, so that many who failed at once do not come back at once."""
    limits = S3Limits()
    attempts = Attempts("a store", limits)
    for attempt in range(1, 30):
        bound = min(limits.most_pause_s, limits.first_pause_s * 2 ** (attempt - 1))
        pauses = {attempts.pause(attempt) for _ in range(20)}
        assert len(pauses) > 1
        assert all(bound / 2 <= pause <= bound for pause in pauses)


async def test_a_look_up_that_another_one_gave_up() -> None:
    """A cancellation that nobody asked of the request is a failure of it, which is tried again."""

    class Shared(Loopback):
        """Ends with somebody else's cancelled future, once."""

        asked = 0

        async def resolve(self, host, port=0, family=socket.AF_INET):
            self.asked += 1
            if self.asked == 1:
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            return await super().resolve(host, port, family)

    async with staged() as stage:
        shared = Shared()
        store = S3ObjectStore(stage.place(), QUICK, connector={"resolver": shared})
        stage.opened.append(store)
        await store.put("k", b"x", condition=IfAbsent())
        assert shared.asked > 1


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    """Its place comes free, and the next request is answered."""
    async with staged() as stage:
        store = stage.store(attrs.evolve(QUICK, requests=1, readings=1))
        await store.put("k", b"x" * 300_000)
        for _ in range(5):
            with anyio.move_on_after(0.003):
                await store.put("k", b"y" * 300_000)
            with anyio.move_on_after(0.003):
                async with store.get("k") as reading:
                    async for _chunk in reading:
                        pass
        assert (await store.stat("k")).size_bytes == 300_000
