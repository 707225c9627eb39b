"""`kill -9` of whoever keeps a cluster in a temporary folder: what it started ends, and what it left is removed.

First the processes end by themselves: the worker when no controller was there for `--orphan-after` seconds, attempts
with it, or with their lease where nothing above them is left. Then the next cluster of the user removes the folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from iriscw._errors import InvalidArgument
from iriscw.cli.demo.leftovers import processes_in
from iriscw.client.client import connect
from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.controller.settings import lease_ms
from iriscw.processes.sweep import marked_processes
from iriscw.resources import Resources
from raised import that

UP = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())", "up", "--nodes", "1"]
SMALL = Resources(cpu="250m", memory="64MiB")
PATIENCE_S = 120
"""For a few seconds' work, and at most a lease of 20 s, on a machine with other work to do."""

STUBBORN = "trap '' TERM; (setsid sh -c 'echo child; sleep 100000' &); echo up; while :; do sleep 100000; done"
"""An attempt that does not end when it is asked, and has a child in a session of its own."""


class Terminal:
    """Where `iriscw up` runs, with a folder for temporary files of its own."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(mode=0o700)
        self.context = folder / "context.json"
        self.environment = {**os.environ, "IRISCW_CONTEXT": str(self.context), "TMPDIR": str(self.temporary)}
        for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_WORKDIR"):
            self.environment.pop(name, None)

    @contextlib.contextmanager
    def up(self, *options: str):
        """Run `iriscw up`; give the process, and what it said until it was up."""
        with subprocess.Popen([*UP, *options], env=self.environment, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                said = []
                for line in process.stderr:
                    said.append(line)
                    if "iriscw is up" in line:
                        break
                yield process, said
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    assert process.stderr.read().splitlines()[-1] == "stopped; nothing is left running"
            finally:
                process.kill()

    def folder(self) -> Path:
        """The one folder of a cluster."""
        [folder] = [path for path in self.temporary.iterdir() if path.name.startswith("iriscw-")]
        return folder

    def folders(self) -> list[str]:
        """All of them."""
        return [path.name for path in self.temporary.iterdir() if path.name.startswith("iriscw-")]

    def client(self):
        """Connect to the cluster that is up."""
        content = json.loads(self.context.read_text())
        return connect(content["address"], content["token"])


def kill(process: subprocess.Popen[str]) -> None:
    """Kill it, and wait until the kernel has."""
    process.kill()
    process.wait()


def kill_supervisors_of_pods(folder: Path) -> None:
    """Kill what watches over workers; the workers go with it."""
    for pod in (folder / "platform" / "pools").glob("*/pods/*/pod.json"):
        for each in marked_processes({"IRISCW_POD_UID": json.loads(pod.read_text())["uid"]}):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                if b"supervisor.py" in Path(f"/proc/{each.pid}/cmdline").read_bytes():
                    os.kill(each.pid, signal.SIGKILL)


async def run_stubborn(client) -> None:
    """Submit a job and wait until its attempt runs, with its child."""
    job = await client.submit(Command(["sh", "-c", STUBBORN]), name="stubborn", resources=SMALL)
    said = set()
    with anyio.fail_after(PATIENCE_S):
        async for line in job.logs(follow=True):
            said.add(str(line))
            if said >= {"up", "child"}:
                return


async def until_nothing_runs(folder: Path) -> None:
    """Wait until no process works in the folder or was told of it."""
    with anyio.fail_after(PATIENCE_S):
        while await anyio.to_thread.run_sync(processes_in, folder):  # noqa: ASYNC110 - other processes' processes
            await anyio.sleep(0.1)


@pytest.fixture
def terminal(tmp_path):
    """A terminal; whatever a test left is ended."""
    terminal = Terminal(tmp_path)
    yield terminal
    for line in processes_in(terminal.temporary):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *[({}, "60"), ({"workdir": "somewhere"}, "600"), ({"orphan_after": 2.5}, "2.5"), ({"orphan_after": 0}, "0")],
        *[({"worker_lease": 10}, "60"), ({"worker_lease": 900}, "900"), ({"worker_lease": 61, "workdir": "w"}, "600")],
        ({"worker_lease": 900, "orphan_after": 0}, "0"),
    ],
)
def test_for_how_long_workers_wait(options, told):
    """Where nobody can come back, not for long; but for as long as their tasks are to go on."""
    assert Cluster.local(**options).config.defaults.bootstrap.env_vars == {"IRISCW_ORPHAN_AFTER_S": told}


@pytest.mark.parametrize("orphan_after", [-1, float("nan"), float("inf"), "soon", True])
def test_a_wait_that_cannot_be(orphan_after):
    """A number of seconds from 0 is asked for."""
    with pytest.raises(InvalidArgument, check=that(names="orphan_after")):
        Cluster.local(orphan_after=orphan_after)


@pytest.mark.parametrize("lease", [9, 86_401, float("nan"), float("inf"), "soon", True])
def test_a_lease_that_cannot_be(lease):
    """Shorter than a worker counts as there, or longer than a day; or tasks would end before it, with their workers."""
    with pytest.raises(InvalidArgument, check=that(names="worker_lease")):
        Cluster.local(worker_lease=lease)
    with pytest.raises(InvalidArgument, check=that(names=("orphan_after", "worker_lease"))):
        Cluster.local(worker_lease=900, orphan_after=899)


def test_for_how_long_tasks_go_on():
    """As long as is asked for; 20 s if nothing is."""
    leases = [lease_ms(Cluster.local(**options).config) for options in ({}, {"worker_lease": 10}, {"worker_lease": 90})]
    assert leases == [20_000, 10_000, 90_000]


@pytest.mark.slow
async def test_workers_of_a_killed_cluster_end_themselves(terminal):
    """Worker and attempts end without anybody's help; the next `up` removes the folder with its tokens."""
    with terminal.up("--orphan-after", "5") as (process, _):
        folder = terminal.folder()
        async with terminal.client() as client:
            await run_stubborn(client)
        kill(process)
    assert "iriscw.worker" in " ".join(processes_in(folder))
    await until_nothing_runs(folder)
    assert (folder / "secrets" / "admin-token").exists()
    with terminal.up() as (_, said):
        assert said[0] == f"removed {folder}, left by a cluster that was killed (process {process.pid})\n"
        assert terminal.folder() != folder
    assert terminal.folders() == []


@pytest.mark.slow
async def test_the_next_cluster_does_not_wait_for_them(terminal, monkeypatch):
    """What would dial for ever is ended by the next local cluster, in whatever program that is."""
    with terminal.up("--orphan-after", "0") as (process, _):
        folder = terminal.folder()
        async with terminal.client() as client:
            await run_stubborn(client)
        kill(process)
    assert processes_in(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(terminal.temporary))
    with anyio.fail_after(PATIENCE_S):
        async with Cluster.local(nodes=1, boot_delay=0) as cluster:
            assert terminal.folders() == [cluster.workdir.name]
            assert processes_in(folder) == []
    assert terminal.folders() == []


@pytest.mark.slow
async def test_a_living_cluster_is_left_alone(terminal, monkeypatch):
    """Two at a time: neither touches what the other owns."""
    with terminal.up() as (_, _):
        folder = terminal.folder()
        monkeypatch.setattr(tempfile, "tempdir", str(terminal.temporary))
        async with terminal.client() as client:
            async with Cluster.local(nodes=1, boot_delay=0):
                assert len(terminal.folders()) == 2
            assert terminal.folders() == [folder.name]
            job = await client.submit(len, "still here", name="after", resources=SMALL)
            with anyio.fail_after(PATIENCE_S):
                assert await job.result() == [10]
    assert terminal.folders() == []


@pytest.mark.slow
async def test_attempts_end_when_everything_above_them_was_killed(terminal):
    """The cluster, the worker, and what watched over the worker: the lease, which nobody renews, ends the attempt."""
    with terminal.up("--orphan-after", "0") as (process, _):
        folder = terminal.folder()
        async with terminal.client() as client:
            await run_stubborn(client)
        kill(process)
    kill_supervisors_of_pods(folder)
    assert processes_in(folder), "the attempt is there, and all that is left"
    await until_nothing_runs(folder)
