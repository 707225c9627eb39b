"""What must always hold of attempts that give way to work of a higher band, judged by what is on the disk.

========  ============================================================================================
INV-J3    room that is kept for somebody is room of those who leave, and who leaves holds room still
INV-J5    only what was stopped to give way counts as preempted; what is frozen for that counts as nothing
INV-J6    who gives way is of a strictly lower band, its job allows it, and somebody of the higher one waits
========  ============================================================================================

That whoever made others leave gets to run, and that those go on, is liveness: all jobs end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iriscw.cloud.model import Capacity
from iriscw.jobs.model import Ending, Preemption
from iriscw.jobs.records import AttemptEnded
from iriscw.jobs.scheduling.placement import Host
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.suspension.records import AttemptSuspended, AttemptYields, SuspensionAsked

if TYPE_CHECKING:
    from iriscw_sims.job_checks import TruthOfJob
    from iriscw_sims.world import World


class BandChecks:
    """The checks, fed with what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.yields: dict[str, AttemptYields] = {}
        """Of live attempts that have to give way, by uid."""
        self.stopped = 0
        self.frozen = 0
        """How many were suspended for it."""
        self._suspending: dict[str, bool] = {}
        """Of live attempts that are being suspended: whether that is to give way."""

    def durable(self, path: str, record: Any) -> None:
        """A record reached the disk: before the checks of jobs look at it."""
        job_id = path.rpartition("/")[2]
        match record:
            case AttemptYields():
                self._yields(job_id, record)
            case SuspensionAsked(uid=uid, yields=yields):
                self._suspending[uid] = yields
                if yields and uid not in self.yields:
                    self.world.violate("J6", f"{uid} is frozen to give way, and has to give way to nobody")
            case AttemptSuspended(uid=uid):
                if self._suspending.pop(uid, False):
                    self.frozen += 1
                self.yields.pop(uid, None)
            case AttemptEnded(uid=uid):
                known = self.yields.pop(uid, None)
                self._suspending.pop(uid, None)
                if record.end.ending is Ending.PREEMPTED and (known is None or not known.kill):
                    self.world.violate(
                        "J5", f"{uid} of {job_id} ended as preempted, and nobody had it stopped for that"
                    )

    def _yields(self, job_id: str, record: AttemptYields) -> None:
        job, uid = self.world.job_checks.jobs[job_id], record.uid
        self.yields[uid] = record
        self.stopped += record.kill
        if job.spec.preemption is Preemption.NEVER:
            self.world.violate("J6", f"{uid} of {job_id} gives way, and its job says that it never does")
        name, _, band = record.to.removesuffix(")").rpartition(" (")
        others = [
            each
            for each in self.world.job_checks.jobs.values()
            if each.spec.name == name and each.spec.band.name.lower() == band and each.spec.band < job.spec.band
        ]
        if not any(map(_waits, others)):
            self.world.violate("J6", f"{uid} of {job_id} ({job.spec.band.name.lower()}) gives way to {record.to}")

    def free(self, state: Scheduler, host: Host, free: Capacity) -> Capacity:
        """Take what is kept on a worker from what is free there by its attempts (INV-J3)."""
        claims = state.claims
        for number, count in host.claimed.items():
            claim = claims.made.get(number)
            if claim is None or claim.hosts.count(host) != count:
                self.world.violate("J3", f"{host.info.worker_id} keeps room for {number}, which nobody waits for")
                continue
            for _ in range(count):
                free = free.minus(claim.demand)
        after = free
        for uid, each in host.commitments.items():
            if uid in claims.leaving or uid in claims.stuck:
                after = after.plus(each.demand)
        if host.placeable and (after.cpu_milli < 0 or after.memory_bytes < 0 or after.gpu_count < 0):
            self.world.violate("J3", f"on {host.info.worker_id} more is kept than will be free: {after}")
        return free

    def scheduler(self, state: Scheduler) -> None:
        """Look at who leaves, by what the scheduler says."""
        for uid in state.claims.leaving:
            if uid not in state.inventory.where and uid not in state.absent_of:
                self.world.violate("J3", f"{uid} is waited for, and holds no room")


def _waits(job: TruthOfJob) -> bool:
    """Tell whether it may have tasks that wait. One that ended a moment ago may have made others leave."""
    return len(job.over_well) < job.spec.replicas
