"""Workers that went while the controller was down, of a slice that stayed, were waited for.

Found by seed 5. With the bug: INV-J11, an attempt whose pod is gone lives on by the disk.
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
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB, gpu_count=8, gpu_class="H100"),
            attributes=Attributes(pairs=(("device-type", "gpu"), ("zone", "z0"))),
            instance_type="gd-8xh100ib-i128",
            max_slices=2,
            priority=20,
            quota_pool="shared",
            timing=TIMING,
        ),
        GroupConfig(
            name="g1",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB, gpu_count=8, gpu_class="H100"),
            attributes=Attributes(pairs=(("device-type", "gpu"), ("zone", "z1"))),
            instance_type="gd-8xh100ib-i128",
            max_slices=2,
            buffer_slices=1,
            priority=20,
            timing=TIMING,
        ),
        GroupConfig(
            name="g2",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            max_slices=3,
            buffer_slices=1,
            priority=20,
            quota_pool="shared",
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=661644529,
            key="key0",
            spec=JobSpec(
                name="job0",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=8 * GIB),
                replicas=4,
            ),
            existing=Existing.KEEP,
            terminate_after=67 * SECOND,
        ),
        PlannedJob(
            at=104257451268,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=4 * GIB, gpu_count=2),
                replicas=3,
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z0",)),),
                timeout_ns=30 * SECOND,
                max_retries_failure=1,
                max_retries_preemption=1,
            ),
            existing=Existing.RECREATE,
            terminate_after=62 * SECOND,
        ),
        PlannedJob(
            at=41823433017,
            key="key2",
            spec=JobSpec(
                name="job2",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
                group_by="slice-id",
                scheduling_timeout_ns=90 * SECOND,
                max_retries_failure=2,
                max_retries_preemption=1,
                max_task_failures=1,
            ),
        ),
        PlannedJob(
            at=40595149324,
            key="key4",
            spec=JobSpec(
                name="job4",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=4 * GIB),
                group_by="slice-id",
                max_retries_preemption=1,
            ),
            terminate_after=47 * SECOND,
        ),
        PlannedJob(
            at=126706203308,
            key="key5",
            spec=JobSpec(
                name="job5",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
                replicas=4,
                max_task_failures=1,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=87004754599,
            key="key6",
            spec=JobSpec(
                name="job0",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=1 * GIB, gpu_count=2),
                replicas=2,
                group_by="slice-id",
                timeout_ns=30 * SECOND,
                scheduling_timeout_ns=90 * SECOND,
                max_retries_failure=1,
                max_task_failures=1,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=55040191895,
            key="key7",
            spec=JobSpec(
                name="job7",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=4 * GIB, gpu_count=2),
                replicas=6,
                timeout_ns=30 * SECOND,
                max_retries_failure=2,
                max_retries_preemption=1,
            ),
            existing=Existing.RECREATE,
        ),
    ),
    faults=(Fault(at=155 * SECOND, kind="worker crashes", pick=0),),
    rates=(
        ("api in trouble", 22),
        ("api landed late", 6),
        ("pool quota refused", 136),
        ("pool refused as invalid", 35),
        ("pool invalid", 1),
        ("quota not set", 1),
        ("pool without capacity", 182),
        ("deletion slow", 1),
        ("node triaged", 1),
        ("node cordoned", 1),
        ("node interruptable", 1),
        ("pod never starts", 1),
        ("pod evicted", 1),
        ("image pull limited", 50),
        ("mount fails", 1),
        ("worker dials twice", 1),
        ("crash behind a request", 5),
        ("attempt fails", 204),
        ("attempt never ends", 74),
    ),
    safety=205 * SECOND,
)
