"""A local cluster whose tasks have containers of a real Docker engine: submissions, results, and nothing is left."""

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

import iriscw
from iriscw.client.submission import Command
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.jobs.model import JobState

sys.path.insert(0, str(Path(__file__).parents[1] / "worker" / "runtimes"))

from docker_world import IMAGE, docker_world, shown

pytestmark = pytest.mark.slow


def hello():
    """What the job submits: a value comes back, with who computed it and where."""
    task = iriscw.context()
    return 42, task.worker_id, os.getpid(), Path("/etc/debian_version").exists()


async def test_a_task_runs_in_its_own_container(tmp_path, monkeypatch):
    """A callable and a command, on the image that the group names."""
    group = {"max_slices": 1, "num_vms": 1, "resources": {"cpu": 2, "ram": "2GiB"}}
    local = {"boot_delay": "10ms", "task_paths": ":".join(shown())}
    config = build_config(
        {
            "name": "test",
            "platform": {"local": local, "autoscaler": {"scale_down_delay": "1s"}},
            "controller": {"local": {"port": 0}},
            "scale_groups": {"own": {**group, "task_runtime": "docker", "task_image": IMAGE}},
        }
    )
    (tmp_path / "docker").mkdir()
    async with docker_world(tmp_path / "docker") as machine:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{machine.socket}")
        async with (
            Controller(config, state_dir=tmp_path / "state") as controller,
            iriscw.connect(str(controller.address), controller.admin_token) as client,
            asyncio.timeout(300),
        ):
            wanted = iriscw.Resources(cpu=1, memory="256MiB")
            ((value, worker, number, has_files),) = await (
                await client.submit(hello, name="callable", resources=wanted)
            ).result()
            assert (value, has_files) == (42, False)
            assert number < 100, "it has no process numbers of its own"
            job = await client.submit(Command(["sh", "-c", "echo from $IRIS_WORKER_ID"]), name="c", resources=wanted)
            assert (await job.wait()).state is JobState.SUCCEEDED
            assert [line.text async for line in job.logs()] == [f"from {worker}"]
            await commands_beside(client, wanted)
            await machine.until(lambda found: not found)  # the slice is idle, and goes


async def commands_beside(client, wanted):
    """A command sees what its task sees: the container's processes, its folder and its variables; and ends with it."""
    script = "mkdir deep; cd deep; echo there; exec sleep 600"
    job = await client.submit(Command(["sh", "-c", script]), name="sleeps", resources=wanted, environment={"X": "a b"})
    async with aclosing(job.logs(follow=True)) as lines:
        assert (await anext(lines)).text == "there"
    found = await job.exec(["sh", "-c", 'pwd; echo "$X"; echo $$; echo err >&2; exit 5'])
    where, variable, number = found.stdout.decode().splitlines()
    assert (Path(where).name, variable, found.exit_code, found.stderr) == ("deep", "a b", 5, b"err\n")
    assert int(number) < 100, "it is in the container"
    with pytest.raises(iriscw.errors.CommandNotStarted):
        await job.exec(["no-such-program"])
    with pytest.raises(iriscw.errors.CommandKilled):
        await job.exec(["sh", "-c", "setsid sleep 601 & wait"], timeout_s=1)
    left = await job.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "sleep 600" in left.stdout.decode()
    assert "sleep 601" not in left.stdout.decode()

    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:

        async def ends():
            await begun.wait()
            await job.terminate()

        tasks.create_task(ends())
        with pytest.raises(iriscw.errors.CommandKilled):
            await job.exec(["sh", "-c", "echo there; exec sleep 602"], output=lambda _: begun.set())
