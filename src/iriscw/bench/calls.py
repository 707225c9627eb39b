"""What a call of a hosted actor costs, beside xoscar: ``iriscw bench calls``.

The actor is in a process of its own, the caller in another one, both on this machine. Each contender does the same: a
method that gives back what it got, with 100 bytes and with an array of 10 MiB, one call after the other and many at
once. A ratio is the peer's time by ours, of one round, and contenders take turns within a round: more than 1 is faster
than the peer. Of all rounds the one in the middle counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from iriscw.bench.plane import Figures, MeasurementFailed
from iriscw.client.calls import MethodCalls
from iriscw.client.hosted import ActorCalls, ActorId, HostedCalls
from iriscw.hosted.frames import FrameKind
from iriscw.hosted.model import ActorPlace
from iriscw.task.hosting import ActorHost
from iriscw.task.passing import passed

GOALS: Final[Figures] = {"beside_xoscar": 2.0}
"""What each ratio is to be at least."""

ROUNDS: Final = 5
SIZES: Final = {"100 B": (100, 2000, 64), "10 MiB": (10 << 20, 30, 8)}
"""Bytes, how many calls, and how many at once."""

QUICK: Final = 10
"""The quick run makes so many times fewer calls."""

TIMEOUT_S: Final = 600
KEY: Final = bytes(32)
"""Only this process and its child can connect: they are on loopback, and end together."""

Echo = Callable[[Any], Awaitable[Any]]


def run(progress: Callable[[str], None], rounds: int = ROUNDS, *, quick: bool = False) -> dict[str, Any]:
    """Measure everything and give the report of ``iriscw bench calls -o json``.

    Raises:
        MeasurementFailed: a contender failed.
    """
    contenders = ["iriscw", "iriscw-thread", *(["xoscar"] if importlib.util.find_spec("xoscar") else [])]
    done: list[dict[str, Figures]] = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        turn = number % len(contenders)
        done.append({each: contend(each, quick=quick) for each in [*contenders[turn:], *contenders[:turn]]})
    return {"figures": figures_of(done), "goals": GOALS, "rounds": rounds, "peers": contenders[2:]}


def figures_of(rounds: list[dict[str, Figures]]) -> dict[str, list[Figures]]:
    """Say what rounds come to, for each size and number at once: microseconds, and ratios of one round."""
    figures: dict[str, list[Figures]] = {}
    for case in rounds[0]["iriscw"]:
        found: Figures = {}
        for ours, text in (("iriscw", "async"), ("iriscw-thread", "thread")):
            found[f"{text}_us"] = statistics.median(each[ours][case] for each in rounds)
            if "xoscar" in rounds[0]:
                ratios = [each["xoscar"][case] / each[ours][case] for each in rounds]
                found[f"{text}_beside_xoscar"] = statistics.median(ratios)
        figures[case] = [found]
    return figures


def contend(contender: str, *, quick: bool) -> Figures:
    """Run a contender, and give microseconds for each call by size and number at once.

    Raises:
        MeasurementFailed: it failed, or took too long.
    """
    command = [sys.executable, "-m", "iriscw.bench.calls", contender, "quick" if quick else "full"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise MeasurementFailed(f"{contender} took more than {TIMEOUT_S} s") from error
    if done.returncode:
        raise MeasurementFailed(f"{contender} failed: {done.stderr.strip()[-500:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


# A contender's process


class Echoing:
    """The hosted actor."""

    async def echo(self, value: object) -> object:
        """Return what it got."""
        return value

    def echo_in_thread(self, value: object) -> object:
        """Return what it got."""
        return value


async def _nobody() -> MethodCalls:
    raise MeasurementFailed("no controller is asked here")


class _OwnPlace(ActorCalls):
    """Calls of an actor whose place is known."""

    def __init__(self, place: ActorPlace) -> None:
        super().__init__(HostedCalls(_nobody), ActorId("", "", "bench"))
        self._place = place

    async def _connected(self) -> Any:
        link = await self._dialled(self._place)
        if link is None:
            raise MeasurementFailed("the actor does not listen")
        return link


@contextlib.asynccontextmanager
async def _iriscw(method: str) -> AsyncIterator[Echo]:
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "iriscw.bench.calls", "host"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert host.stdout is not None
    try:
        calls = _OwnPlace(ActorPlace("bench", "127.0.0.1", int(await host.stdout.readline()), KEY))
        yield lambda value: calls.call(FrameKind.CALL, [method.encode(), *passed(((value,), {}))])
        calls.close()
    finally:
        host.kill()
        await host.wait()


@contextlib.asynccontextmanager
async def _xoscar() -> AsyncIterator[Echo]:
    import xoscar

    class Echo(xoscar.Actor):  # type: ignore[misc]  # xoscar has no types
        async def echo(self, value: object) -> object:
            return value

    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=1)
    async with pool:
        strategy = xoscar.allocate_strategy.ProcessIndex(1)
        actor = await xoscar.create_actor(Echo, address=pool.external_address, allocate_strategy=strategy, uid="echo")
        yield actor.echo


CONTENDERS: Final[dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Echo]]]] = {
    "iriscw": lambda: _iriscw("echo"),
    "iriscw-thread": lambda: _iriscw("echo_in_thread"),
    "xoscar": _xoscar,
}


async def _measured(contender: str, *, quick: bool) -> Figures:
    figures: Figures = {}
    async with CONTENDERS[contender]() as echo:
        for size, (size_bytes, count, at_once) in SIZES.items():
            value: object = bytes(size_bytes) if size_bytes < 1 << 20 else bytearray(size_bytes)
            for width in (1, at_once):
                calls = max(width, count // (QUICK if quick else 1))
                await _timed(echo, value, width, width)  # warm
                figures[f"{size}, {width} at once"] = await _timed(echo, value, calls, width)
    return figures


async def _timed(echo: Echo, value: object, count: int, width: int) -> float:
    room = asyncio.Semaphore(width)

    async def one() -> None:
        async with room:
            await echo(value)

    began_s = time.perf_counter()
    if width == 1:
        for _ in range(count):
            await echo(value)
    else:
        await asyncio.gather(*(one() for _ in range(count)))
    return (time.perf_counter() - began_s) / count * 1e6


def _said(line: object) -> None:
    """Tell the process that waits for it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _hosting() -> None:
    host = ActorHost(KEY)
    host.listening.add_done_callback(lambda port: _said(port.result()))
    await host.serve(Echoing, "127.0.0.1", 0)


if __name__ == "__main__":
    if sys.argv[1] == "host":
        asyncio.run(_hosting())
    else:
        _said(json.dumps(asyncio.run(_measured(sys.argv[1], quick=sys.argv[2] == "quick"))))
