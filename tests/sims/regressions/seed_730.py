"""A create that nobody answered landed when the pod of the repeated one was gone: one incarnation lived twice.

Found by seed 730. With the bug: INV-J2: 0a2643f84ffdfd63 starts twice
"""

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import Existing, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import GIB, TIMING, Fault, Plan, PlannedJob

PLAN = Plan(
    seed=730,
    groups=(
        GroupConfig(
            name="g0",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            min_slices=1,
            max_slices=2,
            priority=20,
            compute_class="spot",
            timing=TIMING,
        ),
        GroupConfig(
            name="g1",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z1"))),
            instance_type="cd-gp-i64",
            num_vms=2,
            min_slices=1,
            max_slices=2,
            priority=10,
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=0,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=2000, memory_bytes=4 * GIB),
                replicas=4,
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z0",)),),
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=54313454864,
            key="key2",
            spec=JobSpec(
                name="job2",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=1 * GIB),
                replicas=6,
                max_retries_failure=2,
                max_retries_preemption=0,
            ),
            existing=Existing.KEEP,
        ),
    ),
    faults=(
        Fault(at=9825944710, kind="controller closes", pick=3572765560),
        Fault(at=24712785421, kind="machines lost while the controller is down", pick=2560),
        Fault(at=52 * SECOND, kind="node out of reach", pick=3652477906),
    ),
    rates=(("api throttled", 37), ("api lost", 2), ("api landed late", 29), ("pod fails", 99)),
    safety=185 * SECOND,
)
