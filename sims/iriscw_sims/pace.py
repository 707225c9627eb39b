"""How fast a simulated world goes: every delay that is not a group's own, for the cloud, the driver and the workers.

:data:`QUICK` has seconds where reality has minutes, so that a few minutes of virtual time meet everything; only the
order of the delays matters there. :data:`FAITHFUL` has what was measured, and what production runs with.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from iriscw.cloud.kube.settings import KubeSettings
from iriscw.fleet.model import Timing
from iriscw.jobs.settings import JobSettings
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.worker.model import DEFAULT_HEARTBEAT_NS, DEFAULT_LEASE_NS
from iriscw_sims.coreweave import settings as cloud_settings
from iriscw_sims.coreweave.settings import Settings

CLUSTER = "simulated"
NAMESPACE = "iris"
MINUTE = 60 * SECOND


@attrs.frozen
class Pace:
    """The delays of a world, in ns.

    Raises:
        ValueError: workers would end their attempts later than the controller gives them up.
    """

    cloud: Settings
    driver: KubeSettings
    timing: Timing
    """Of groups that say nothing else."""
    call_timeout: int
    """After this the driver's shell gives a call up."""
    heartbeat: int
    lease: int
    """After this without contact a worker kills its attempts: less than ``lease_grace``."""
    lease_grace: int
    """How long the controller waits for a worker that is out of reach and not fenced."""
    logs_bound: int
    """How long the end of an attempt waits for its log."""
    suspend_limit: int
    """How long an attempt may take to be suspended, and how long to come back."""
    gone_bound: int
    """How long an attempt may live on the disk whose pod is gone, with nothing else wrong: a controller that was
    started waits for what its predecessor may have asked for, lists what exists, and has all jobs report. Less than
    what it waits for workers of which nothing is known."""
    converge: int = 0
    """How long the healed world may take to come to rest; 0: what :func:`rest_bound` says of its groups."""

    finished_jobs: int = 1_000
    """Jobs that have ended and stay listed."""

    def __attrs_post_init__(self) -> None:
        if not self.lease < self.lease_grace:
            raise ValueError(f"a lease of {self.lease} ns is not over after {self.lease_grace} ns")


def rest_bound(driver: KubeSettings, timings: Sequence[Timing]) -> int:
    """Return how long a healed world may take to come to rest, ns.

    What the product promises, one thing after the other.

    A watch may be deaf; what it shows then condemns a slice at the end of its startup; the slice goes, though its last
    deletion has only just been asked for; the group stays closed for its longest pause; another slice starts, turns out
    to be too many, and goes.
    """
    deaf = driver.watch_timeout + driver.watch_margin
    longest = 0
    for timing in timings:
        end = timing.pod_grace + timing.deletion_patience
        closed = max(timing.failure_backoff_max, timing.quota_backoff_max)
        waits = timing.retry_backoff_max + closed + timing.scale_down_delay
        longest = max(longest, waits + 2 * (timing.startup_grace + end))
    return deaf + longest


_DRIVER = KubeSettings(
    cluster=CLUSTER, namespace=NAMESPACE, image="iriscw/worker:simulated", controller_address="controller:10000"
)

TIMING = Timing(
    requesting_timeout=60 * SECOND,
    boot_timeout=90 * SECOND,
    init_timeout=60 * SECOND,
    startup_grace=180 * SECOND,
    evaluation_interval=10 * SECOND,
    scale_up_delay=10 * SECOND,
    scale_down_delay=30 * SECOND,
    liveness_timeout=15 * SECOND,
    start_patience=15 * SECOND,
    cordon_timeout=5 * SECOND,
    failure_backoff=10 * SECOND,
    failure_backoff_max=60 * SECOND,
    quota_backoff=50 * SECOND,
    quota_backoff_max=200 * SECOND,
    retry_backoff=1 * SECOND,
    retry_backoff_max=20 * SECOND,
    pod_grace=20 * SECOND,
    deletion_patience=100 * SECOND,
    deletion_retry=10 * SECOND,
    boot_estimate=30 * SECOND,
)

QUICK = Pace(
    cloud=cloud_settings.QUICK,
    driver=attrs.evolve(
        _DRIVER,
        page_limit=2,  # so that lists have many pages
        qps=4.0,  # so that requests wait for their turn
        burst=6,
        attempts=3,
        pause_most=2 * SECOND,
        watch_timeout=60 * SECOND,
        watch_pause_most=5 * SECOND,
        watch_interval=500 * MILLISECOND,
        patience=60 * SECOND,
    ),
    timing=TIMING,
    call_timeout=10 * SECOND,
    heartbeat=5 * SECOND,
    lease=20 * SECOND,
    lease_grace=40 * SECOND,
    logs_bound=15 * SECOND,
    suspend_limit=60 * SECOND,
    gone_bound=45 * SECOND,
)
"""Seconds where a cloud has minutes."""

FAITHFUL = Pace(
    cloud=cloud_settings.FAITHFUL,
    driver=_DRIVER,
    timing=Timing(),
    call_timeout=60 * SECOND,
    heartbeat=DEFAULT_HEARTBEAT_NS,
    lease=DEFAULT_LEASE_NS,
    lease_grace=2 * DEFAULT_LEASE_NS,
    logs_bound=30 * SECOND,
    suspend_limit=JobSettings().suspend_limit_ns,
    gone_bound=10 * MINUTE,
    converge=48 * 60 * MINUTE,
)
"""As measured, and as shipped."""
