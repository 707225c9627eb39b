"""What belongs to forgotten jobs is dropped; figures are sampled."""

from pathlib import Path

import anyio
import pytest
from controller_world import World

from iriscw.controller.errors import OwnershipUnclear
from iriscw.jobs.registry import RegistryLimits
from iriscw.proto.iriscw import v1
from waiting import until


async def until_listed(world: World, count: int) -> list[v1.JobStatus]:
    """Wait until so many jobs are known, and all of them have succeeded."""
    with anyio.fail_after(60):
        while True:
            listed = (await world.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs
            if len(listed) == count and all(job.state is v1.JobState.SUCCEEDED for job in listed):
                return listed
            await anyio.sleep(0.02)


async def test_forgotten_jobs_leave_nothing(tmp_path: Path) -> None:
    """Beyond the limit of finished jobs the oldest are forgotten, and their logs with them; the latest stays."""
    async with World(tmp_path / "state", limits=RegistryLimits(finished=1)) as world:
        jobs = [(await world.submit(f"k{number}", name=f"n{number}")).job_id for number in range(3)]
        async with world.worker():
            listed = await until_listed(world, 1)
        await world.controller.features.parts["jobs"].sweep.sweep()
        assert [path.name for path in (tmp_path / "state" / "logs").iterdir()] == [listed[0].job_id]
        assert listed[0].job_id in jobs
        assert world.controller.statistics().logs.attempts == 1


async def test_who_may_not_be_the_writer_deletes_nothing(tmp_path: Path) -> None:
    """Jobs that look forgotten may be those of the controller that has taken over: the files stay until it is known."""
    async with World(tmp_path / "state", limits=RegistryLimits(finished=1)) as world:
        sweep, logs = world.controller.features.parts["jobs"].sweep, tmp_path / "state" / "logs"
        asked: list[int] = []

        async def unclear() -> None:
            asked.append(len(list(logs.iterdir())))
            raise OwnershipUnclear("nobody knows")

        confirm, sweep._confirm = sweep._confirm, unclear
        jobs = [(await world.submit(f"k{number}", name=f"n{number}")).job_id for number in range(2)]
        async with world.worker():
            await until_listed(world, 1)
        with pytest.raises(OwnershipUnclear):
            await sweep.sweep()
        assert set(asked) == {2}, "asked before anything was removed"
        assert sorted(path.name for path in logs.iterdir()) == sorted(jobs)
        sweep._confirm = confirm
        await sweep.sweep()
        assert len(list(logs.iterdir())) == 1


async def test_figures_are_sampled(world: World) -> None:
    """The controller's statistics show fleet and scheduler soon after the start."""
    await until(lambda: world.controller.statistics().scheduler is not None)
    figures = world.controller.statistics()
    assert figures.fleet is not None
    assert [group.group for group in figures.fleet.groups] == ["cpu"]
