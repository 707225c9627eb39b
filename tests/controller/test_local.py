"""The local platform under the controller: real worker processes, tokens of their own, a restart in between."""

from pathlib import Path

import anyio
import pytest
from controller_world import CLIENTS, submission

from iriscw.cloud.docker.containers import InvalidDockerHost, TaskContainers, decode_task_containers
from iriscw.cloud.drivers.local.platform import open_platform
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.controller.platforms.local import local_options, task_containers
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from waiting import until

CONFIG = {
    "name": "test",
    "platform": {"local": {"boot_delay": "10ms"}, "autoscaler": {"scale_down_delay": "10m"}},
    "controller": {"local": {"port": 0}},
    "scale_groups": {"cpu": {"max_slices": 2, "num_vms": 1, "resources": {"cpu": 2, "ram": "1GiB"}}},
}


def test_options(tmp_path: Path) -> None:
    """The budget has room for every slice that the configuration allows, and a pod's command names no secret."""
    options = local_options(build_config(CONFIG), tmp_path, "127.0.0.1:7")
    assert (options.budget.cpu_milli, options.budget.memory_bytes) == (4000, 2 << 30)
    assert options.cluster == "test"
    assert "127.0.0.1:7" in options.argv


def test_workers_are_told_of_their_tasks_containers() -> None:
    """Those of groups whose tasks have any: the image, the engine's socket, and what of the machine they see."""
    group = {"max_slices": 1, "num_vms": 1, "resources": {"cpu": 2, "ram": "1GiB"}}
    in_containers = {**group, "task_runtime": "docker", "task_image": "own:1"}
    platform = {"local": {"task_paths": "/data:/models"}}
    config = build_config({**CONFIG, "platform": platform, "scale_groups": {"plain": group, "own": in_containers}})
    told = task_containers(config, {"DOCKER_HOST": "unix:///run/x.sock"})
    assert told.keys() == {"own"}
    expected = TaskContainers(image="own:1", socket="/run/x.sock", shown=("/data", "/models"))
    assert decode_task_containers(told["own"]) == expected
    with pytest.raises(InvalidDockerHost):
        task_containers(config, {"DOCKER_HOST": "tcp://elsewhere:2375"})
    plain = build_config({**CONFIG, "scale_groups": {"plain": group}})
    assert task_containers(plain, {"DOCKER_HOST": "tcp://elsewhere:2375"}) == {}


@pytest.mark.slow
async def test_real_worker_survives_a_restart_of_the_controller(tmp_path: Path) -> None:
    """A job on a real worker runs on while the controller is away; its end and its whole log arrive afterwards."""
    config = build_config(CONFIG)
    release = tmp_path / "release"
    script = f"echo before; while [ ! -e {release} ]; do sleep 0.05; done; echo after"
    command = v1.Entrypoint(command=v1.Command(argv=["sh", "-c", script]))
    try:
        async with (
            Controller(config, state_dir=tmp_path / "state") as controller,
            RpcChannel(controller.address, controller.admin_token) as channel,
        ):
            request = submission("k", entrypoint=command)
            job = await channel.unary(CLIENTS + "SubmitJob", request, v1.SubmitJobResponse)
            await until(lambda: controller.statistics().logs.stored_bytes)
            tokens = list((tmp_path / "state" / "secrets" / "workers").iterdir())
            assert [path.stat().st_mode & 0o777 for path in tokens] == [0o600]
        release.touch()
        async with (
            Controller(config, state_dir=tmp_path / "state") as controller,
            RpcChannel(controller.address, controller.admin_token) as channel,
        ):
            watch = v1.WatchJobRequest(job=v1.JobRef(job_id=job.job_id))
            with anyio.fail_after(30):
                async with channel.server_stream(CLIENTS + "WatchJob", watch, v1.JobStatus) as replies:
                    statuses = [status async for status in replies]
            assert statuses[-1].state is v1.JobState.SUCCEEDED
            fetch = v1.FetchLogsRequest(job=v1.JobRef(job_id=job.job_id))
            async with channel.server_stream(CLIENTS + "FetchLogs", fetch, v1.LogBatch) as batches:
                log = b"".join([batch.data async for batch in batches])
            assert log == b"before\nafter\n"
            listed = v1.ListTasksRequest(job=v1.JobRef(job_id=job.job_id))
            page = await channel.unary(CLIENTS + "ListTasks", listed, v1.ListTasksResponse)
            assert page.tasks[0].attempts[0].attempt_number == 0, "it is the first attempt still"
    finally:
        async with open_platform(local_options(config, tmp_path / "state", "127.0.0.1:7")) as platform:
            await platform.destroy()


@pytest.mark.slow
async def test_a_log_that_was_written_while_the_controller_was_away(tmp_path: Path) -> None:
    """The end of an attempt that ended meanwhile waits for its log, however long that is: then the worker forgets."""
    config = build_config(CONFIG)
    release, done = tmp_path / "release", tmp_path / "done"
    wait = f"echo before; while [ ! -e {release} ]; do sleep 0.05; done"
    script = f"{wait}; head -c 5000000 /dev/zero | tr '\\0' x; touch {done}"
    command = v1.Entrypoint(command=v1.Command(argv=["sh", "-c", script]))
    try:
        async with (
            Controller(config, state_dir=tmp_path / "state") as controller,
            RpcChannel(controller.address, controller.admin_token) as channel,
        ):
            job = await channel.unary(CLIENTS + "SubmitJob", submission("k", entrypoint=command), v1.SubmitJobResponse)
            await until(lambda: controller.statistics().logs.stored_bytes)
        release.touch()
        await until(done.exists)
        await anyio.sleep(0.5)  # until the worker has seen the end of it; if it has not, this test shows less
        async with (
            Controller(config, state_dir=tmp_path / "state") as controller,
            RpcChannel(controller.address, controller.admin_token) as channel,
        ):
            fetch = v1.FetchLogsRequest(job=v1.JobRef(job_id=job.job_id), follow=True)
            with anyio.fail_after(30):
                async with channel.server_stream(CLIENTS + "FetchLogs", fetch, v1.LogBatch) as batches:
                    log = b"".join([batch.data async for batch in batches])
            assert len(log) == len("before\n") + 5_000_000
            assert log.endswith(b"xxx")
    finally:
        async with open_platform(local_options(config, tmp_path / "state", "127.0.0.1:7")) as platform:
            await platform.destroy()
