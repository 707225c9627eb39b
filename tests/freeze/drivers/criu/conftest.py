"""What the tests with a real CRIU share: a CRIU that works here, folders, and programs that answer."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "agent"))  # for real_trees

from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.model import CriuMissing, CriuOptions, CriuUnfit, DumpRequest, RestoreRequest, RightsMissing
from waiting import block_until

PROGRAM = Path(__file__).with_name("frozen_program.py")
PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def criu():
    """A CRIU that works here, or a skip that says why there is none."""
    driver = CriuSwrk()
    try:
        await driver.ability()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    return driver


@pytest.fixture
def processes() -> KernelProcesses:
    return KernelProcesses()


@pytest.fixture
def folder():
    """A folder with a short name: a Unix socket's has 108 bytes."""
    path = Path(tempfile.mkdtemp(prefix="criu-"))
    yield path
    shutil.rmtree(path)


class Frozen:
    """A program with its folders, and what is asked of CRIU about it."""

    def __init__(self, folder: Path, process: subprocess.Popen) -> None:
        self.folder = folder
        self.process = process
        self.root = identify_task(process.pid)
        self.options = CriuOptions()
        self.restored = ()
        self._numbers = iter(range(1000))
        self.at = folder

    def folders(self) -> Path:
        """Make new folders for images and work."""
        self.at = self.folder / f"operation-{next(self._numbers)}"
        for name in ("images", "work"):
            (self.at / name).mkdir(parents=True)
        return self.at

    def dump(self, within_ns: int = PATIENCE_NS) -> DumpRequest:
        """Ask for a dump into new folders."""
        at = self.folders()
        return DumpRequest("freeze-1", self.root, str(at / "images"), str(at / "work"), self.options, within_ns)

    def restore(self, pids, started_after: int = 0, within_ns: int = PATIENCE_NS) -> RestoreRequest:
        """Ask for the tree of the last dump."""
        work = self.at / f"work-{next(self._numbers)}"
        work.mkdir()
        return RestoreRequest(
            "thaw-1", str(self.at / "images"), str(work), self.options, pids, started_after, within_ns
        )

    async def ask(self) -> dict:
        """Have it say what it holds."""
        return await anyio.to_thread.run_sync(self._ask)

    def _ask(self) -> dict:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(PATIENCE_S)
            channel.connect(str(self.folder / "ask"))
            return json.loads(b"".join(iter(lambda: channel.recv(1 << 16), b"")))

    def reap(self) -> None:
        """Wait for the original, which CRIU has killed: its number is free afterwards."""
        self.process.wait(PATIENCE_S)


@pytest.fixture
async def program(folder, processes):
    """Yield a function that starts a program with some features; all of it is killed afterwards."""
    started = []

    def start(*features: str, **changes) -> Frozen:
        with socket.socket(socket.AF_UNIX) as ready:
            ready.bind(str(folder / "ready"))
            ready.listen()
            ready.settimeout(PATIENCE_S)
            values = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with (folder / "errors").open("w") as errors:
                values["stderr"] = errors
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(PROGRAM), str(folder), *features],
                    start_new_session=True,
                    env={"PYTHONHASHSEED": "0"},
                    **{**values, **changes},
                )
            ready.accept()[0].close()
        (folder / "ready").unlink()
        frozen = Frozen(folder, process)
        started.append(frozen)
        return frozen

    yield start
    for each in started:
        tasks = [*each.restored]
        if lives(each.root):
            tasks += (await processes.tree(each.root)).identities
        assert await processes.end(tasks, PATIENCE_NS) == ()
        each.process.wait(PATIENCE_S)


@pytest.fixture
async def other_program(folder, processes):
    """Yield a function that starts a program of the test's own, which says a line when it is ready; likewise."""
    started = []

    def start(text: str, **changes) -> tuple[Frozen, str]:
        values = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True, **changes}
        said = folder / "said"
        with said.open("w") as output:  # a pipe to us would be an end outside of the tree
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", text, str(folder)], stdout=output, **values)
        block_until(lambda: said.read_text().endswith("\n"), "it is ready")
        started.append(Frozen(folder, process))
        return started[-1], said.read_text().strip()

    yield start
    for each in started:
        tasks = [*each.restored, *([each.root] if lives(each.root) else [])]
        assert await processes.end(tasks, PATIENCE_NS) == ()
        each.process.wait(PATIENCE_S)


@pytest.fixture
def small_disk(folder: Path):
    """A disk of half a megabyte, if this user may mount one."""
    path = folder / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def kill(pid: int) -> None:
    """Kill a process that the test knows to be its own."""
    os.kill(pid, signal.SIGKILL)
