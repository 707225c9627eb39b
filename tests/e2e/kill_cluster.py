"""A controller as a process of its own, for tests that kill it, and the questions that are asked afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from iriscw.client.client import connect
from iriscw.cluster import Cluster
from iriscw.config.load import load_config
from iriscw.resources import Resources

SMALL = Resources(cpu="100m", memory="32MiB")
PATIENCE_S = 60
"""For what takes a second or two on a machine with nothing else to do."""


def write_config(folder: Path, *, nodes: int = 2, memory: str = "1GiB", **more: object) -> Path:
    """Write the configuration of a local cluster that boots at once; ``more`` goes to the top level."""
    config = {
        "name": "faulty",
        "platform": {
            "local": {
                "workdir": str(folder),
                "boot_delay": {"milliseconds": 0},
                "node_cpu": "2",
                "node_memory": memory,
            },
            "autoscaler": {"scale_down_delay": {"milliseconds": 30_000}},
        },
        "controller": {"local": {"port": 0}},
        "scale_groups": {"local": {"resources": {"cpu": "2", "ram": memory}, "max_slices": nodes}},
    }
    path = folder / "cluster.yaml"
    path.write_text(json.dumps({**config, **more}, indent=1))
    return path


class ControllerProcess:
    """``python -m iriscw.controller serve`` on one state folder, as often as it is started.

    Its standard error is kept in ``lines``; what it says last is why it ended.
    """

    def __init__(self, folder: Path, *, environment: dict[str, str] | None = None, **config: object) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.config = write_config(folder, **config)  # type: ignore[arg-type]
        self.environment = {**os.environ, **(environment or {})}
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def command(self, *more: str) -> list[str]:
        """Return the command line."""
        known = ("--config", str(self.config), "--state-dir", str(self.state_dir), "--host", "127.0.0.1")
        return [sys.executable, "-m", "iriscw.controller", "serve", *known, *more]

    def once(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a controller that is expected to end by itself. Blocks."""
        return subprocess.run(
            self.command(*more), env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    async def start(self) -> None:
        """Start it; return when it serves."""
        ready = threading.Event()
        self.process = subprocess.Popen(  # noqa: ASYNC220 - returns at once; a thread reads
            self.command(), env=self.environment, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self.process, ready), daemon=True)
        self._reader.start()
        assert await anyio.to_thread.run_sync(ready.wait, PATIENCE_S)
        assert self.process.poll() is None, self.lines[-5:]

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.lines.append(line.rstrip())
                if "serving on" in line:
                    ready.set()
        process.wait()
        ready.set()

    @property
    def pid(self) -> int:
        """The process of now."""
        assert self.process is not None
        return self.process.pid

    async def ended(self) -> int:
        """Wait for its end; give the exit code."""
        assert self.process is not None
        assert self._reader is not None
        with anyio.fail_after(PATIENCE_S):
            code = await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
            await anyio.to_thread.run_sync(self._reader.join, abandon_on_cancel=True)
        return code

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal, if it still runs, and wait for its end."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return await self.ended()

    @property
    def address(self) -> str:
        """Where it serves, and will again."""
        return f"127.0.0.1:{int((self.state_dir / 'port').read_text())}"

    @property
    def token(self) -> str:
        """What its clients authenticate with."""
        return (self.state_dir / "secrets" / "admin-token").read_text().strip()

    @asynccontextmanager
    async def client(self):
        """Connect to it."""
        async with connect(self.address, self.token) as client:
            yield client

    @asynccontextmanager
    async def taken_over(self):
        """Serve its state from this process; afterwards its machines are deleted."""
        async with Cluster.open(load_config(self.config), workdir=self.state_dir) as cluster:
            yield cluster


@asynccontextmanager
async def controller_process(folder: Path, **options: object):
    """Yield a controller that serves; leave nothing of it, however the block ends."""
    controller = ControllerProcess(folder, **options)  # type: ignore[arg-type]
    await controller.start()
    try:
        yield controller
    finally:
        with anyio.CancelScope(shield=True):
            await controller.kill()
            async with controller.taken_over():
                pass


async def still_serves(client) -> None:
    """Run a job to its end: whatever went wrong before, the cluster works."""
    with anyio.fail_after(PATIENCE_S):
        job = await client.submit(len, "after the fault", name="after-the-fault", resources=SMALL)
        assert await job.result() == [15]


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) << 10
