"""Hosted calls in a world of their own: callers, a scripted controller, and an actor whose lives end, from one seed.

Theory of operation. The caller's side (:mod:`iriscw.client.hosted`), the link between them and the actor's side
(:mod:`iriscw.task.hosting`) are the real ones, on the virtual loop and the network in memory of
:mod:`iriscw_sims.transport`. Two things take the place of others: a script says where the actor is, as the controller
would, late and again after pauses; and methods that are not ``async`` run on the loop, after a while in which a thread
would have been busy (:class:`SlowThreads`). Windows and bounds are made small, so that a few calls reach them.

For a while the network, the actor's process and the callers fail; then nothing does, and each call has to end.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any, Final
from unittest import mock

import attrs

from iriscw.client import hosted as callers
from iriscw.client.hosted import ActorCalls, ActorId, HostedCalls
from iriscw.errors import CallFailed, CallLost, ClientClosed
from iriscw.hosted.drivers.link import Part
from iriscw.hosted.frames import FrameKind
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task import hosting
from iriscw.task.hosting import ActorHost, HostedLink, MailboxCall
from iriscw.task.passing import passed, received
from iriscw_sims.hosted.truth import LOST, Made, Run, Truth
from iriscw_sims.transport.network import Connection, Fault, FaultKind, Network
from iriscw_sims.transport.run import simulate
from iriscw_sims.transport.wire import Weather

SMALL_WINDOW: Final = 6
SMALL_MAILBOX_BYTES: Final = 24 << 10
FAULTS_S: Final = 60.0
"""For how long things fail, and calls are made."""

SETTLES_S: Final = 2_000.0
"""Within which all calls have to end then: a kernel takes 15 minutes to give up a peer that is gone without a word."""

PORT: Final = 7000
KINDS: Final = ("call", "call", "call", "tell", "tell", "keyed", "keyed", "stream")
FAULTS: Final = tuple(each for each in FaultKind if each not in (FaultKind.HANG, FaultKind.SLOW_ACCEPT))


@attrs.frozen
class HostedRun:
    """What a run gave."""

    seed: int
    violations: tuple[str, ...]
    fingerprint: str
    ends: tuple[str, ...]
    """How calls ended: ``kind end``, for each call."""
    lines: tuple[str, ...]
    """The end of its trace."""


class SlowThreads:
    """Threads of an actor: so many functions at once, each after a while and in no time.

    Args:
        count: how many.
        rng: draws how long a thread is busy before the function.
    """

    def __init__(self, count: int, rng: random.Random) -> None:
        self._free = asyncio.Semaphore(count)
        self._rng = rng

    async def call(self, function: Callable[[], Any]) -> Any:
        """As :meth:`iriscw.task.actor_threads.ActorThreads.call`."""
        async with self._free:
            await asyncio.sleep(self._rng.choice((0, 0.001, 0.3)))
            return function()


class Subject:
    """The actor's object in one life; what it is called with says what it does."""

    def __init__(self, truth: Truth, life: int, *, ghost: bool = False) -> None:
        self._truth, self._life, self._ghost = truth, life, ghost
        self.taken: dict[str, int] = {}

    def _begin(self, tag: str, filling: bytes) -> Run:
        run = self._truth.begins(tag, self._life, ghost=self._ghost)
        if filling != filling_of(tag, len(filling)):
            self._truth.violate("H4", f"{tag} has other arguments than it was called with")
        return run

    async def work(self, tag: str, lasts_s: float, fails: bool, filling: bytes) -> tuple[str, int, bytes]:
        """Take a while, and give what is known of it."""
        run, finished = self._begin(tag, filling), False
        try:
            await asyncio.sleep(lasts_s)
            finished = True
        finally:
            self._truth.ends(run, finished=finished)
        return self._outcome(tag, fails, filling)

    def quick(self, tag: str, lasts_s: float, fails: bool, filling: bytes) -> tuple[str, int, bytes]:
        """Do the same in a thread, which no cancellation reaches."""
        self._truth.ends(self._begin(tag, filling), finished=True)
        return self._outcome(tag, fails, filling)

    def _outcome(self, tag: str, fails: bool, filling: bytes) -> tuple[str, int, bytes]:
        if fails:
            raise ValueError(tag, self._life)
        return tag, self._life, filling

    async def rows(self, tag: str, count: int, fails: bool, filling: bytes) -> AsyncGenerator[tuple[str, int, int]]:
        """Yield so many items."""
        run, finished = self._begin(tag, filling), False
        try:
            for number in range(count):
                self._truth.check_ahead(tag, number + 1, TAKEN.get(tag, 0))
                yield tag, self._life, number
            finished = True
        finally:
            self._truth.ends(run, finished=finished)
        if fails:
            raise ValueError(tag, self._life)


TAKEN: Final[dict[str, int]] = {}
"""Items of streams that readers have, of the run that is under way: one at a time."""


def filling_of(tag: str, size: int) -> bytes:
    """Return the bytes that go with a call."""
    block = hashlib.sha256(tag.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Script:
    """Says where the actor is, in the controller's place."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world

    async def stream(
        self, method: str, request: Callable[[], object], reply_type: type[object]
    ) -> AsyncGenerator[HostedActorUpdate]:
        """Yield what is known now, late, and then what changes."""
        told = None
        while True:
            self._world.news.clear()
            update = self._world.told
            if update is not told:
                await asyncio.sleep(self._world.rng.choice((0, 0.01, 2.0)))
                told = update
                yield update
            else:
                await self._world.news.wait()


class Caller:
    """One caller, whose calls are numbered."""

    def __init__(self, world: HostedWorld, number: int) -> None:
        self.world, self.number = world, number
        self.gone = False
        self._orders = 0
        self._home = self._opened()

    def _opened(self) -> HostedCalls:
        script: Any = Script(self.world)

        async def opened() -> Any:
            return script

        return HostedCalls(opened)

    @property
    def calls(self) -> ActorCalls:
        """Its calls of the actor."""
        return self._home.of(ActorId("job-a", "uid", "actor"))

    def die(self) -> None:
        """Be gone, as a process is."""
        self.gone = True
        self._home.close()

    def make(self, rng: random.Random) -> None:
        """Make a call, as it is drawn."""
        if self.gone:
            return
        kind = rng.choice(KINDS[:-1] if self.world.crowded else KINDS)
        self._orders += 1
        tag = f"{kind} {self.number}.{self._orders}"
        if kind == "keyed" and rng.random() < 0.3:
            tag = f"shared {rng.randrange(4)}"
        made = Made(tag, kind, self.number, self._orders)
        self.world.truth.makes(made)
        fails = rng.random() < 0.2 and kind != "tell" and not tag.startswith("shared")  # those are written to the log
        filling = filling_of(tag, rng.choice((0, 100, 7_000)))
        amount: float = rng.choice((1, 5, 40)) if kind == "stream" else rng.choice((0, 0.01, 0.5, 3.0))
        method = "rows" if kind == "stream" else rng.choice(("work", "work", "quick"))
        if tag.startswith("shared"):
            method, amount, filling = "work", 0.5, b""
        parts: list[Part] = [method.encode(), *passed(((tag, amount, fails, filling), {}))]
        task = asyncio.create_task(self._ended(made, parts, rng.choice((1.0, 60.0, 600.0)), filling))
        self.world.calls.append(task)
        if rng.random() < 0.25:
            self.world.loop.call_later(rng.choice((0, 0.001, 0.2, 4.0)), self._take_back, made, task)

    def _take_back(self, made: Made, task: asyncio.Task[None]) -> None:
        if not task.done() and not made.end:
            made.cancelled = True
            task.cancel()

    async def _ended(self, made: Made, parts: list[Part], patience_s: float, filling: bytes) -> None:
        truth = self.world.truth
        try:
            life = await self._made(made, parts, patience_s, filling)
        except asyncio.CancelledError:
            if made.cancelled:
                truth.answered(made, "cancelled")
                return
            raise
        except CallLost:
            truth.answered(made, LOST)
        except ClientClosed:
            truth.answered(made, "gone" if made.kind == "keyed" else "unsent")
        except CallFailed:
            truth.answered(made, "taken back by others")
            if not made.tag.startswith("shared"):
                truth.violate("H1", f"{made.tag} failed for no reason of its own")
        except ValueError as error:
            tag, life = error.args
            if tag != made.tag:
                truth.violate("H1", f"{made.tag} ended with the error of {tag}")
            truth.answered(made, "error", life)
        else:
            truth.answered(made, "taken" if made.kind == "tell" else "value", life)

    async def _made(self, made: Made, parts: list[Part], patience_s: float, filling: bytes) -> int:
        """Make a call; give the life that its answer is of."""
        if made.kind == "stream":
            return await self._read(made, parts)
        if made.kind == "keyed":
            parts = [parts[0], made.tag.encode(), *parts[1:]]
            future = self.calls.begin_keyed(parts, patience_s)
        else:
            future = self.calls.begin(FrameKind.TELL if made.kind == "tell" else FrameKind.CALL, parts)
        try:
            answer = await future
        except asyncio.CancelledError:
            if made.kind != "keyed" and future.cancelled() and self._was_in_line(future):
                self.world.truth.forbid_everywhere(made.tag)
            raise
        value = self.calls.read(*answer)
        if made.kind == "tell":
            return self.world.told_in.get(made.tag, 0)
        tag, life, back = value
        if (tag, back) != (made.tag, filling):
            self.world.truth.violate("H4", f"{made.tag} was answered with what {tag} gave")
        return int(life)

    def _was_in_line(self, future: asyncio.Future[Any]) -> bool:
        return any(each.future is future for each in self.calls._line)

    async def _read(self, made: Made, parts: list[Part]) -> int:
        items = self.calls.stream(parts)
        TAKEN[made.tag] = life = 0
        try:
            while (item := await items.next()) is not callers.END:
                tag, life, number = item
                life = int(life)
                if (tag, number) != (made.tag, TAKEN[made.tag]):
                    self.world.truth.violate("H1", f"{made.tag} has {item} for item {TAKEN[made.tag]}")
                TAKEN[made.tag] += 1
                await asyncio.sleep(self.world.rng.choice((0, 0, 0.1)))
        finally:
            items.close()
        return life


class HostedWorld:
    """One world.

    Args:
        seed: of all that is drawn.
        calls: how many are made.
    """

    def __init__(self, seed: int, calls: int = 60) -> None:
        self.seed = seed
        self._count = calls
        self.rng = random.Random(f"hosted {seed}")
        self.concurrency = self.rng.choice((1, 1, 3))
        self.crowded = self.rng.random() < 0.3
        """Whether the mailbox has little room. Then there are no streams: what a reader says of items that it has taken
        comes behind its next call, and if that has no room, the stream waits for ever. It is a limit of today."""
        self.near = self.rng.random() < 0.3
        """Whether all are on one machine: then frames have no tags, and nobody can change them."""
        self.calls: list[asyncio.Task[None]] = []
        self.told_in: dict[str, int] = {}
        """Tells that were taken: in which life."""
        self.faultless = self._restarting = False
        self.life = 0
        self.told = HostedActorUpdate()
        self.truth: Truth
        self.network: Network
        self.loop: asyncio.AbstractEventLoop
        self.news: asyncio.Event
        self._hosts: dict[ActorHost, int] = {}
        self._serving: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def run(self) -> HostedRun:
        """Run it."""
        weather = Weather(cuts=self.rng.choice((0.2, 1.0)), latency_s=(0.0001, self.rng.choice((0.002, 0.2))))
        with small_bounds(self._mailbox_bytes), self._watched(), redirect_stderr(io.StringIO()):  # an actor's log
            TAKEN.clear()
            done = simulate(self._main, seed=f"hosted {self.seed}", weather=weather)
        ends = tuple(f"{each.kind} {each.end}" for each in self.truth.calls)
        return HostedRun(self.seed, tuple(self.truth.violations), done.fingerprint, ends, done.lines)

    @property
    def _mailbox_bytes(self) -> int:
        return SMALL_MAILBOX_BYTES if self.crowded else 1 << 20

    async def _main(self, network: Network) -> None:
        self.network, self.loop, self.news = network, asyncio.get_running_loop(), asyncio.Event()
        self.truth = Truth(self.concurrency, network.note)
        made = [Caller(self, number) for number in range(self.rng.choice((1, 3)))]
        self._begin_life()
        self.faultless = not self._draw_faults(made)
        for _ in range(self._count):
            made[self.rng.randrange(len(made))].make(self.rng)
            await asyncio.sleep(self.rng.choice((0, 0, 0, 0.05, 2 * FAULTS_S / self._count)))
        await asyncio.sleep(max(0.0, FAULTS_S + 30 - self.loop.time()))
        _, open_calls = await asyncio.wait(self.calls, timeout=SETTLES_S)
        await asyncio.sleep(SETTLES_S)  # for what was only told
        self.truth.check_ends(faultless=self.faultless)
        if not open_calls:
            self._check_nothing_is_left(made)
        await self._end(made, open_calls)

    async def _end(self, made: list[Caller], open_calls: set[asyncio.Task[None]]) -> None:
        for caller in made:
            caller.die()
        for task in [*open_calls, *self._tasks]:
            task.cancel()
        self.end_life()
        await asyncio.wait([*self.calls, *self._tasks])
        for done in self.calls:
            if not done.cancelled() and (error := done.exception()) is not None:
                self.truth.violate("H1", f"a call ended with {type(error).__name__}: {error}")

    def _check_nothing_is_left(self, made: list[Caller]) -> None:
        for host, life in self._hosts.items():
            if life == self.life:
                left = host._waiting_bytes, len(host._mailbox), len(host._keyed), len(host._held)
                if any(left):
                    self.truth.violate("H5", f"the actor holds (bytes, calls, keys, links): {left}")
                for link in host._links:
                    self.truth.check_bound("calls of a caller that are left", len(link.calls), 0)
        for caller in made:
            if not caller.gone:
                link_of = caller.calls._link
                waiting = 0 if link_of is None else len(link_of.waiting)
                self.truth.check_bound("calls that a caller holds", len(caller.calls._line) + waiting, 0)

    # What happens

    def _draw_faults(self, made: list[Caller]) -> bool:
        """Draw what fails; whether anything does."""
        strikes, restarts, garbles = self.rng.choice((0, 1, 3)), self.rng.choice((0, 1, 2)), self.rng.choice((0, 1))
        dies = len(made) > 1 and self.rng.random() < 0.3
        for _ in range(strikes):
            fault = Fault(self.rng.choice(FAULTS), 0, self.rng.uniform(0, 20))
            self.loop.call_later(self._sometime(), self.network.strike, fault)
        for _ in range(restarts):
            self._later(self._sometime(), self._restart)
        for _ in range(garbles):
            self.loop.call_later(self._sometime(), self._garble)
        if dies:
            self.loop.call_later(self._sometime(), made[0].die)
        return bool(strikes or restarts or garbles or dies)

    def _sometime(self) -> float:
        return self.rng.uniform(0, FAULTS_S)

    def _later(self, at_s: float, act: Callable[[], Awaitable[None]]) -> None:
        async def wait() -> None:
            await asyncio.sleep(at_s)
            await act()

        self._tasks.append(asyncio.create_task(wait()))

    def _garble(self) -> None:
        """Change a bit on each connection; they break later, since a frame with another length may wait for ever."""
        changed: list[Connection] = [] if self.near else self.network.open_connections()
        for connection in changed:
            self.network.note(f"garbling connection {connection.number}")
            self.rng.choice((connection.up, connection.down)).garble()
            self.loop.call_later(20, connection.break_off)

    def _begin_life(self) -> None:
        """Have an attempt serve, and callers told of it; who listens there first may be of the attempt before."""
        self.life += 1
        host = "127.0.0.1" if self.near else f"10.0.0.{self.life}"
        key = hashlib.sha256(f"{self.seed} {self.life}".encode()).digest()
        ghost = self.life > 1 and self.rng.random() < 0.5
        early = ghost or self.rng.random() < 0.5  # told before it listens
        if early:
            self._tell(host, key)
        self._serving = asyncio.create_task(self._serve(host, key, ghost, early))

    async def _serve(self, host: str, key: bytes, ghost: bool, early: bool) -> None:
        life = self.life
        if ghost:
            before = hashlib.sha256(f"{self.seed} {life - 1}".encode()).digest()
            earlier = asyncio.create_task(self._host(before, life - 1, host, ghost=True)[1])
            try:
                await asyncio.sleep(3)
            finally:
                earlier.cancel()
            await asyncio.wait([earlier])
        elif early:
            await asyncio.sleep(self.rng.choice((0, 5)))
        serves, serving = self._host(key, life, host)
        if not early:
            serves.listening.add_done_callback(lambda done: self._tell(host, key))
        await serving

    def _host(
        self, key: bytes, life: int, host: str, *, ghost: bool = False
    ) -> tuple[ActorHost, Coroutine[Any, Any, None]]:
        serves = ActorHost(key, self.concurrency, threads=SlowThreads(self.concurrency, self.rng))
        self._hosts[serves] = -life if ghost else life
        return serves, serves.serve(lambda: Subject(self.truth, life, ghost=ghost), host, PORT + self.life)

    def _tell(self, host: str, key: bytes) -> None:
        uid, port = f"attempt-{self.life}", PORT + self.life
        self.told = HostedActorUpdate(attempt_uid=uid, host=host, port=port, call_key=key)
        self.news.set()

    def end_life(self) -> None:
        """Have the attempt's process end; its machine may be gone with it, so that nobody is told."""
        self.network.note(f"life {self.life} is over")
        self.truth.over.add(self.life)
        if self._serving is not None:
            self._serving.cancel()
            self._tasks.append(self._serving)

    async def _restart(self) -> None:
        if self.rng.random() < 0.3:
            for connection in self.network.open_connections():
                connection.up.die()
                connection.down.die()
        if self._restarting:
            return
        self._restarting = True
        self.end_life()
        self.told = HostedActorUpdate()
        self.news.set()
        await asyncio.sleep(self.rng.choice((0.5, 5)))
        self._begin_life()
        self._restarting = False

    # What is watched

    @contextmanager
    def _watched(self) -> Generator[None]:
        """Note what comes to the actor's links: whoever was told that a call is taken back must not begin it."""
        world, take, end = self, HostedLink.take_frame, HostedLink.ended

        def take_frame(link: HostedLink, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
            life = world._hosts[link._host]
            if kind is FrameKind.CANCEL:
                world._forbid(link.calls.get(call), life)
            elif kind is FrameKind.KEYED and len(parts) == 3:
                world.truth.comes(str(parts[1], "utf-8"))
            elif kind is FrameKind.TELL and len(parts) == 2:
                world.told_in[received(parts[1:])[0][0]] = life
            take(link, kind, call, parts)
            world.truth.check_bound("calls of one caller", len(link.calls), SMALL_WINDOW)
            world.truth.check_bound(
                "bytes in the mailbox", link._host._waiting_bytes, world._mailbox_bytes + hosting.CALL_BYTES
            )

        def ended(link: HostedLink) -> None:
            for call in link.calls.values():
                world._forbid(call, world._hosts[link._host])
            end(link)

        with mock.patch.object(HostedLink, "take_frame", take_frame), mock.patch.object(HostedLink, "ended", ended):
            yield

    def _forbid(self, call: MailboxCall | None, life: int) -> None:
        if call is not None and not call.begun and not call.key:
            self.truth.forbid(received(call.parts)[0][0], life)


@contextmanager
def small_bounds(mailbox_bytes: int) -> Generator[None]:
    """Have a few calls reach the bounds."""
    with ExitStack() as stack:
        for module in (callers, hosting):
            stack.enter_context(mock.patch.object(module, "WINDOW", SMALL_WINDOW))
        stack.enter_context(mock.patch.object(hosting, "WAITING_BYTES", mailbox_bytes))
        stack.enter_context(mock.patch.object(hosting, "UNREAD_BYTES", SMALL_MAILBOX_BYTES))
        yield
