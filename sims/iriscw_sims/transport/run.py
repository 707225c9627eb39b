"""One run: a coroutine function on a virtual loop with a network, from its seed to its trace.

::

    async def main(network):
        async with RpcServer([service], authenticate=authenticate) as server:
            await server.listen_tcp("127.0.0.1", 0)
            ...

    run = simulate(main, seed=7, faults=[Fault(FaultKind.BREAK, at_s=0.5)])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import anyio
import attrs

from iriscw_sims.transport.errors import CallbackFailed
from iriscw_sims.transport.loop import DEFAULT_HORIZON_S, Threads, VirtualLoop
from iriscw_sims.transport.network import Fault, Network
from iriscw_sims.transport.steady import steady
from iriscw_sims.transport.wire import Weather

Result = TypeVar("Result")


@attrs.frozen
class Simulated(Generic[Result]):
    """What a run gave."""

    result: Result
    virtual_s: float
    """How long it took."""

    fingerprint: str
    """The hash of its trace: of every segment, connection and fault, with their times."""

    lines: tuple[str, ...]
    """The end of its trace."""


def simulate(
    main: Callable[[Network], Awaitable[Result]],
    *,
    seed: object = 0,
    faults: Iterable[Fault] = (),
    weather: Weather | None = None,
    names: dict[str, str] | None = None,
    horizon_s: float = DEFAULT_HORIZON_S,
    threads: Threads = Threads.REFUSE,
) -> Simulated[Result]:
    """Run ``main`` on a virtual loop of its own, under anyio.

    Args:
        main: gets the network, through which asyncio's connections go.
        seed: of all that the network draws.
        faults: what goes wrong; more can be asked of the network during the run.
        weather: how good the network is otherwise.
        names: host names and their addresses.
        horizon_s: virtual seconds that it may take.
        threads: what becomes of functions that are to run in a thread.

    Raises:
        StuckLoop, SpinningLoop, HorizonPassed: the run does not end.
        Unsimulated: it needs what a virtual loop has not got.
        CallbackFailed: something failed where nobody could catch it.
        BaseException: what ``main`` raises.
    """
    loop = VirtualLoop(horizon_s=horizon_s, threads=threads)
    network = Network(loop, seed, weather, names)
    network.schedule(faults)
    with steady(loop):
        result = anyio.run(main, network, backend="asyncio", backend_options={"loop_factory": lambda: loop})
    if loop.failures:
        raise CallbackFailed("; ".join(_described(context) for context in loop.failures))
    return Simulated(result, loop.time(), network.fingerprint, tuple(network.lines))


def _described(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}" + (f": {type(error).__name__}: {error}" if error is not None else "")
