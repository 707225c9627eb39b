"""A place that began anew saw a dead pod go and told nobody, so its attempts lived on the disk.

Found by seed 10370. With the bug: INV-J11: 09b70cdc9a27b4ee of job-bhge3hmb4xb6 lives by the disk, and iris-g0-eqt
"""

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
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
            max_slices=2,
            priority=20,
            quota_pool="shared",
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=1 * SECOND,
            key="key0",
            spec=JobSpec(
                name="job0",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=4 * GIB),
                replicas=4,
                timeout_ns=30 * SECOND,
                max_retries_failure=1,
            ),
        ),
        PlannedJob(
            at=181016134936,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=2000, memory_bytes=4 * GIB),
                group_by="slice-id",
                max_retries_failure=2,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=99723867661,
            key="key2",
            spec=JobSpec(
                name="job2",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=4 * GIB),
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z0",)),),
                group_by="slice-id",
                timeout_ns=30 * SECOND,
                max_retries_failure=1,
                max_task_failures=1,
            ),
            existing=Existing.KEEP,
        ),
    ),
    faults=(
        Fault(at=92 * SECOND, kind="credentials expire", pick=1633405037),
        Fault(at=138 * SECOND, kind="actor poisoned", pick=3626690888),
        Fault(at=178 * SECOND, kind="worker out of memory", pick=0),
        Fault(at=228 * SECOND, kind="api out of reach", pick=35072),
    ),
    rates=(("attempt never ends", 88),),
    safety=253 * SECOND,
    takeover_delay=20 * SECOND,
)
