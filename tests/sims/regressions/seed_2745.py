"""A name was taken, and the credentials did not allow to see by whom: people were told that the cloud is silent.

Found by seed 2745. With the bug: INV-F5: iris-g0-6h6zdut44223 is refused for its credentials, and its slice has t
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
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
            attributes=Attributes(pairs=(("device-type", "cpu"), ("zone", "z0"))),
            instance_type="cd-gp-i64",
            max_slices=4,
            priority=20,
            timing=TIMING,
        ),
        GroupConfig(
            name="g1",
            per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB, gpu_count=8, gpu_class="H100"),
            attributes=Attributes(pairs=(("device-type", "gpu"), ("zone", "z1"))),
            instance_type="gd-8xh100ib-i128",
            min_slices=1,
            max_slices=4,
            priority=10,
            compute_class="spot",
            timing=TIMING,
        ),
    ),
    jobs=(
        PlannedJob(
            at=1 * SECOND,
            key="key0",
            spec=JobSpec(name="job0", entrypoint=ENTRYPOINT, demand=Capacity(cpu_milli=4000, memory_bytes=4 * GIB)),
            existing=Existing.RECREATE,
        ),
        PlannedJob(
            at=18150528366,
            key="key1",
            spec=JobSpec(
                name="job1",
                entrypoint=ENTRYPOINT,
                demand=Capacity(cpu_milli=2000, memory_bytes=8 * GIB),
                replicas=2,
                constraints=(Constraint(key="zone", op=Op.EQ, values=("z0",)),),
                timeout_ns=30 * SECOND,
                max_retries_preemption=0,
            ),
        ),
    ),
    faults=(
        Fault(at=41 * SECOND, kind="node cordoned for a while", pick=416104498),
        Fault(at=42 * SECOND, kind="node short of disk", pick=231),
        Fault(at=103 * SECOND, kind="node not ready", pick=0),
        Fault(at=111 * SECOND, kind="right revoked", pick=31488),
    ),
    rates=(
        ("deletion stuck", 149),
        ("image pull limited", 49),
        ("mount fails", 31),
        ("worker lies", 49),
        ("pool name taken", 96),
        ("pod name taken", 1),
    ),
    safety=253 * SECOND,
)
