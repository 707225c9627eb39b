"""A slice that was restarted, and lost all, never told the scheduler that its workers were gone.

Found by seed 2104. With the bug: INV-J11: 06fa6fca2b3da55a of job-dhqbw7nxu6nj lives by the disk, and iris-g0-w4l
"""

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import Existing, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import GIB, TIMING, Fault, Plan, PlannedJob

PLAN = Plan(
    seed=0,
    groups=(
        GroupConfig(
            name="g0",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            priority=10,
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=44 * SECOND,
            key="key2",
            spec=JobSpec(name="job2", entrypoint=ENTRYPOINT, demand=Capacity(cpu_milli=4000, memory_bytes=4 * GIB)),
            existing=Existing.RECREATE,
        ),
    ),
    faults=(Fault(at=43 * SECOND, kind="machines lost while the controller is down", pick=191),),
    rates=(),
    safety=74 * SECOND,
)
