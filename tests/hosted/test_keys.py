"""Calls with keys: what an actor keeps of them, and that a call that was lost runs once."""

import asyncio
import threading

import pytest

from iriscw.client.actors import ActorHandle, methods_of
from iriscw.client.hosted import ActorId, HostedCalls
from iriscw.errors import AnswerNotKept, CallFailed, CallKeyReused, CallLost, InvalidArgument
from iriscw.hosted import keys
from iriscw.hosted.keys import KeptAnswers
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task.hosting import ActorHost
from raised import that

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
        self.count, self.loop = 0, asyncio.get_running_loop()
        self.gate, self.entered, self.cancelled = threading.Event(), asyncio.Event(), asyncio.Event()

    def add(self, number):
        self.count += number
        return self.count

    def fail(self):
        self.count += 1
        raise KeyError(self.count)

    def wait(self, number):
        self.loop.call_soon_threadsafe(self.entered.set)
        self.gate.wait(PATIENCE_S)
        return self.add(number)

    async def wait_async(self, number):
        self.entered.set()
        while not self.gate.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        return self.add(number)

    async def hang(self):
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


class Directory:
    """What the controller says of an actor."""

    def __init__(self, port):
        self.port = port
        self.seen = asyncio.Event()

    async def stream(self, method, request, reply_type):
        self.seen.set()
        yield HostedActorUpdate(attempt_uid="a", host="127.0.0.1", port=self.port, call_key=KEY)
        await asyncio.Event().wait()


class Scene:
    """An actor, and handles of it from as many clients as are asked for."""

    async def __aenter__(self):
        self.subject, self.host = Counter(), ActorHost(KEY)
        self.serving = asyncio.create_task(self.host.serve(lambda: self.subject, "127.0.0.1", 0))
        self.directory = Directory(await self.host.listening)
        self.homes = []
        self.deadline = asyncio.timeout(PATIENCE_S)
        await self.deadline.__aenter__()
        return self

    async def __aexit__(self, *error):
        self.subject.gate.set()
        for home in self.homes:
            home.close()
        self.serving.cancel()
        await asyncio.wait([self.serving])
        await self.deadline.__aexit__(*error)

    def handle(self):
        async def opened():
            return self.directory

        self.homes.append(HostedCalls(opened))
        return ActorHandle(ActorId("job-a", "uid", "counter"), methods_of(Counter), self.homes[-1], None)

    def cut(self):
        for link in [*self.host._links]:
            link.close()


def test_so_many_answers_are_kept(monkeypatch):
    """By number and by bytes; of what does not fit it is known that it ran, and the oldest are forgotten."""
    monkeypatch.setattr(keys, "MAX_KEYS", 4)
    monkeypatch.setattr(keys, "KEPT_BYTES", 10)
    kept = KeptAnswers()
    for number, size in enumerate((4, 4, 4, 11)):
        kept.keep(str(number), "add", failed=False, parts=[bytes(size)])
    assert [answer.parts is None for _, answer in kept.items()] == [True, False, False, True]
    for number in range(4, 40):
        kept.keep(str(number), "add", failed=True, parts=[bytes(5)] if number % 3 else None)
    assert [key for key, _ in kept.items()] == ["36", "37", "38", "39"]
    assert kept._bytes == sum(answer.size_bytes for _, answer in kept.items()) <= 10
    assert kept.get("3") is None


async def test_a_call_with_a_known_key_is_answered_and_does_not_run():
    """Whoever makes it, and whatever came of it; the key is that of one method."""
    async with Scene() as scene:
        handle, other = scene.handle(), scene.handle()
        assert await handle.add.with_key("a")(5) == 5
        assert await other.add.with_key("a")(5) == 5
        assert await handle.add.with_key("b")(5) == 10
        for _ in range(2):
            with pytest.raises(KeyError, check=that(names="11")):
                await handle.fail.with_key("c")()
        with pytest.raises(CallKeyReused):
            await handle.fail.with_key("a")()
        both = [handle.wait.with_key("d").remote(1), other.wait.with_key("d").remote(1)]
        await scene.subject.entered.wait()
        scene.subject.gate.set()
        assert [await each for each in both] == [12, 12]
        assert await handle.add(0) == 12


@pytest.mark.parametrize("name", ["wait", "wait_async"])
async def test_a_lost_call_is_sent_again_and_has_run_once(name):
    """While it runs, and while it waits for its turn; one without a key is lost."""
    async with Scene() as scene:
        handle = scene.handle()
        running = getattr(handle, name).with_key("runs").remote(1)
        await scene.subject.entered.wait()
        waiting, plain = handle.add.with_key("waits").remote(10), handle.add.remote(100)
        while len(scene.host._mailbox) < 2:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        scene.cut()
        with pytest.raises(CallLost):
            await plain
        while not (scene.host._links and scene.host._keyed["runs"].waiters):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
        scene.subject.gate.set()
        assert await running == 1
        assert await waiting == 11
        assert await handle.add(0) == 11


async def test_a_lost_call_is_given_up_at_its_deadline():
    """Though the actor does not come back; and it is not taken for one that never was sent."""
    async with Scene() as scene:
        handle = scene.handle()
        calling = handle.wait.with_key("a", patience_s=0.2).remote(1)
        late = handle.add.with_key("b", patience_s=0).remote(1)
        await scene.subject.entered.wait()
        scene.directory.port = 1
        scene.cut()
        for each in (calling, late):
            with pytest.raises(CallLost):
                await each


async def test_what_its_caller_takes_back_is_cancelled_and_does_not_run_again():
    """The key says so from then on; one that had not begun is as new."""
    async with Scene() as scene:
        handle = scene.handle()
        calling = handle.hang.with_key("a").remote()
        await scene.subject.entered.wait()
        waiting = handle.add.with_key("b").remote(1)
        while not scene.host._mailbox:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        waiting.cancel()
        calling.cancel()
        await scene.subject.cancelled.wait()
        with pytest.raises(CallFailed):
            await handle.hang.with_key("a")()
        assert await handle.add.with_key("b")(1) == 1


async def test_an_answer_that_was_too_much_is_not_made_up_by_running_again(monkeypatch):
    """Its caller is told."""
    monkeypatch.setattr(keys, "KEPT_BYTES", 1)
    async with Scene() as scene:
        handle = scene.handle()
        assert await handle.add.with_key("a")(1) == 1
        with pytest.raises(AnswerNotKept):
            await handle.add.with_key("a")(1)
        assert scene.subject.count == 1


@pytest.mark.parametrize(("key", "patience_s"), [("", 1), ("x" * 257, 1), ("a\n", 1), (5, 1), ("a", -1), ("a", "1")])
async def test_what_is_no_key_is_refused(key, patience_s):
    """Before anything is sent."""
    handle = ActorHandle(ActorId("job-a", "uid", "counter"), ["add"], None, None)
    with pytest.raises(InvalidArgument):
        handle.add.with_key(key, patience_s=patience_s)
