"""Loads: plans that draw nothing, so that what they cost says something about sizes and not about a seed.

:func:`busy_plan` keeps a fleet of any size at work, at :data:`BUSY`'s pace: every few seconds each
slice ends something and begins something else. :func:`lasting_plan` is the opposite: a small fleet that boots for a job
now and then, and is empty otherwise, for months, at :data:`LASTING`'s pace. Neither has any faults; a plan with some is
one ``attrs.evolve`` away.
"""

from __future__ import annotations

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import GroupConfig, Timing
from iriscw.jobs.model import Entrypoint, EntrypointKind, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.pace import FAITHFUL, MINUTE, QUICK, TIMING
from iriscw_sims.swarm import GIB, Plan, PlannedJob

HOUR = 60 * MINUTE
DAY = 24 * HOUR

ATTEMPTS_PER_SLICE_HOUR = 330
"""What a slice with room for one attempt gets done in an hour at the quick pace, and a bit more: none is ever idle."""

SLICES_PER_GROUP = 10
"""Of a busy fleet: a group asks for a few slices at a time, so one of a thousand would boot for an hour."""

REPLICAS_PER_SLICE = 20
"""Tasks of one job of a busy fleet for each slice: three and a half minutes of work."""

BUSY = attrs.evolve(QUICK, driver=attrs.evolve(QUICK.driver, qps=1_000.0, burst=1_000, page_limit=500))
"""The quick pace with a driver that may ask as often as it likes, so that a large fleet boots as fast as a small
one."""

LASTING = attrs.evolve(
    FAITHFUL,
    timing=attrs.evolve(
        FAITHFUL.timing,
        boot_timeout=2 * HOUR,
        startup_grace=3 * HOUR,
        liveness_timeout=20 * MINUTE,
        evaluation_interval=MINUTE,
    ),
    heartbeat=5 * MINUTE,
    lease=20 * MINUTE,
    lease_grace=40 * MINUTE,
    finished_jobs=20,
)
"""The faithful pace with few heartbeats, few looks at an idle fleet, and a short list of ended jobs: a year of it is a
matter of minutes."""


def busy_plan(slices: int, duration_s: float, seed: int = 1) -> Plan:
    """Return the plan of a fleet of ``slices`` one-machine slices that are at work for ``duration_s`` virtual seconds.

    Every attempt takes a whole machine, so a fleet of ten times the size runs ten times as many.
    """
    sizes = [min(SLICES_PER_GROUP, slices - first) for first in range(0, slices, SLICES_PER_GROUP)]
    groups = tuple(_group(f"busy{number}", size, size, TIMING) for number, size in enumerate(sizes))
    replicas = slices * REPLICAS_PER_SLICE
    apart = HOUR * REPLICAS_PER_SLICE // ATTEMPTS_PER_SLICE_HOUR
    safety = int(duration_s * SECOND)
    jobs = tuple(
        PlannedJob(number * apart, f"key{number}", _job(f"busy{number}", replicas))
        for number in range(-(-safety // apart))
    )
    return Plan(seed, groups, jobs, (), (), safety)


def lasting_plan(days: float, seed: int = 1, jobs_per_day: int = 2, most_slices: int = 2) -> Plan:
    """Return the plan of a fleet that comes from nothing for each of a few small jobs a day, and goes again."""
    group = _group("lasting", 0, most_slices, LASTING.timing, "cd-gp-a192-genoa")
    apart = DAY // jobs_per_day
    jobs = tuple(
        PlannedJob(number * apart, f"key{number}", _job(f"lasting{number}", 2 * most_slices))
        for number in range(int(days * jobs_per_day))
    )
    return Plan(seed, (group,), jobs, (), (), int(days * DAY))


def _group(name: str, least: int, most: int, timing: Timing, instance_type: str = "cd-gp-i64") -> GroupConfig:
    return GroupConfig(
        name=name,
        per_worker=Capacity(4000, 16 * GIB, 0, 0, ""),
        attributes=Attributes({"zone": "z0", "device-type": "cpu"}),
        instance_type=instance_type,
        num_vms=1,
        min_slices=least,
        max_slices=most,
        buffer_slices=0,
        priority=10,
        quota_pool="",
        timing=timing,
    )


def _job(name: str, replicas: int) -> JobSpec:
    return JobSpec(
        name=name,
        entrypoint=Entrypoint(EntrypointKind.COMMAND, "0" * 64),
        demand=Capacity(4000, 4 * GIB),
        replicas=replicas,
        max_retries_failure=2,
        max_retries_preemption=100,
    )


__all__ = ["BUSY", "LASTING", "busy_plan", "lasting_plan"]
