"""A disk that is full where tasks run, files that somebody takes away there, and leftovers that are damaged."""

# ruff: noqa: ASYNC240 - tests may block on a small file

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.jobs.model import JobState
from iriscw.processes.identity import pidfd_of
from iriscw.processes.status import read_identity
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

SMALL = Resources(cpu=1, memory="64MiB")
UP = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())", "up", "--nodes", "1"]
PATIENCE_S = 120


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of a few MiB, if this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.parametrize(("code", "state"), [(0, JobState.SUCCEEDED), (3, JobState.FAILED)])
async def test_a_task_that_ends_on_a_full_disk_ran_once(
    tmp_path: Path, small_disk: Path, code: int, state: JobState
) -> None:
    """Its exit is told as it was: a success is not done again, a failure counts as one."""
    runs, go = tmp_path / "runs", tmp_path / "go"
    os.mkfifo(go)
    async with Cluster.local(nodes=1, boot_delay=0, workdir=small_disk / "cluster") as cluster:
        script = f"echo run >> {runs}; read line < {go}; exit {code}"
        job = await cluster.client.submit(Command(["sh", "-c", script]), name="once", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            descriptor = await anyio.to_thread.run_sync(os.open, go, os.O_WRONLY)  # when the script reads
            [attempt] = small_disk.glob("cluster/cache/*/*/attempts/*")
            identity = read_identity(attempt)
            assert identity is not None
            with pidfd_of(identity[0]) as supervisor:
                fill(small_disk / "ballast")
                os.write(descriptor, b"go\n")
                os.close(descriptor)
                await anyio.wait_readable(supervisor)
            (small_disk / "ballast").unlink()
            status = await job.wait()
        assert (status.state, status.failures, status.preemptions) == (state, int(code != 0), 0)
        [task] = await job.tasks()
        assert [attempt.exit_code for attempt in task.attempts] == [code]
    assert runs.read_text() == "run\n"


SPOIL = "for each in identity.json exit.json stop attempt.json; do rm -f ../$each; {what} ../$each; done; exit 3"


@pytest.mark.parametrize("what", ["true", "mkfifo", "mkdir", "ln -s /etc/passwd", "truncate -s 1T"])
async def test_a_task_that_spoils_the_files_of_its_supervisor(cluster: Cluster, what: str) -> None:
    """Its end is told as it was: one failure."""
    job = await cluster.client.submit(Command(["sh", "-c", SPOIL.format(what=what)]), name="spoiler", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        status = await job.wait()
    assert (status.state, status.failures, status.preemptions) == (JobState.FAILED, 1, 0)
    [task] = await job.tasks()
    assert [attempt.exit_code for attempt in task.attempts] == [3]


@pytest.mark.parametrize("instead", [None, Path.mkdir, os.mkfifo])
async def test_a_worker_whose_lease_file_is_taken_away_goes_on(cluster: Cluster, instead) -> None:
    """Something that cleans up removed it, or something else stands there: the next job runs on the same worker."""
    for name in ("before", "after"):
        job = await cluster.client.submit(Command(["true"]), name=name, resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            assert (await job.wait()).state is JobState.SUCCEEDED
        for lease in cluster.workdir.glob("cache/*/*/lease"):
            if name == "before":
                lease.unlink()
                if instead is not None:
                    instead(lease)


@pytest.mark.parametrize("content", ["[" * 4096, '{"process": {"pid": "1\\u0000"}, "host": "", "pid_namespace": ""}'])
async def test_damaged_leftovers_stop_no_cluster(tmp_path: Path, content: str) -> None:
    """`iriscw up` says which folder it did not understand, and comes up."""
    temporary = tmp_path / "tmp"
    left = temporary / "iriscw-left"
    left.mkdir(parents=True, mode=0o700)
    temporary.chmod(0o700)
    (left / "owner.json").write_text(content)
    (left / "owner.json").chmod(0o600)
    environment = {**os.environ, "TMPDIR": str(temporary), "IRISCW_CONTEXT": str(tmp_path / "context.json")}
    environment.pop("IRIS_WORKDIR", None)
    async with await anyio.open_process(UP, env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            said = await until_up(process)
            assert str(left) in said
            assert json.loads((tmp_path / "context.json").read_text())["address"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == 0


async def until_up(process) -> str:
    """Read what it says until it is up."""
    said = ""
    with anyio.fail_after(PATIENCE_S):
        while "iriscw is up" not in said:
            said += (await process.stderr.receive()).decode()
    return said
