"""Workers that went while the controller was down, of a slice that stayed, were waited for.

Found by seed 5. With the bug: INV-J11: 0688b04120aba141 of job-hpzyefuzxssk lives by the disk, and iris-g1-ztb
"""

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
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
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB, gpu_count=8, gpu_class="H100"),
            attributes=Attributes(pairs=(("device-type", "gpu"), ("zone", "z0"))),
            instance_type="gd-8xh100ib-i128",
            max_slices=2,
            priority=20,
            quota_pool="shared",
            compute_class="spot",
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
            compute_class="spot",
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
                max_retries_failure=2,
                max_retries_preemption=2,
                max_task_failures=1,
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
            at=232089377082,
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
            existing=Existing.KEEP,
        ),
        PlannedJob(
            at=222831572337,
            key="key3",
            spec=JobSpec(
                name="job3",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=1 * GIB),
                replicas=5,
                timeout_ns=30 * SECOND,
                max_retries_preemption=0,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=100114174514,
            key="key4",
            spec=JobSpec(
                name="job4",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=2000, memory_bytes=4 * GIB, gpu_count=8),
                replicas=3,
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z1",)),),
                max_retries_preemption=1,
            ),
        ),
        PlannedJob(
            at=221722364324,
            key="key5",
            spec=JobSpec(
                name="job5",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=4 * GIB),
                replicas=3,
                group_by="slice-id",
                max_task_failures=1,
            ),
            existing=Existing.KEEP,
        ),
        PlannedJob(
            at=132907522270,
            key="key6",
            spec=JobSpec(
                name="job6",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=4000, memory_bytes=8 * GIB, gpu_count=2),
                replicas=4,
                timeout_ns=30 * SECOND,
                scheduling_timeout_ns=90 * SECOND,
                max_retries_failure=2,
                max_retries_preemption=2,
            ),
        ),
    ),
    faults=(
        Fault(at=87251448445, kind="node in triage", pick=3806510236),
        Fault(at=167186093540, kind="controller crashes", pick=3500584343),
        Fault(at=224283453366, kind="worker crashes", pick=785301051),
        Fault(at=297807830229, kind="machines lost while the controller is down", pick=2928938354),
    ),
    rates=(
        ("node triaged", 35),
        ("node cordoned", 7),
        ("node interruptable", 47),
        ("spot interruption", 11),
        ("image pull slow", 140),
    ),
    safety=320 * SECOND,
    takeover_delay=20 * SECOND,
)
