"""What belongs to forgotten jobs is dropped; figures are sampled."""

from pathlib import Path

import anyio
from controller_world import World, until

from iriscw.jobs.registry import RegistryLimits
from iriscw.proto.iriscw import v1


async def test_forgotten_jobs_leave_nothing(tmp_path: Path) -> None:
    """Beyond the limit of finished jobs the oldest are forgotten, and their logs with them; the latest stays."""
    async with World(tmp_path / "state", limits=RegistryLimits(finished=1)) as world:
        jobs = [(await world.submit(f"k{number}", name=f"n{number}")).job_id for number in range(3)]
        listed: list[v1.JobStatus] = []
        async with world.worker():
            with anyio.fail_after(20):
                while len(listed) != 1 or listed[0].state is not v1.JobState.SUCCEEDED:
                    listed = (await world.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs
                    await anyio.sleep(0.02)
        await world.controller._tending._sweep()
        assert [path.name for path in (tmp_path / "state" / "logs").iterdir()] == [listed[0].job_id]
        assert listed[0].job_id in jobs
        assert world.controller.statistics().logs.attempts == 1


async def test_figures_are_sampled(world: World) -> None:
    """The controller's statistics show fleet and scheduler soon after the start."""
    await until(lambda: world.controller.statistics().scheduler is not None)
    figures = world.controller.statistics()
    assert figures.fleet is not None
    assert [group.group for group in figures.fleet.groups] == ["cpu"]
