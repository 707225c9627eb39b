"""A controller whose journal has a second copy: its node and disk may go, the jobs stay."""

import shutil

import anyio
import pytest
from controller_world import CONFIG, Drivers, World

from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.errors import JournalLost, OperationError
from iriscw.proto.iriscw import v1


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
        self.controller = Controller(self.config, state_dir=self.state, drivers=Drivers(self.cloud))
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


async def test_a_controller_elsewhere_ends_this_one(tmp_path, copy):
    """The first one ends by name at the next thing that it would write down, and acknowledges nothing more."""
    acknowledged = []

    async def two() -> None:
        async with Replicated(tmp_path / "one", copy) as first:
            await first.submit("a")
            async with Replicated(tmp_path / "two", copy, cloud=first.cloud) as second:
                assert len((await second.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs) == 1
                with anyio.move_on_after(20):
                    acknowledged.append(await first.submit("b", name="another"))

    with pytest.raises(JournalLost, match="another controller writes the journal"):
        await two()
    assert not acknowledged
    async with Replicated(tmp_path / "three", copy) as third:
        assert len((await third.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs) == 1


async def test_a_place_that_cannot_be_reached_keeps_it_from_starting(tmp_path):
    """By name: whether what is on the disk is the present cannot be known."""
    (tmp_path / "file").touch()
    with pytest.raises(OperationError, match="file"):
        await Replicated(tmp_path / "state", tmp_path / "file").__aenter__()
