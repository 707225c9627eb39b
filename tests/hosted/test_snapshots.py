"""Snapshots of hosted actors: what is stored of a state, and that a later host begins with it."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from iriscw.client.actors import ActorHandle, methods_of
from iriscw.client.hosted import ActorId, HostedCalls
from iriscw.errors import SnapshotTooLarge
from iriscw.hosted.keys import KeptAnswers
from iriscw.objects.ports import StoreUnreachable
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task import snapshots
from iriscw.task.framing import FrameCorrupt
from iriscw.task.hosting import ActorHost
from iriscw.task.snapshots import keeps_state, read_snapshot, snapshot_bytes

pytestmark = pytest.mark.anyio

KEY = b"k" * 32
PATIENCE_S = 30


@pytest.fixture
def anyio_backend():
    """The protocol is asyncio's."""
    return "asyncio"


class Counter:
    """The actor."""

    def __init__(self):
        self.count, self.fails = 0, False

    def add(self, number):
        self.count += number
        return self.count

    def fail(self):
        self.fails = True

    async def snapshot(self):
        if self.fails:
            raise SystemExit(3)
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]


class Kept:
    """Keeps snapshots in memory; one that is not let through fails."""

    def __init__(self, data=None, failures=0):
        self.data, self.failures, self.numbers = data, failures, []
        self.saved, self.first = asyncio.Queue(), None

    async def load(self):
        if self.failures:
            self.failures -= 1
            raise StoreUnreachable("not now")
        return self.data

    async def save(self, number, data):
        self.numbers.append(number)
        if self.failures:
            self.failures -= 1
            raise StoreUnreachable("not now")
        self.data, self.first = data, self.first or data
        self.saved.put_nowait(read_snapshot(data)[0]["count"])


class Directory:
    """What the controller says of an actor."""

    def __init__(self, port):
        self.update = HostedActorUpdate(attempt_uid="a", host="127.0.0.1", port=port, call_key=KEY)

    async def stream(self, method, request, reply_type):
        yield self.update
        await asyncio.Event().wait()


@asynccontextmanager
async def hosted(states, kind=Counter, concurrency=1):
    """Serve one that keeps a snapshot after each call; give a handle of it."""
    host = ActorHost(KEY, concurrency, states=states, snapshot_every_s=0)
    serving = asyncio.create_task(host.serve(kind, "127.0.0.1", 0))
    try:
        async with asyncio.timeout(PATIENCE_S):
            directory = Directory(await host.listening)

            async def opened():
                return directory

            home = HostedCalls(opened)
            yield ActorHandle(ActorId("job-a", "uid", "counter"), methods_of(kind), home, None)
            home.close()
    finally:
        serving.cancel()
        await asyncio.wait([serving])


def test_a_snapshot_has_the_state_and_the_answers():
    """Of the latest of these all; what was changed on its way is not unpickled."""
    answers = KeptAnswers()
    answers.keep("old", "add", failed=False, parts=[bytes(snapshots.ANSWER_BYTES)])
    answers.keep("new", "add", failed=True, parts=[memoryview(b"xy"), b"z"])
    data = snapshot_bytes([1, 2], answers.lately(snapshots.ANSWER_BYTES))
    state, found = read_snapshot(data)
    assert state == [1, 2]
    assert [(key, each.failed, each.parts) for key, each in found.items()] == [
        ("old", False, None),
        ("new", True, (b"xy", b"z")),
    ]
    with pytest.raises(FrameCorrupt):
        read_snapshot(data[:-1] + bytes([data[-1] ^ 1]))


def test_a_snapshot_has_a_bound(monkeypatch):
    """It is named."""
    monkeypatch.setattr(snapshots, "MAX_STATE_BYTES", 1000)
    with pytest.raises(SnapshotTooLarge):
        snapshot_bytes(bytes(1000), ())


def test_who_has_both_methods_takes_part():
    """One of them may be anything."""
    assert keeps_state(Counter)
    assert not keeps_state(type("Camera", (), {"snapshot": lambda self: None}))


async def test_a_later_host_begins_where_the_snapshot_was_taken():
    """With the answers to calls with keys: what is in the state is not done twice."""
    states = Kept()
    async with hosted(states) as handle:
        assert await handle.add.with_key("a")(5) == 5
        assert await states.saved.get() == 5
        assert await handle.add(1) == 6
        assert await states.saved.get() == 6
    async with hosted(Kept(states.data)) as handle:
        assert await handle.add.with_key("a")(5) == 5
        assert await handle.add(0) == 6


class Slow(Counter):
    """Takes its time, in a thread, after it has looked at its state."""

    looked, gate = threading.Event(), threading.Event()

    def snapshot(self):
        state = {"count": self.count}
        self.looked.set()
        self.gate.wait(PATIENCE_S)
        return state


async def test_what_a_call_did_beside_a_snapshot_is_done_again():
    """Its answer would be known, and what it did lost."""
    states = Kept()
    async with hosted(states, Slow, concurrency=2) as handle:
        assert await handle.add.with_key("before")(1) == 1
        await asyncio.to_thread(Slow.looked.wait, PATIENCE_S)
        assert await handle.add.with_key("beside")(5) == 6
        Slow.gate.set()
        assert await states.saved.get() == 1
        state, answers = read_snapshot(states.first)
    assert state == {"count": 1}
    assert [key for key, _ in answers.items()] == ["before"]


async def test_what_cannot_be_kept_leaves_the_one_before_it(monkeypatch):
    """The actor goes on; the store is asked again, and a snapshot that raises is told in the log."""
    monkeypatch.setattr("iriscw.task.hosting.RETRY_S", 0)
    states = Kept(failures=2)
    async with hosted(states) as handle:  # asked again for the first one, too
        assert await handle.add(5) == 5
        assert await states.saved.get() == 5
        states.failures = 1
        assert await handle.add(1) == 6
        assert await states.saved.get() == 6
        assert states.numbers == [1, 2, 3]
        await handle.fail()
        assert await handle.add(1) == 7
        assert read_snapshot(states.data)[0] == {"count": 6}
