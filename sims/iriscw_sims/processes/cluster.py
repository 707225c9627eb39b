"""A simulated cluster behind a port whose pods are processes of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from iriscw._errors import InvalidArgument
from iriscw_sims.kube.kinds import Json
from iriscw_sims.processes.containers import ProcessContainers
from iriscw_sims.processes.inside import ProcessStreams
from iriscw_sims.processes.programs import Stage
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings


@asynccontextmanager
async def serve_with_processes(
    settings: ServeSettings, folder: Path, stage: Stage | None = None
) -> AsyncIterator[SimServer]:
    """Serve a simulated cluster whose pods really run; leaving the block ends all of them.

    Processes know real time only: where simulated time is faster, they have less of it to end in, and nothing else
    changes for them. ``Timing.QUICK`` keeps boots short.

    Args:
        settings: Of the server.
        folder: Where everything of the pods lies: logs, caches, what stands for their mounts.
        stage: What stands for what.

    Raises:
        InvalidArgument: the settings leave out the controllers that would start pods.
        OSError: the folder cannot be used.
    """
    if not settings.controllers:
        raise InvalidArgument("without controllers nobody starts pods")
    async with ProcessContainers(folder, stage) as containers:

        def reachable(node: str) -> bool:
            return server.coreweave is not None and server.coreweave.exec_ready(node)

        def read(path: str) -> Json | None:
            answer = server.live.read(path)
            return answer.body if answer.code == 200 else None

        server = SimServer(settings, streams=ProcessStreams(containers, reachable), containers=containers)
        exited = containers.exited

        def told(uid: str, code: int, reason: str) -> None:
            server.timeline.catch_up()
            exited(uid, code, reason)
            server.live.touch()

        containers.exited = told
        containers.read, containers.real_s = read, server.timeline.clock.real_s
        async with server:
            yield server
