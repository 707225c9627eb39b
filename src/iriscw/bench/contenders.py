"""One figure in one fresh process: ``python -m iriscw.bench.contenders CONTENDER TEST``.

All contenders send the same one-field message, built inside the loop. The behaviours of iriscw are told apart by what
the decision returns: ``tell`` None, ``tell_state`` a new state, ``tell_command`` a new state and one ``Tell``; the
peers do the cheapest thing that counts, a change of an attribute, and are measured once for all three.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iriscw.runtime.vocabulary import message

TELLS = 100_000
ASKS = 30_000
RING = 1_000
HOPS = 100_000
SPAWNS = 10_000
PYKKA_SPAWNS = 2_000
"""Pykka starts a thread per actor; more of them measures the operating system."""

now = time.perf_counter


@message
class Number:
    """The message of every contender."""

    n: int


@message
class Count:
    """The state of a counting actor."""

    n: int


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def give(**figures: float) -> None:
    """Print the figures and end: threads of a contender must not keep the process."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    os._exit(0)


async def iriscw_tell(test: str) -> None:
    """Tell one actor many times."""
    from iriscw.runtime import ROOT, ActorPath, ActorSystem, Behavior, Decision, Tell

    done = asyncio.get_running_loop().create_future()
    sink_path = ROOT / "sink"

    class Box:
        n = 0

    def plain(state: Any, received: Number, ctx: Any) -> None:
        state.n += 1
        if state.n == TELLS:
            done.set_result(None)

    def new_state(state: Count, received: Number, ctx: Any) -> Decision:
        count = state.n + 1
        if count == TELLS:
            done.set_result(None)
        return Decision(Count(count))

    def with_command(state: Count, received: Number, ctx: Any) -> Decision:
        return Decision(Count(state.n + 1), (Tell(sink_path, received),))

    behaviors = {
        "tell": Behavior(Box, {Number: plain}),
        "tell_state": Behavior(lambda: Count(0), {Number: new_state}),
        "tell_command": Behavior(lambda: Count(0), {Number: with_command}),
    }
    async with ActorSystem() as system:
        system.spawn("sink", behaviors["tell"], capacity=10 * TELLS)
        actor = system.spawn("actor", behaviors[test], capacity=10 * TELLS)
        assert actor.path == ActorPath("/actor")
        await asyncio.sleep(0)
        tell = actor.tell
        start = now()
        for i in range(TELLS):
            tell(Number(i))
        await done
        give(rate=TELLS / (now() - start))


async def iriscw_ask(test: str) -> None:
    """Ask one actor, one question after the other."""
    from iriscw.runtime import ActorSystem, Behavior, Reply

    async with ActorSystem() as system:
        actor = system.spawn("echo", Behavior(on={Number: lambda state, received, ctx: (Reply(received.n),)}))
        await asyncio.sleep(0)
        start = now()
        for i in range(ASKS):
            await actor.ask(Number(i))
        give(rate=ASKS / (now() - start))


async def iriscw_ring(test: str) -> None:
    """Pass one message around a ring."""
    from iriscw.runtime import ROOT, ActorSystem, Behavior, Tell

    done = asyncio.get_running_loop().create_future()

    def hop_to(following: Any) -> Callable[..., Any]:
        def hop(state: Any, received: Number, ctx: Any) -> Any:
            if received.n == 0:
                done.set_result(None)
                return None
            return (Tell(following, Number(received.n - 1)),)

        return hop

    async with ActorSystem() as system:
        paths = [ROOT / f"n{i}" for i in range(RING)]
        refs = [
            system.spawn(path.name, Behavior(on={Number: hop_to(paths[(i + 1) % RING])}))
            for i, path in enumerate(paths)
        ]
        await asyncio.sleep(0)
        start = now()
        refs[0].tell(Number(HOPS))
        await done
        give(rate=HOPS / (now() - start))


async def iriscw_spawn(test: str) -> None:
    """Spawn supervised actors that then do nothing."""
    from iriscw.runtime import ActorSystem, Behavior

    behavior = Behavior(lambda: None, {Number: lambda state, received, ctx: None})
    async with ActorSystem() as system:
        await asyncio.sleep(0)
        gc.collect()
        before = resident_bytes()
        start = now()
        for i in range(SPAWNS):
            system.spawn(f"n{i}", behavior)
        await asyncio.sleep(0)
        took = now() - start
        gc.collect()
        give(rate=SPAWNS / took, bytes=(resident_bytes() - before) / SPAWNS)


async def queue_tell(test: str) -> None:
    """A queue and a task; one message after the other."""
    done = asyncio.get_running_loop().create_future()
    queue: asyncio.Queue[Number] = asyncio.Queue()

    class Box:
        n = 0

    box = Box()

    async def serve() -> None:
        while True:
            await queue.get()
            box.n += 1
            if box.n == TELLS:
                done.set_result(None)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    start = now()
    for i in range(TELLS):
        queue.put_nowait(Number(i))
    await done
    took = now() - start
    task.cancel()
    give(rate=TELLS / took)


async def queue_ask(test: str) -> None:
    """A queue of messages with a future each."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[Number, asyncio.Future[int]]] = asyncio.Queue()

    async def serve() -> None:
        while True:
            received, future = await queue.get()
            future.set_result(received.n)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    start = now()
    for i in range(ASKS):
        future: asyncio.Future[int] = loop.create_future()
        queue.put_nowait((Number(i), future))
        await future
    took = now() - start
    task.cancel()
    give(rate=ASKS / took)


async def queue_ring(test: str) -> None:
    """A ring of queues with a task each."""
    done = asyncio.get_running_loop().create_future()
    queues: list[asyncio.Queue[Number]] = [asyncio.Queue() for _ in range(RING)]

    async def serve(own: asyncio.Queue[Number], following: asyncio.Queue[Number]) -> None:
        while True:
            received = await own.get()
            if received.n == 0:
                done.set_result(None)
            else:
                following.put_nowait(Number(received.n - 1))

    tasks = [asyncio.create_task(serve(queues[i], queues[(i + 1) % RING])) for i in range(RING)]
    await asyncio.sleep(0)
    start = now()
    queues[0].put_nowait(Number(HOPS))
    await done
    took = now() - start
    for task in tasks:
        task.cancel()
    give(rate=HOPS / took)


async def queue_spawn(test: str) -> None:
    """A queue and a task each."""

    async def serve(own: asyncio.Queue[Number]) -> None:
        while True:
            await own.get()

    gc.collect()
    before = resident_bytes()
    start = now()
    tasks = [asyncio.create_task(serve(asyncio.Queue())) for _ in range(SPAWNS)]
    await asyncio.sleep(0)
    took = now() - start
    gc.collect()
    figures = {"rate": SPAWNS / took, "bytes": (resident_bytes() - before) / SPAWNS}
    for task in tasks:
        task.cancel()
    give(**figures)


def pykka_contender(test: str) -> None:
    """Pykka: a thread per actor."""
    import pykka

    done = threading.Event()

    class Actor(pykka.ThreadingActor):
        n = 0
        following: Any = None

        def on_receive(self, received: Any) -> Any:
            if test == "tell":
                self.n += 1
                if self.n == TELLS:
                    done.set()
            elif test == "ask":
                return received.n
            elif not isinstance(received, Number):
                self.following = received
            elif received.n == 0:
                done.set()
            else:
                self.following.tell(Number(received.n - 1))
            return None

    if test == "tell":
        tell = Actor.start().tell
        start = now()
        for i in range(TELLS):
            tell(Number(i))
        done.wait()
        give(rate=TELLS / (now() - start))
    elif test == "ask":
        ask = Actor.start().ask
        start = now()
        for i in range(ASKS):
            ask(Number(i))
        give(rate=ASKS / (now() - start))
    elif test == "ring":
        refs = [Actor.start() for _ in range(RING)]
        for i, ref in enumerate(refs):
            ref.ask(refs[(i + 1) % RING])
        start = now()
        refs[0].tell(Number(HOPS))
        done.wait()
        give(rate=HOPS / (now() - start))
    else:
        start = now()
        refs = [Actor.start() for _ in range(PYKKA_SPAWNS)]
        give(rate=len(refs) / (now() - start))


async def xoscar_contender(test: str) -> None:
    """Xoscar with local references, its fastest kind."""
    import xoscar

    done = asyncio.get_running_loop().create_future()

    class Actor(xoscar.Actor):  # type: ignore[misc]
        def __init__(self) -> None:
            self.n = 0
            self.following: Any = None

        def increase(self, received: Number) -> None:
            self.n += 1
            if self.n == TELLS:
                done.set_result(None)

        def echo(self, received: Number) -> int:
            return received.n

        def link(self, following: Any) -> None:
            self.following = following

        async def hop(self, received: Number) -> None:
            if received.n == 0:
                done.set_result(None)
            else:
                await self.following.hop.tell(Number(received.n - 1))

    pool = await xoscar.create_actor_pool(f"127.0.0.1:{20000 + os.getpid() % 30000}", n_process=0)
    address = pool.external_address

    async def make(uid: str) -> Any:
        await xoscar.create_actor(Actor, uid=uid, address=address)
        return await xoscar.actor_ref(uid=uid, address=address)

    async with pool:
        if test == "tell":
            tell = (await make("a")).increase.tell
            start = now()
            for i in range(TELLS):
                await tell(Number(i))
            await done
            give(rate=TELLS / (now() - start))
        elif test == "ask":
            echo = (await make("a")).echo
            start = now()
            for i in range(ASKS):
                await echo(Number(i))
            give(rate=ASKS / (now() - start))
        elif test == "ring":
            refs = [await make(f"a{i}") for i in range(RING)]
            for i, ref in enumerate(refs):
                await ref.link(refs[(i + 1) % RING])
            start = now()
            await refs[0].hop.tell(Number(HOPS))
            await done
            give(rate=HOPS / (now() - start))
        else:
            start = now()
            for i in range(SPAWNS):
                await xoscar.create_actor(Actor, uid=f"a{i}", address=address)
            give(rate=SPAWNS / (now() - start))


IRISCW = {
    "tell": iriscw_tell,
    "tell_state": iriscw_tell,
    "tell_command": iriscw_tell,
    "ask": iriscw_ask,
    "ring": iriscw_ring,
    "spawn": iriscw_spawn,
}
QUEUE = {"tell": queue_tell, "ask": queue_ask, "ring": queue_ring, "spawn": queue_spawn}


def main() -> None:
    """Measure the contender and test named on the command line."""
    import anyio

    contender, test = sys.argv[1:3]
    if contender == "iriscw":
        anyio.run(IRISCW[test], test)
    elif contender == "queue":
        asyncio.run(QUEUE[test](test))
    elif contender == "xoscar":
        asyncio.run(xoscar_contender(test))
    else:
        pykka_contender(test)


if __name__ == "__main__":
    main()
