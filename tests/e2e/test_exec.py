"""Commands beside tasks of a real local cluster: where they run, what they say, and what ends them."""

import ast
import errno
import os
import signal
import socket
import sys
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.client.errors import CommandKilled, CommandNotStarted, TaskEnded
from iriscw.client.submission import Command
from iriscw.cloud.model import ExecOutput, ExecResult
from iriscw.cluster import Cluster
from iriscw.config.load import build_config
from iriscw.controller import unregistered
from iriscw.controller.features import opening
from iriscw.processes.identity import ProcessGone, read_stat, send_signal
from iriscw.resources import Resources
from raised import that

SMALL = Resources(cpu="250m", memory="64MiB")
PATIENCE_S = 60


@pytest.fixture
async def cluster(shared_cluster):
    """The one of this file, without the jobs of a test when it is over."""
    yield shared_cluster
    for job in await shared_cluster.client.jobs():
        await job.terminate()
        await job.wait()


async def running(client, *argv, **more):
    """Return a job whose tasks have all said that they are there."""
    job = await client.submit(Command(argv), name="watched", resources=SMALL, **more)
    left = more.get("replicas", 1)
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.logs(follow=True)) as lines:
            async for line in lines:
                left -= line.text == "there"
                if not left:
                    return job
    raise AssertionError("the job ended before all its tasks were there")


SLEEPER = ("sh", "-c", "mkdir -p deep; cd deep; echo there; exec sleep 600")


async def test_a_command_is_where_its_task_is(cluster):
    """Its folder, its variables and its index; its outputs are apart, its code is its own, and its input is empty."""
    job = await running(cluster.client, *SLEEPER, replicas=2, environment={"SECRET": "a b"})
    script = 'pwd; echo "$SECRET $IRIS_TASK_INDEX"; cat; echo "$1" >&2; exit 7'
    result = await job.exec(["sh", "-c", script, "sh", "$HOME *"], task=1)
    where, said = result.stdout.decode().splitlines()
    assert (where.split("/")[-2:], said) == (["work", "deep"], "a b 1")
    assert (result.exit_code, result.stderr, result.truncated) == (7, b"$HOME *\n", False)
    assert (await job.exec(["printenv", "IRIS_TASK_INDEX"])).stdout == b"0\n", "the first that runs"
    assert (await job.exec(["sh", "-c", "kill -TERM $$"])).exit_code == 128 + signal.SIGTERM


PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"


async def test_the_page_says_it_as_it_is(cluster, capsys):
    """The code of the page on tasks, as it stands there."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## A command beside it\n")[2].partition("\n## ")[0]
    code = section.partition("```python\n")[2].partition("```")[0]
    script = "echo step,loss > metrics.csv; echo 1,0.5 >> metrics.csv; echo there; exec sleep 600"
    scope = {"job": await running(cluster.client, "sh", "-c", script)}
    await eval(compile(code, "tasks.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)
    first, where, *rest = capsys.readouterr().out.splitlines()
    assert (first, where.split("/")[-1]) == (f"0 {len(os.sched_getaffinity(0))}", "work")
    assert rest == ["", "step,loss", "1,0.5"]


async def test_outputs_come_as_they_are_written(cluster, tmp_path):
    """Bytes, to whoever wants them; nothing is kept then."""
    job = await running(cluster.client, *SLEEPER)
    code = "import os,sys\nos.write(1, bytes(range(256)))\nos.write(2, b'x')\nos.read(os.open(sys.argv[1], 0), 1)"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pieces = []

    def output(said):
        pieces.append(said)
        if {each.stderr for each in pieces} == {False, True} and fifo.exists():
            with fifo.open("wb", buffering=0) as file:
                file.write(b"x")
            fifo.unlink()

    with anyio.fail_after(PATIENCE_S):
        assert await job.exec([sys.executable, "-c", code, str(fifo)], output=output) == ExecResult(0)
    assert ExecOutput(b"x", stderr=True) in pieces
    assert b"".join(each.data for each in pieces if not each.stderr) == bytes(range(256))
    kept = await job.exec(["head", "-c", str((1 << 20) + 1), "/dev/zero"])
    assert (len(kept.stdout), kept.truncated) == (1 << 20, True)


async def pid_of(job, ended):
    """Run a command with a child, have it ended, and give the child's number."""
    told = anyio.Event()
    said = []

    def output(piece):
        said.append(int(piece.data))
        told.set()

    async with anyio.create_task_group() as tasks:

        async def run():
            with anyio.CancelScope() as scope:
                tasks.start_soon(ended, told, scope)
                with pytest.raises(CommandKilled):
                    await job.exec(["sh", "-c", "setsid sleep 600 & echo $!; wait"], output=output)
                return
            assert scope.cancelled_caught

        tasks.start_soon(run)
    return said[0]


@pytest.mark.parametrize("how", ["its caller goes away", "its task ends"])
async def test_what_ends_a_command(cluster, how):
    """With all that it started."""
    job = await running(cluster.client, *SLEEPER)

    async def ended(told, scope):
        await told.wait()
        if how == "its task ends":
            await job.terminate()
        else:
            scope.cancel()

    with anyio.fail_after(PATIENCE_S):
        child = await pid_of(job, ended)
        while is_alive(child):  # noqa: ASYNC110 - another process's end
            await anyio.sleep(0.01)


def is_alive(pid):
    try:
        return not read_stat(pid).ended
    except ProcessGone:
        return False


async def test_a_worker_that_hangs_is_not_asked(cluster):
    """That is when one looks."""
    job = await running(cluster.client, *SLEEPER)
    (worker,) = (await cluster.worker_processes()).values()
    send_signal(worker, signal.SIGSTOP)
    try:
        with anyio.fail_after(PATIENCE_S):
            assert (await job.exec(["echo", "here"])).stdout == b"here\n"
    finally:
        send_signal(worker, signal.SIGCONT)


async def test_its_time_ends_a_command(cluster):
    """And the error says so."""
    job = await running(cluster.client, *SLEEPER)
    with anyio.fail_after(PATIENCE_S), pytest.raises(CommandKilled, check=that(names="0.5")):
        await job.exec(["sleep", "600"], timeout_s=0.5)


async def test_what_cannot_be_run_has_a_name(cluster):
    """No such program, no such task, no time, a task that is over."""
    job = await running(cluster.client, *SLEEPER)
    with pytest.raises(CommandNotStarted, check=that(names=os.strerror(errno.ENOENT))):
        await job.exec(["no-such-program"])
    with pytest.raises(InvalidArgument):
        await job.exec(["true"], task=1)
    for bad in (0, -1, float("nan"), 90_000):
        with pytest.raises(InvalidArgument):
            await job.exec(["true"], timeout_s=bad)
    await job.terminate()
    await job.wait()
    for task in (None, 0):
        with pytest.raises(TaskEnded):
            await job.exec(["true"], task=task)


@pytest.mark.slow
async def test_a_worker_that_cannot_reach_its_controller(monkeypatch, tmp_path):
    """Its slice says what is found in its pod."""
    monkeypatch.setattr(unregistered, "ROUND_S", 0.1)
    monkeypatch.setattr(unregistered, "QUIET_S", 0.2)
    monkeypatch.setattr(opening, "SAMPLE_INTERVAL_S", 0.1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        config = build_config(
            {
                "name": "test",
                "platform": {"local": {"boot_delay": "10ms", "workdir": str(tmp_path)}},
                "defaults": {"bootstrap": {"controller_address": address}},
                "controller": {"local": {"port": 0}},
                "scale_groups": {"cpu": {"max_slices": 1, "min_slices": 1, "resources": {"cpu": 1, "ram": "1GiB"}}},
            }
        )
        async with Cluster.open(config) as cluster:
            with anyio.fail_after(PATIENCE_S):
                while address not in await reason(cluster.client):  # noqa: ASYNC110 - a reason rings nobody
                    await anyio.sleep(0.05)
                assert f"the controller at {address} cannot be reached" in await reason(cluster.client)


async def reason(client):
    """Return what the only slice says, if there is one."""
    return "".join(each.reason for each in await client.slices())
