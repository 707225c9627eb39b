"""A slice that was restarted, and lost all, never told the scheduler that its workers were gone.

Found by seed 2104. With the bug: INV-J11: 0b05c332313553a6 of job-4br7jhrgnlj3 lives by the disk, and iris-g0-7ep
"""

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import Existing, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import GIB, TIMING, Fault, Plan, PlannedJob

PLAN = Plan(
    seed=1,
    groups=(
        GroupConfig(
            name="g0",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            num_vms=2,
            max_slices=3,
            buffer_slices=1,
            priority=10,
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=7063521688,
            key="key0",
            spec=JobSpec(
                name="job0",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=4 * GIB),
                replicas=4,
                max_retries_failure=2,
                max_retries_preemption=0,
            ),
        ),
        PlannedJob(
            at=41223977235,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=1 * GIB),
                replicas=4,
                group_by="slice-id",
                max_task_failures=1,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=44347850331,
            key="key2",
            spec=JobSpec(
                name="job2",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=4 * GIB),
                replicas=5,
                max_retries_failure=1,
                max_retries_preemption=2,
                max_task_failures=1,
            ),
            existing=Existing.RECREATE,
        ),
    ),
    faults=(
        Fault(at=121951088322, kind="controller crashes between two steps", pick=3408902907),
        Fault(at=133051533235, kind="node interrupted", pick=5814381),
    ),
    rates=(
        ("api landed late", 37),
        ("pool without capacity", 21),
        ("pool never boots", 118),
        ("pool boots slowly", 96),
    ),
    safety=161 * SECOND,
)
