"""A slice that was restarted, and lost all, never told the scheduler that its workers were gone.

Found by seed 2104. With the bug: INV-J11: 06fa6fca2b3da55a of job-dhqbw7nxu6nj lives by the disk, and iris-g0-utp
"""

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import JobSpec
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
    ),
    faults=(
        Fault(at=121 * SECOND, kind="controller crashes between two steps", pick=0),
        Fault(at=135297100541, kind="pod removed from outside", pick=169),
    ),
    rates=(
        ("api throttled", 53),
        ("api landed late", 37),
        ("pool quota exceeded", 102),
        ("pool partly without capacity", 21),
        ("pool never boots", 102),
        ("deletion stuck", 67),
        ("node dies early", 6),
        ("node triaged", 29),
        ("node cordoned", 1),
        ("crash behind a request", 3),
    ),
    safety=161 * SECOND,
    takeover_delay=20 * SECOND,
)
