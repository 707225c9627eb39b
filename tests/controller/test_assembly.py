"""The controller as a whole: jobs run, restarts lose nothing, strangers stay outside, a second one is refused."""

import anyio
import pytest
from controller_world import CONFIG, GIB, Drivers, World

from iriscw._errors import InvalidArgument, JournalLocked, JournalLost
from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import Capacity
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.jobs.registry import RegistryLimits
from iriscw.proto.iriscw import v1
from waiting import until


async def test_job_runs_to_its_end(world: World) -> None:
    """A submitted job boots a slice, runs on its worker, and its logs and results can be read."""
    job = await world.submit(replicas=3)
    async with world.worker(result=b"forty-two") as worker:
        statuses = await world.until_over(job.job_id)
        assert statuses[-1].state is v1.JobState.SUCCEEDED
        assert [status.version for status in statuses] == sorted({status.version for status in statuses})
        assert await world.logs(job.job_id) == {index: f"task {index}\n".encode() for index in range(3)}
        request = v1.GetResultsRequest(job=v1.JobRef(job_id=job.job_id))
        parts = await world.stream("GetResults", request, v1.ResultPart)
        assert [(part.task_index, part.data) for part in parts] == [(index, b"forty-two") for index in range(3)]
        await until(lambda: len(worker.forgotten) == 3)
        assert len(worker.specifications) == 1, "a specification travels once over a stream"


async def test_restart_keeps_jobs_and_attempts(world: World) -> None:
    """A controller that is restarted takes up the attempt that went on meanwhile, with its log and its end."""
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        await worker.write(uid, 0, b"before\n")
        await until(lambda: world.controller.statistics().logs.stored_bytes)
        memory = worker.held
    await world.restart()
    async with world.worker(manual=True, memory=memory) as worker:
        await until(lambda: worker.runs)
        assert list(worker.runs) == [uid], "the same attempt is wanted, no other"
        await worker.write(uid, 7, b"after\n")
        await worker.finish(uid, log_end_offset=13)
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
    assert await world.logs(job.job_id) == {0: b"before\nafter\n"}
    await world.restart()
    assert (await world.status(job.job_id)).state is v1.JobState.SUCCEEDED
    assert await world.logs(job.job_id) == {0: b"before\nafter\n"}


async def test_second_controller_is_refused(world: World) -> None:
    """A second controller on the same state folder fails by name, and the first one goes on."""
    second = Controller(build_config(CONFIG), state_dir=world.state, drivers=Drivers(world.cloud))
    with pytest.raises(JournalLocked):
        async with second:
            pytest.fail("two controllers served one folder")
    assert (await world.submit()).created


async def test_two_controllers_in_one_process(world: World, tmp_path) -> None:
    """Two controllers with folders of their own share nothing: neither tokens nor jobs."""
    async with World(tmp_path / "other") as other:
        await world.submit()
        assert not (await other.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs
        assert world.controller.admin_token != other.controller.admin_token


async def test_lost_journal_ends_the_controller(tmp_path) -> None:
    """When the journal's disk fails the block ends with JournalLost, not with a group around it."""

    async def live() -> None:
        async with World(tmp_path / "state") as world:
            world.controller.system._tree.lose(JournalLost("the disk failed"))
            await anyio.sleep(10)

    with pytest.raises(JournalLost):
        await live()


@pytest.mark.parametrize("replicas", [2_500, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_many_tasks_are_listed_in_pages(tmp_path, replicas) -> None:
    """A job of many tasks is one acknowledged submission and is read in pages, each task once."""
    async with World(tmp_path / "state", limits=RegistryLimits(jobs=10)) as world:
        job = await world.submit(replicas=replicas)
        ref, token, indexes = v1.JobRef(job_id=job.job_id), "", []
        while True:
            request = v1.ListTasksRequest(job=ref, page_size=1000, page_token=token)
            page = await world.call("ListTasks", request, v1.ListTasksResponse)
            assert len(page.tasks) <= 1000
            indexes += [task.task_index for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        assert indexes == list(range(replicas))


async def test_a_policy_decides_on_slices(tmp_path) -> None:
    """The fleet gets what it wants, without any job."""
    cloud = FakeCloud(budget=Capacity(100_000, 100 * GIB, 0, 0, ""), cluster="test")
    config = build_config(CONFIG)
    async with Controller(config, state_dir=tmp_path, drivers=Drivers(cloud), policy=lambda view: 2):
        await until(lambda: len(cloud.pools) == 2)


async def test_a_policy_that_raises_is_shown(tmp_path, caplog) -> None:
    """In the log; the controller lives."""
    cloud = FakeCloud(budget=Capacity(100_000, 100 * GIB, 0, 0, ""), cluster="test")
    config = build_config(CONFIG)
    async with Controller(config, state_dir=tmp_path, drivers=Drivers(cloud), policy=lambda view: 1 // 0) as controller:
        await until(lambda: "ZeroDivisionError" in caplog.text)
        assert not controller.statistics().degraded


async def test_properties_outside_of_the_block(tmp_path) -> None:
    """A controller that does not run has neither an address nor a token."""
    controller = Controller(build_config(CONFIG), state_dir=tmp_path)
    for read in (lambda: controller.address, lambda: controller.admin_token, controller.statistics):
        with pytest.raises(InvalidArgument):
            read()
