"""A pool that somebody had resized was taken for booted when it had the nodes of its own size.

Found by seed 9179. With the bug: INV-F6: iris-g1-rtk7wc4tt7z2 is taken for initializing and its nodes never were
"""

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import Existing, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import GIB, TIMING, Fault, Plan, PlannedJob

PLAN = Plan(
    seed=9179,
    groups=(
        GroupConfig(
            name="g0",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            min_slices=1,
            max_slices=3,
            priority=10,
            quota_pool="shared",
            timing=TIMING,
        ),
        GroupConfig(
            name="g1",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z1"))),
            instance_type="cd-gp-i64",
            num_vms=2,
            max_slices=4,
            priority=10,
            quota_pool="shared",
            compute_class="spot",
            timing=TIMING,
        ),
        GroupConfig(
            name="g2",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            min_slices=1,
            max_slices=3,
            buffer_slices=1,
            priority=10,
            quota_pool="shared",
            compute_class="spot",
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=15594696681,
            key="key0",
            spec=JobSpec(
                name="job0",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=4 * GIB),
                replicas=3,
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z1",)),),
            ),
            existing=Existing.KEEP,
        ),
        PlannedJob(
            at=63206566976,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=1 * GIB),
                max_retries_preemption=0,
            ),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=71563042108,
            key="key2",
            spec=JobSpec(
                name="job2",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=500, memory_bytes=4 * GIB),
                replicas=6,
                timeout_ns=30 * SECOND,
                scheduling_timeout_ns=90 * SECOND,
                max_retries_failure=1,
                max_retries_preemption=0,
            ),
        ),
        PlannedJob(
            at=4334585579,
            key="key3",
            spec=JobSpec(
                name="job3",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=8 * GIB),
                replicas=2,
                group_by="slice-id",
                max_retries_failure=2,
                max_retries_preemption=0,
                max_task_failures=1,
            ),
        ),
        PlannedJob(
            at=61721952330,
            key="key5",
            spec=JobSpec(
                name="job5",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=1000, memory_bytes=16 * GIB),
                replicas=4,
                max_retries_preemption=1,
                max_task_failures=1,
            ),
            existing=Existing.KEEP,
        ),
    ),
    faults=(
        Fault(at=13937765445, kind="controller crashes", pick=0),
        Fault(at=16 * SECOND, kind="node dies", pick=0),
        Fault(at=17895903473, kind="disk full", pick=3708790688),
        Fault(at=32947105417, kind="node short of memory", pick=4171589138),
        Fault(at=70280211484, kind="node in triage", pick=2318222098),
        Fault(at=79 * SECOND, kind="pool removed from outside", pick=0),
        Fault(at=94 * SECOND, kind="node in triage", pick=1170978085),
        Fault(at=96 * SECOND, kind="controller closes", pick=1040032485),
        Fault(at=107 * SECOND, kind="node in triage", pick=0),
        Fault(at=123132663685, kind="api out of reach", pick=855712410),
        Fault(at=135 * SECOND, kind="pool replaced by a stranger", pick=3767257791),
    ),
    rates=(
        ("api lost", 37),
        ("api landed late", 53),
        ("watch goes silent", 5),
        ("pool quota refused", 55),
        ("pool without capacity", 196),
        ("pool never boots", 80),
        ("pool boots slowly", 45),
        ("image pull fails", 13),
        ("mount fails", 1),
        ("container config missing", 1),
    ),
    safety=167 * SECOND,
)
