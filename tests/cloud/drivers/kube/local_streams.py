"""The inside of simulated containers as real processes: a served simulation whose commands run on this machine."""

import asyncio
import contextlib
from pathlib import Path

from iriscw_sims.serve.scripted import ScriptedStreams

NOT_FOUND = 127
CHUNK_BYTES = 2**15

END_S = 20
"""Seconds that a process has to end when its input has."""


class LocalStreams(ScriptedStreams):
    """Runs each command as a process, with a folder of its pod's own as its working folder.

    As in containerd, the end of a caller is the end of the process' input, and nothing else.
    """

    def __init__(self, folder: Path, reachable=lambda _node: True):
        super().__init__(reachable)
        self.folder = folder
        self.argvs = []

    async def exec(self, command, streams, now):
        self.argvs.append(command.argv)
        workdir = self.folder / command.pod["metadata"]["uid"]
        workdir.mkdir(exist_ok=True)
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv, cwd=workdir, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except FileNotFoundError:
            return NOT_FOUND
        typing = asyncio.ensure_future(self._type(process, streams))
        try:
            await asyncio.gather(self._copy(process.stdout, streams.stdout), self._copy(process.stderr, streams.stderr))
            return await process.wait()
        finally:
            typing.cancel()
            process.stdin.close()
            await asyncio.wait((typing,))
            async with asyncio.timeout(END_S):
                await process.wait()
            process._transport.close()  # what nobody reads any more

    async def _type(self, process, streams):
        with contextlib.suppress(ConnectionError):
            async for data in streams.stdin():
                process.stdin.write(data)
                await process.stdin.drain()
        process.stdin.close()

    async def _copy(self, source, tell):
        while data := await source.read(CHUNK_BYTES):
            await tell(data)
