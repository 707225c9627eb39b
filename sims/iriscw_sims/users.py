"""Users: they submit jobs, submit again when they got no answer, terminate some, and ask how things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from iriscw._errors import NoSuchActor
from iriscw.fleet.messages import ReopenGroup
from iriscw.jobs.messages import DescribeJob, SubmitJob, TerminateJob
from iriscw.runtime.envelope import Slot
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.swarm import PlannedJob

if TYPE_CHECKING:
    from iriscw_sims.world import World

POLL = 100 * MILLISECOND
PATIENCE = 10 * SECOND
"""How long a user waits for an answer."""

TRIES = 12
CURIOSITY = 17 * SECOND
"""Between two looks at all jobs."""


@attrs.define(eq=False)
class Submission:
    """A job on its way in."""

    planned: PlannedJob
    tries: int = 0


class Users:
    """All users."""

    def __init__(self, world: World) -> None:
        self.world = world
        for planned in world.plan.jobs:
            world.simulation.call_after(planned.at, self.submit, Submission(planned))
        world.simulation.call_after(CURIOSITY, self.look)

    def _ask(self, path: str, message: object) -> Slot | None:
        if self.world.system.crashed:
            return None
        try:
            return self.world.system.question(path, message)
        except NoSuchActor:
            return None

    def submit(self, submission: Submission) -> None:
        """Submit, for the first time or again: the key is the same."""
        planned = submission.planned
        submission.tries += 1
        slot = self._ask("/jobs", SubmitJob(planned.spec, planned.key, planned.existing))
        self._wait(submission, slot, self.world.simulation.now + PATIENCE)

    def _wait(self, submission: Submission, slot: Slot | None, deadline: int) -> None:
        simulation = self.world.simulation
        if slot is not None and not slot.done and simulation.now < deadline:
            simulation.call_after(POLL, self._wait, submission, slot, deadline)
            return
        if slot is not None and slot.done and slot.error is None:
            job_id = slot.value.job_id
            self.world.job_checks.acknowledge(job_id)
            if submission.planned.terminate_after is not None:
                simulation.call_after(submission.planned.terminate_after, self.terminate, job_id)
            return
        refused = slot is not None and slot.done and not getattr(slot.error, "retryable", False)
        if submission.tries < TRIES and not refused:
            simulation.call_after(SECOND, self.submit, submission)

    def terminate(self, job_id: str) -> None:
        """Have a job stopped."""
        if job_id in self.world.job_checks.jobs:
            self.world.job_checks.jobs[job_id].terminated = True
        self._ask("/jobs", TerminateJob(job_id))

    def look(self) -> None:
        """Ask how each job is that has not ended."""
        simulation, checks = self.world.simulation, self.world.job_checks
        simulation.call_after(CURIOSITY, self.look)
        for job_id, job in checks.jobs.items():
            if job.ended is None:
                slot = self._ask(f"/jobs/{job_id}", DescribeJob())
                if slot is not None:
                    simulation.call_after(3 * SECOND, self._told, slot)

    def _told(self, slot: Slot) -> None:
        if slot.done and slot.error is None:
            self.world.job_checks.described(slot.value)
            if self.world.quiet:
                self.world.job_checks.explained(slot.value)

    def reopen(self) -> None:
        """An operator has repaired what closed groups."""
        for group in self.world.plan.groups:
            self._ask("/fleet", ReopenGroup(group.name))
