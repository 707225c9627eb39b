"""A controller whose journal has a second copy: its node and disk may go, the jobs stay."""

import contextlib
import hashlib
import shutil

import anyio
import pytest
from controller_world import CONFIG, Drivers, World

from iriscw._errors import JournalLocked, JournalLost, OperationError
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.controller.errors import OwnershipUnclear
from iriscw.jobs.errors import NoSuchJob
from iriscw.jobs.registry import RegistryLimits
from iriscw.proto.iriscw import v1
from raised import that


class Replicated(World):
    """A controller with a second copy in a folder of its own."""

    def __init__(self, state, copy, **more):
        super().__init__(state, **more)
        self.copy = copy

    @property
    def config(self):
        """The configuration."""
        controller = {**CONFIG["controller"], "durability": "replicated", "replica_prefix": f"file://{self.copy}"}
        return build_config({**CONFIG, "controller": controller})

    async def __aenter__(self):
        self.controller = Controller(self.config, state_dir=self.state, drivers=Drivers(self.cloud), limits=self.limits)
        await self._stack.enter_async_context(self.controller)
        self.client = await self._stack.enter_async_context(self.channel(self.controller.admin_token))
        return self


@pytest.fixture
def copy(tmp_path):
    """Where second copies are."""
    folder = tmp_path / "copy"
    folder.mkdir(mode=0o700)
    return folder


async def test_jobs_outlive_the_disk(tmp_path, copy):
    """With nothing left but the second copy, an acknowledged job is known, runs, and ends."""
    async with Replicated(tmp_path / "state", copy) as world:
        job = await world.submit(replicas=3)
        await world._stack.aclose()
        await anyio.to_thread.run_sync(shutil.rmtree, world.state)
        await world.__aenter__()
        assert (await world.status(job.job_id)).state is not v1.JobState.UNSPECIFIED
        async with world.worker():
            assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED


async def value(world, job_id):
    """What the job's only task returned, as its client gets it."""
    request = v1.GetResultsRequest(job=v1.JobRef(job_id=job_id))
    with anyio.fail_after(60):
        parts = await world.stream("GetResults", request, v1.ResultPart)
    data = b"".join(part.data for part in parts)
    assert (len(data), hashlib.sha256(data).digest()) == (parts[0].result.size_bytes, parts[0].result.sha256)
    return data


@pytest.mark.parametrize("data", [b"v", b"value" * 100_000])
async def test_results_outlive_the_disk(tmp_path, copy, data):
    """What a job returned that was seen to succeed is read from the second copy, whatever its size."""
    async with Replicated(tmp_path / "state", copy) as world:
        job = await world.submit()
        async with world.worker(result=data):
            assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
        assert await value(world, job.job_id) == data
        await world._stack.aclose()
        await anyio.to_thread.run_sync(shutil.rmtree, world.state)
        await world.__aenter__()
        assert (await world.status(job.job_id)).state is v1.JobState.SUCCEEDED
        assert await value(world, job.job_id) == data
        assert world.controller.statistics().results.known == 1


def stored(copy):
    """The jobs whose results are beside the second copy."""
    return sorted(path.parent.name for path in copy.glob("objects/attempts/*/results/*/*"))


async def only_one_listed(world):
    """What is listed when all but one job are forgotten."""
    with anyio.fail_after(60):
        while True:
            listed = (await world.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs
            if len(listed) == 1:
                return listed
            await anyio.sleep(0.02)


async def test_results_go_with_their_job(tmp_path, copy):
    """Also those that an earlier controller has put there."""
    limits = RegistryLimits(finished=1)
    async with Replicated(tmp_path / "state", copy, limits=limits) as world:
        jobs = [(await world.submit(f"k{number}", name=f"n{number}")).job_id for number in range(3)]
        async with world.worker(result=b"value"):
            for job_id in jobs:
                with contextlib.suppress(NoSuchJob):
                    await world.until_over(job_id)
        assert set(stored(copy)) <= set(jobs)
        [listed] = await only_one_listed(world)
        await world._stack.aclose()
        await anyio.to_thread.run_sync(shutil.rmtree, world.state)
        await world.__aenter__()
        with anyio.fail_after(90):
            while stored(copy) != [listed.job_id]:  # noqa: ASYNC110 - it is looked for every few seconds
                await anyio.sleep(0.05)


async def test_an_overtaken_controller_deletes_nothing(tmp_path, copy):
    """It finds results of jobs that it does not know: they are those of the one that has taken over."""
    deleted = []

    async def two() -> None:
        async with Replicated(tmp_path / "one", copy) as first, Replicated(tmp_path / "two", copy) as second:
            job = await second.submit()
            async with second.worker(result=b"value"):
                assert (await second.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
            sweep = first.controller.features.parts["jobs"].sweep
            sweep._results._listed = False  # as if it had stood still since it was opened
            with pytest.raises(OwnershipUnclear):
                await sweep.sweep()
            assert await sweep._results.jobs() == [job.job_id]
            deleted.append(stored(copy) != [job.job_id])
            assert await value(second, job.job_id) == b"value"

    await two()
    assert deleted == [False]


async def test_a_controller_elsewhere_ends_this_one(tmp_path, copy):
    """The first one ends by name at the next thing that it would write down, and acknowledges nothing more."""
    acknowledged = []

    async def two() -> None:
        async with Replicated(tmp_path / "one", copy) as first:
            await first.submit("a")
            async with contextlib.AsyncExitStack() as stack:
                for number in range(5):  # the first one may write just then, and the second one loses that race
                    try:
                        opening = Replicated(tmp_path / f"two-{number}", copy, cloud=first.cloud)
                        second = await stack.enter_async_context(opening)
                        break
                    except JournalLocked:
                        assert number < 4
                assert len((await second.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs) == 1
                with anyio.move_on_after(20):
                    acknowledged.append(await first.submit("b", name="another"))

    with pytest.raises(JournalLost, check=that(names="controller")):
        await two()
    assert not acknowledged
    async with Replicated(tmp_path / "three", copy) as third:
        assert len((await third.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs) == 1


async def test_a_place_that_cannot_be_reached_keeps_it_from_starting(tmp_path):
    """By name: whether what is on the disk is the present cannot be known."""
    (tmp_path / "file").touch()
    with pytest.raises(OperationError, check=that(comes_from="trouble.translated", names="file")):
        await Replicated(tmp_path / "state", tmp_path / "file").__aenter__()
