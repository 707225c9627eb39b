"""The demo's controllers, on one folder: the first is a process of its own and is killed, the next is in this process.

The first one is run as ``python -m iriscw.cli.demo.controllers FOLDER NODES BOOT_DELAY_S SCALE_DOWN_DELAY_S``. It
writes its address to standard output, and ends in order when its standard input ends, with all of its machines. So it
ends with the demo, however that ends.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, Self

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.cloud.drivers.local.folder import WorkdirLocked
from iriscw.cloud.drivers.local.throwaway import ORPHAN_AFTER_S, PLATFORM_FOLDER, ThrowawayFolder, end_all
from iriscw.cluster import Cluster

MODULE: Final = "iriscw.cli.demo.controllers"
ERRORS: Final = "controller.err"
MAX_ERROR_BYTES: Final = 500
ENDS_WITHIN_S: Final = 40.0
"""Of a controller that ends in order: what it gives its machines, and some more."""


class ControllerFailed(OperationError):
    """The demo's first controller ended before it served; the text says why."""


@attrs.frozen
class DemoFleet:
    """What the demo's cluster is like."""

    nodes: int = 2
    boot_delay_s: float = 0.3
    scale_down_delay_s: float = 2.0

    def cluster(self, folder: Path) -> Cluster:
        """Describe it in this folder: a controller that finds another one's state there takes it over."""
        return Cluster.local(
            nodes=self.nodes,
            cpu=2,
            memory="1GiB",
            boot_delay=self.boot_delay_s,
            scale_down_delay=self.scale_down_delay_s,
            orphan_after=ORPHAN_AFTER_S,
            workdir=folder,
        )


@attrs.define(eq=False)
class FirstController:
    """The folder, and the first controller in it. Its methods block, and are for the main thread."""

    process: subprocess.Popen[bytes]
    address: str
    _folder: ThrowawayFolder

    @property
    def folder(self) -> Path:
        """Where the cluster lives."""
        return self._folder.path

    @property
    def token_file(self) -> Path:
        """What clients of either controller authenticate with."""
        return self.folder / "secrets" / "admin-token"

    @classmethod
    def start(cls, fleet: DemoFleet) -> Self:
        """Start it in a folder of its own; return when it serves.

        Raises:
            ControllerFailed: it ended before that.
            OSError: as the file system says it.
        """
        folder = ThrowawayFolder.make()
        arguments = map(str, (folder.path, fleet.nodes, fleet.boot_delay_s, fleet.scale_down_delay_s))
        with (folder.path / ERRORS).open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603  # a list of arguments
                [sys.executable, "-m", MODULE, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a terminal's Ctrl-C is for the demo, which ends it in order
            )
        started = cls(process, "", folder)
        try:
            started.address = started._read_address()
        except BaseException:
            started.close()
            raise
        return started

    def _read_address(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode().strip()
        if said:
            return said
        errors = (self.folder / ERRORS).read_bytes()[-MAX_ERROR_BYTES:].decode("utf-8", "replace").strip()
        raise ControllerFailed(f"the controller did not start: {errors}")

    def close(self) -> None:
        """End what is left of it and of its machines, and remove the folder. No Ctrl-C cuts that short.

        A folder that is still in use, since the next controller did not come to its end, is left as that of a cluster
        that was killed: the next cluster removes it.
        """
        with interrupts_held():
            self._close()

    def _close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if self.process.returncode and (self.folder / PLATFORM_FOLDER).is_dir():
            try:
                anyio.run(end_all, self.folder / PLATFORM_FOLDER)
            except WorkdirLocked:
                return
        self._folder.remove()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Let a bounded block come to its end, however often Ctrl-C comes meanwhile; raise KeyboardInterrupt after it.

    In the main thread, where no event loop runs.
    """
    heard = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


async def _serve(folder: Path, fleet: DemoFleet) -> None:
    async with fleet.cluster(folder) as cluster:
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)


def main(arguments: list[str]) -> None:
    """Serve until standard input ends."""
    folder, nodes, boot_delay_s, scale_down_delay_s = arguments
    anyio.run(_serve, Path(folder), DemoFleet(int(nodes), float(boot_delay_s), float(scale_down_delay_s)))


if __name__ == "__main__":
    main(sys.argv[1:])
