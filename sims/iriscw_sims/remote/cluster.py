"""The simulated CoreWeave behind a real API server: its pool controller, nodes and kubelets, in real time.

Theory of operation. The same controllers that the simulated world has (:mod:`iriscw_sims.coreweave`) act on a real
server here, through :class:`~iriscw_sims.remote.store.RemoteStore`; pods are processes of this machine or whatever the
given containers make of them. What a cluster's controller manager would do is done as far as the fleet needs it:
dependents of what is gone are deleted, and a Deployment's pod is replaced when it is over.

One task has the controllers act: when a watch brings something, and when a timer is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any, TypeVar

import attrs

from iriscw.rpc.tokens import Secret
from iriscw_sims.coreweave.coreweave import CoreWeave
from iriscw_sims.coreweave.deployments import Deployments
from iriscw_sims.coreweave.settings import QUICK, Settings
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.garbage import Garbage
from iriscw_sims.remote.store import RemoteStore
from iriscw_sims.serve.cluster import Inhabitants, of_processes
from iriscw_sims.serve.surroundings import LiveSurroundings
from iriscw_sims.serve.timeline import Clock, Timeline

T = TypeVar("T")


@attrs.frozen
class Attached:
    """A simulated CoreWeave and the real server before it."""

    store: RemoteStore
    coreweave: CoreWeave
    timeline: Timeline
    surroundings: LiveSurroundings

    def act(self, function: Callable[..., T], *args: Any) -> T:
        """Do something to the cluster now, such as a fault of :class:`CoreWeave`; give what it gives."""
        self.timeline.catch_up()
        return function(*args)


@asynccontextmanager
async def attached(
    url: str,
    token: Secret,
    context: SSLContext | None,
    containers: Inhabitants,
    *,
    settings: Settings = QUICK,
    speed: float = 1.0,
    seed: int = 0,
    faults: Mapping[str, float] | None = None,
) -> AsyncIterator[Attached]:
    """Have a simulated CoreWeave act on a real API server that serves NodePools, until the block is left.

    Args:
        url: Where the server is.
        token: Of somebody who may do everything.
        context: For TLS.
        containers: Who runs what is in pods.
        settings: How long things take.
        speed: How much faster than real time.
        seed: Of chance.
        faults: How often which fault comes true, 0 to 1.

    Raises:
        NoAnswer: the server was away for too long; from the block, when it happens later.
    """
    loop = asyncio.get_running_loop()
    touched = asyncio.Event()
    timeline = Timeline(Clock(time.time_ns(), time.monotonic_ns, speed))
    store = RemoteStore(url, token, context)
    try:
        surroundings = LiveSurroundings(timeline, seed, faults)
        coreweave = CoreWeave(store, surroundings, containers, of_processes(settings))
        garbage, deployments = Garbage(store), Deployments(coreweave.site)

        def exited(uid: str, exit_code: int, reason: str) -> None:
            timeline.catch_up()
            coreweave.exited(uid, exit_code, reason)

        containers.exited = exited
        store.changed = lambda: _call(loop, touched.set)
        timeline.sooner = touched.set
        task = loop.create_task(
            _run(timeline, coreweave, garbage, deployments, touched), name="iriscw simulated CoreWeave"
        )
        host = asyncio.current_task()
        assert host is not None
        task.add_done_callback(lambda done: None if done.cancelled() else host.cancel())
        try:
            yield Attached(store, coreweave, timeline, surroundings)
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and host.uncancel() == 0:
                task.result()
            raise
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    finally:
        store.changed = lambda: None
        store.close()


def _call(loop: asyncio.AbstractEventLoop, function: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(function)  # type: ignore[arg-type]  # typeshed wants the arguments' types, too


async def _run(
    timeline: Timeline, coreweave: CoreWeave, garbage: Garbage, deployments: Deployments, touched: asyncio.Event
) -> None:
    while True:
        touched.clear()
        coreweave.react()
        garbage.react(timeline.now)
        deployments.react()
        while (timer := timeline.take()) is not None:
            timer.run()
            coreweave.react()
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(timeline.next_s()):
                await touched.wait()
        except TimeoutError:
            continue


def namespace(store: RemoteStore, name: str) -> None:
    """Make a namespace, if it is not there."""
    response = store.handle(Request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}}), 0)
    assert response.code in (201, 409), response.body
