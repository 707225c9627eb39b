"""Hypothesis draws plans, and shrinks those that fail.

Theory of operation. :func:`plans` draws what :func:`~iriscw_sims.swarm.draw_plan` draws from a seed, choice by choice,
so that Hypothesis can take a failure apart: it prefers fewer choices, then smaller ones, the first of a list, and 0.
Each draw here is written so that this means a simpler world:

* faults, jobs, groups and rates are lists, the most expendable drawn last: fewer of them is simpler;
* a kind of fault is drawn once, with its moments: a kind that does not matter goes as a whole (and swarm testing is
  kept: most plans have a few kinds, not all);
* moments are full seconds from the beginning, picks and rates numbers from 0, lists of alternatives begin with the
  plainest.

The seed is drawn as well: it decides the fate of single requests, pods and attempts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
from iriscw.fleet.model import GroupConfig, Timing
from iriscw.jobs.model import Existing, JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.pace import TIMING
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import FAULTS, GIB, RATES, Fault, Plan, PlannedJob

SAFETY_S = 240
"""The time of faults of every plan that is drawn, seconds."""

LAST_JOB_S = 180
"""No job comes later than this."""

MAX_GROUPS = 3
MAX_JOBS = 8
MAX_KINDS = 8
MAX_MOMENTS = 3
"""Moments of one kind of fault."""

OWN_NAME = "own"
"""Stands for the name of a job until its number is known."""

MAX_PICK = 0xFFFFF
"""Picks beyond this choose nothing else: victims are few, and durations end at two minutes."""


@st.composite
def groups(draw: st.DrawFn, timing: Timing = TIMING) -> GroupConfig:
    """Draw a scale group of up to four slices of up to three machines each."""
    gpus = draw(st.sampled_from((0, 8)))
    most = draw(st.integers(1, 4))
    return GroupConfig(
        name="g0",
        per_worker=Capacity(4000, 16 * GIB, 0, gpus, "H100" if gpus else ""),
        attributes=Attributes({"zone": draw(st.sampled_from(("z0", "z1"))), "device-type": "gpu" if gpus else "cpu"}),
        instance_type="gd-8xh100ib-i128" if gpus else "cd-gp-i64",
        num_vms=draw(st.integers(1, 3)),
        min_slices=draw(st.integers(0, min(2, most))),
        max_slices=most,
        buffer_slices=draw(st.integers(0, 1)),
        priority=draw(st.sampled_from((10, 20))),
        quota_pool=draw(st.sampled_from(("", "shared"))),
        timing=timing,
    )


@st.composite
def jobs(draw: st.DrawFn, among: Sequence[GroupConfig], *, timeouts_s: Sequence[int] = (0, 30)) -> PlannedJob:
    """Draw a job that one of these groups can run, so that only faults and its user keep it from succeeding."""
    group = draw(st.sampled_from(among))
    per = group.per_worker
    demand = Capacity(
        draw(st.sampled_from((500, 1000, 2000, 4000))),
        draw(st.sampled_from((1, 4, 8, 16))) * GIB,
        gpu_count=draw(st.sampled_from(sorted({0, per.gpu_count // 4, per.gpu_count}))),
    )
    gang = draw(st.booleans())
    zone: Any = group.attributes.get("zone")
    spec = JobSpec(
        name=draw(st.sampled_from((OWN_NAME, "job0"))),
        entrypoint=ENTRYPOINT,
        demand=demand,
        replicas=draw(st.integers(1, min(4, per.times(demand) * group.num_vms) if gang else 6)),
        constraints=(Constraint("zone", Op.EQ, (zone,)),) if draw(st.booleans()) else (),
        group_by="slice-id" if gang else None,
        timeout_ns=draw(st.sampled_from(timeouts_s)) * SECOND,
        scheduling_timeout_ns=draw(st.sampled_from((0, 90))) * SECOND,
        max_retries_failure=draw(st.integers(0, 2)),
        max_retries_preemption=draw(st.sampled_from((100, 0, 1, 2))),
        max_task_failures=draw(st.integers(0, 1)),
    )
    stopped = draw(st.sampled_from((None, None, None, 5, 20, 60)))
    return PlannedJob(
        at=draw(st.integers(0, LAST_JOB_S)) * SECOND,
        key="",
        spec=spec,
        existing=draw(st.sampled_from(tuple(Existing))),
        terminate_after=None if stopped is None else stopped * SECOND,
    )


def _numbered(job: PlannedJob, number: int) -> PlannedJob:
    """Return a job its key, and its name unless that is to be another's, too."""
    spec = attrs.evolve(job.spec, name=f"job{number}") if job.spec.name == OWN_NAME else job.spec
    return attrs.evolve(job, key=f"key{number}", spec=spec)


@st.composite
def faults(draw: st.DrawFn, kinds: Sequence[str] = FAULTS, safety_s: int = SAFETY_S) -> tuple[Fault, ...]:
    """Draw faults of some of these kinds, in order of their moments."""
    if not kinds:
        return ()
    moment = st.tuples(st.integers(0, safety_s - 1), st.integers(0, MAX_PICK))
    one = st.tuples(st.sampled_from(kinds), st.lists(moment, min_size=1, max_size=MAX_MOMENTS))
    drawn = draw(st.lists(one, max_size=min(MAX_KINDS, len(kinds)), unique_by=lambda each: each[0]))
    found = [Fault(at * SECOND, kind, pick) for kind, moments in drawn for at, pick in moments]
    return tuple(sorted(found, key=lambda fault: (fault.at, fault.kind, fault.pick)))


@st.composite
def rates(draw: st.DrawFn, among: Sequence[tuple[str, int]] = RATES) -> tuple[tuple[str, int], ...]:
    """Draw chances, each with a rate between 1 and its highest, thousandths; those that are not drawn are 0."""
    if not among:
        return ()
    drawn = dict(draw(_some_of(tuple(among))))
    return tuple((name, drawn[name]) for name, _ in among if name in drawn)


@functools.cache
def _some_of(among: tuple[tuple[str, int], ...]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Make the strategy for some of these chances: once, because it is large."""
    one = st.one_of([st.tuples(st.just(name), st.integers(1, most)) for name, most in among])
    return st.lists(one, unique_by=lambda each: each[0], max_size=len(among) // 2 + 1)


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    among: Sequence[GroupConfig] = (),
    kinds: Sequence[str] = FAULTS,
    chances: Sequence[tuple[str, int]] = RATES,
    timing: Timing = TIMING,
    max_jobs: int = MAX_JOBS,
    task_length_s: tuple[int, int] | None = None,
) -> Plan:
    """Draw a plan: what :func:`~iriscw_sims.holding.assert_holds` takes.

    Args:
        draw: given by Hypothesis.
        among: the scale groups of the world. Default: one to three are drawn.
        kinds: the kinds of faults that may happen, of :data:`~iriscw_sims.swarm.FAULTS`.
        chances: the chances that may come true, with their highest rates, of :data:`~iriscw_sims.swarm.RATES`.
        timing: every delay of groups that are drawn.
        max_jobs: how many jobs there are at most.
        task_length_s: how long tasks run, between these two, in seconds; no job has a timeout then. Default: most of
            them for some seconds, so that little of what a policy does wrong makes anybody wait.
    """
    seed = draw(st.integers(0, 0xFFFF))
    fleet = tuple(among)
    if not fleet:
        drawn = draw(st.lists(groups(timing=timing), min_size=1, max_size=MAX_GROUPS))
        fleet = tuple(attrs.evolve(group, name=f"g{number}") for number, group in enumerate(drawn))
    one = jobs(fleet) if task_length_s is None else jobs(fleet, timeouts_s=(0,))
    submitted = draw(st.lists(one, min_size=1, max_size=max_jobs))
    delay = draw(st.sampled_from((0, 20))) * SECOND
    return Plan(
        seed=seed,
        groups=fleet,
        jobs=tuple(_numbered(job, number) for number, job in enumerate(submitted)),
        faults=draw(faults(kinds)),
        rates=draw(rates(chances)),
        safety=SAFETY_S * SECOND,
        takeover_delay=delay,
        task_length=None if task_length_s is None else (task_length_s[0] * SECOND, task_length_s[1] * SECOND),
    )
