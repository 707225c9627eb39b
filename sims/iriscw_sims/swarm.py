"""What a seed draws: the groups, the jobs, the faults and how often each may happen.

Theory of operation. Swarm testing: each seed switches about half of all kinds of faults off and draws rates for the
rest, so that the behaviours of one are not drowned by another. Everything is drawn here, before the run begins, except
for the fate of single requests, pods and attempts: those are drawn as they come, with the rates from here.

A :class:`Plan` can be changed before it is run: faults taken out, rates set to 0. That is how a failure is shrunk, and
how one that was fixed is kept.

Times are integer ns of virtual time. The delays are seconds where a cloud has minutes; only their order matters.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import Band, Entrypoint, EntrypointKind, Existing, JobSpec, Preemption
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.fault_points import FAULT_POINTS
from iriscw_sims.pace import TIMING

GIB = 1 << 30

RESTART_SHARE = 0.25
"""In how many plans each fault around restarts happens: together in most, and each loses all that runs."""

HARDWARE_SHARE = 0.3
"""In how many plans each fault of a node's clock, memory and disks happens."""

_NOT_OF_WORKERS = ("liveness probe fails", "pod over its storage")
"""Chances of pods with a probe, or a limit of storage; worker pods of simulated groups have neither."""

HARDWARE_CHANCES: tuple[str, ...] = ("node clock off", "attempt out of memory")

API_SHARE = 0.25
"""In how many plans each fault of the API server as a whole, and each kind of stranger, happens."""

STRANGERS: tuple[tuple[str, int], ...] = (
    ("pool name taken", 300),
    ("pod name taken", 150),
)
"""Chances that somebody else has a name first: see :mod:`iriscw_sims.strangers`."""

BAND_SHARE = 0.3
"""In how many plans jobs are of several bands."""

COPY_SHARE = 0.3
"""In how many plans checkpoints are made of tasks that run."""

MOVE_SHARE = 0.3
"""In how many plans users suspend tasks."""

MOST_MOVES = 16
"""Tasks that users suspend in one plan, at most."""

MOVE_CHANCES: tuple[tuple[str, int], ...] = (
    ("attempt runs long", 600),
    ("freeze fails", 200),
    ("freeze lost", 150),
    ("freeze or thaw slow", 200),
    ("thaw fails", 500),
    ("thaw lost", 300),
    ("leave refused", 400),
    ("checkpoint damaged", 400),
    ("checkpoint stays", 200),
    ("thaw refused", 500),
    ("suspension stored", 800),
    ("store fails", 300),
)
"""Chances of attempts that are suspended and resumed: see :mod:`iriscw_sims.freezing`."""

LATER_MOVE_CHANCES: tuple[str, ...] = ("thaw refused", "suspension stored", "store fails")
"""Those of them that came later: drawn last, so that what was drawn before is what it ever was."""

RATES: tuple[tuple[str, int], ...] = (
    ("api throttled", 60),
    ("api in trouble", 60),
    ("api lost", 40),
    ("api landed in silence", 60),
    ("api landed late", 60),
    ("watch breaks", 20),
    ("watch goes silent", 10),
    ("watch loses its place", 20),
    ("watch stays silent", 10),
    ("pool quota refused", 150),
    ("pool refused as invalid", 40),
    *(each for each in FAULT_POINTS if each[0] not in (*_NOT_OF_WORKERS, *HARDWARE_CHANCES)),
    ("worker lies", 80),
    ("worker dials twice", 200),
    ("crash behind a request", 15),
    ("attempt refused", 60),
    ("attempt fails", 250),
    ("attempt never ends", 100),
    ("log slow", 150),
    ("log lost", 60),
    ("log store fails", 100),
    *STRANGERS,
    *(each for each in FAULT_POINTS if each[0] in HARDWARE_CHANCES),
    ("attempt out of memory", 100),
    *MOVE_CHANCES,
)
"""Each kind of chance with its highest rate, in thousandths."""

RESTART_FAULTS: tuple[str, ...] = (
    "controller closes",
    "cloud lost while the controller is down",
    "machines lost while the controller is down",
    "controller stops behind the end of a slice",
    "end of a slice meets a new scheduler",
)
"""Faults of the time between two controllers, and at its edges: see :mod:`iriscw_sims.restarts`."""

HARDWARE_FAULTS: tuple[str, ...] = (
    "node clock jumps",
    "controllers' clock jumps",
    "node short of memory",
    "node short of disk",
    "node not ready",
    "worker out of memory",
    "scratch disk full",
    "video memory held",
)
"""Faults of clocks, and of what fills."""

API_FAULTS: tuple[str, ...] = (
    "api out of reach",
    "api takes no writes",
    "credentials expire",
    "right revoked",
    "pool replaced by a stranger",
)
"""What goes wrong for minutes with the API as a whole, and with names: see :mod:`iriscw_sims.outages` and
:mod:`iriscw_sims.strangers`."""

SUSPENDS = "user suspends a task"
LOST_AMID_A_MOVE = "worker of a moving attempt lost"
STOPS_AMID_A_MOVE = "controller stops while an attempt moves"

MOVE_FAULTS: tuple[str, ...] = (LOST_AMID_A_MOVE, STOPS_AMID_A_MOVE)
"""Faults that wait for an attempt on its way to being suspended, or back: see :mod:`iriscw_sims.moving`."""

FAULTS: tuple[str, ...] = (
    "controller crashes",
    "controller crashes between two steps",
    "controller stands still",
    "disk stalls",
    "disk full",
    "actor poisoned",
    "stream breaks",
    "stream half open upwards",
    "stream half open downwards",
    "worker cut off",
    "worker crashes",
    "worker starts anew",
    "worker hangs",
    "node dies",
    "node out of reach",
    "node cordoned for a while",
    "node interrupted",
    "node in triage",
    "api forgets its past",
    "pod removed from outside",
    "pool removed from outside",
    *RESTART_FAULTS,
    *HARDWARE_FAULTS,
    *API_FAULTS,
    SUSPENDS,
    *MOVE_FAULTS,
)
"""Faults that a plan puts at a moment."""


@attrs.frozen
class Fault:
    """One fault at one moment. ``pick`` chooses the victim and the size, in whatever way the fault needs."""

    at: int
    kind: str
    pick: int


@attrs.frozen
class PlannedJob:
    """A submission, and what else its user does. ``terminate_after`` is ns, None for never."""

    at: int
    key: str
    spec: JobSpec
    existing: Existing = Existing.ERROR
    terminate_after: int | None = None


@attrs.frozen
class Plan:
    """All that a run is made of, beside the seed."""

    seed: int
    groups: tuple[GroupConfig, ...]
    jobs: tuple[PlannedJob, ...]
    faults: tuple[Fault, ...]
    rates: tuple[tuple[str, int], ...]
    safety: int
    """How long faults happen; then everything is healed."""
    takeover_delay: int = 0
    task_length: tuple[int, int] | None = None
    """How long the code of a task runs, between these two, ns. Default: 1 to 15 s, of each third one up to 60 s."""

    @property
    def work_bound(self) -> int:
        """How long all tasks run at most, one after the other and with every retry, ns; 0 if they are short."""
        if self.task_length is None:
            return 0
        attempts = sum(job.spec.replicas * (1 + job.spec.max_retries_failure) for job in self.jobs)
        return self.task_length[1] * attempts

    def without(self, kind: str) -> Plan:
        """Return the plan without one kind of fault or chance."""
        faults = tuple(fault for fault in self.faults if fault.kind != kind)
        return attrs.evolve(self, faults=faults, rates=tuple(rate for rate in self.rates if rate[0] != kind))


def draw_plan(seed: int) -> Plan:
    """Draw everything from the seed."""
    rng = Random(f"{seed}:plan")
    groups = tuple(_group(rng, number) for number in range(rng.choice((1, 1, 2, 2, 3))))
    safety = rng.randrange(120, 360) * SECOND
    jobs = tuple(_job(rng, number, groups, safety) for number in range(rng.randrange(2, 9)))
    apart = (*RESTART_FAULTS, *HARDWARE_FAULTS, *API_FAULTS, SUSPENDS, *MOVE_FAULTS)
    kinds = [kind for kind in FAULTS if kind not in apart and rng.random() < 0.5]
    faults = []
    for kind in kinds:
        most = 3 if kind in ("actor poisoned", "controller crashes") else 4
        faults += [Fault(rng.randrange(safety), kind, rng.getrandbits(32)) for _ in range(rng.randrange(1, most))]
    faults += _some(RESTART_FAULTS, RESTART_SHARE, Random(f"{seed}:restarts"), safety)
    hardware = Random(f"{seed}:hardware")
    faults += _some(HARDWARE_FAULTS, HARDWARE_SHARE, hardware, safety)
    faults += _some(API_FAULTS, API_SHARE, Random(f"{seed}:api"), safety)
    strangers = Random(f"{seed}:strangers")
    rates = tuple(
        (name, stream.randrange(1, most + 1))
        for name, most in RATES
        if (name, most) not in (*STRANGERS, *MOVE_CHANCES)
        and (stream := hardware if name in HARDWARE_CHANCES else rng).random() < 0.5
    )
    rates += tuple(
        (each, strangers.randrange(1, most + 1)) for each, most in STRANGERS if strangers.random() < API_SHARE
    )
    moves, chances = _moves(Random(f"{seed}:moves"), safety)
    faults += moves
    rates += chances
    plan = Plan(
        seed,
        groups,
        jobs,
        tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.pick))),
        rates,
        safety,
        rng.choice((0, 0, 20 * SECOND)),
    )
    plan = _in_bands(plan, Random(f"{seed}:higher bands"))
    return _copied(plan, Random(f"{seed}:copies"))


def _copied(plan: Plan, rng: Random) -> Plan:
    """Have checkpoints be made of tasks that run, in some plans: likewise from a stream of its own."""
    if rng.random() >= COPY_SHARE:
        return plan
    jobs = []
    for job in plan.jobs:
        every, keep = rng.randrange(10, 25) * SECOND, rng.choice((1, 1, 2, 3))
        back, more = rng.random() < 0.8, rng.choice((1, 2, 4))
        if job.spec.group_by is not None or rng.random() < 0.2:
            jobs.append(job)
            continue
        spec = attrs.evolve(
            job.spec,
            checkpoint_every_ns=every,
            keep_checkpoints=keep,
            retry_from_checkpoint=back,
            max_retries_failure=job.spec.max_retries_failure + more,
        )
        jobs.append(attrs.evolve(job, spec=spec))
    if not any(job.spec.checkpoint_every_ns for job in jobs):
        return plan
    known = dict(plan.rates)
    drawn = [(name, rng.randrange(1, most + 1)) for name, most in MOVE_CHANCES if rng.random() < 0.5]
    more_rates = tuple(each for each in drawn if each[0] not in known)
    more_rates += () if "attempt fails" in known else (("attempt fails", rng.randrange(100, 400)),)
    length = (15 * SECOND, rng.choice((40, 80)) * SECOND)
    return attrs.evolve(plan, jobs=tuple(jobs), rates=(*plan.rates, *more_rates), task_length=length)


def _in_bands(plan: Plan, rng: Random) -> Plan:
    """Have jobs be of several bands, in some plans: from a stream of its own, so that the others are what they were.

    There are few slices, tasks run for longer, and jobs of the lowest band take all room at the beginning: those that
    come later have others leave.
    """
    if rng.random() >= BAND_SHARE:
        return plan
    jobs = []
    for job in plan.jobs:
        modes = (Preemption.KILL, Preemption.KILL, Preemption.FREEZE, Preemption.FREEZE, Preemption.NEVER)
        band, mode = rng.choice((Band.PRODUCTION, Band.INTERACTIVE, Band.BATCH, Band.BATCH)), rng.choice(modes)
        if mode is Preemption.FREEZE and job.spec.group_by is not None:
            mode = Preemption.KILL
        spec = attrs.evolve(job.spec, band=band, preemption=mode, timeout_ns=2 * job.spec.timeout_ns)
        jobs.append(attrs.evolve(job, spec=spec, at=job.at // rng.choice((1, 4))))
    most = rng.choice((1, 1, 2))
    groups = tuple(
        attrs.evolve(each, max_slices=min(most, each.max_slices), min_slices=min(most, each.min_slices))
        for each in plan.groups
    )
    for number, group in enumerate(groups):
        mode = rng.choice((Preemption.KILL, Preemption.FREEZE))
        jobs.insert(0, _crowd(group, number, mode, rng.choice((1, 2)), rng.randrange(10 * SECOND)))
    return attrs.evolve(plan, jobs=tuple(jobs), groups=groups, task_length=(5 * SECOND, rng.choice((20, 50)) * SECOND))


def _crowd(group: GroupConfig, number: int, mode: Preemption, parts: int, at: int) -> PlannedJob:
    """Return a job of the lowest band that takes all workers of a group, with ``parts`` tasks on each."""
    per = group.per_worker
    demand = Capacity(per.cpu_milli // parts, per.memory_bytes // parts, 0, per.gpu_count // parts, per.gpu_class)
    spec = JobSpec(
        name=f"crowd{number}",
        entrypoint=Entrypoint(EntrypointKind.COMMAND, "0" * 64),
        demand=demand,
        replicas=parts * group.num_vms * group.max_slices,
        band=Band.BATCH,
        max_retries_failure=2,
        preemption=mode,
    )
    return PlannedJob(at, f"crowd{number}", spec)


def _some(kinds: tuple[str, ...], share: float, rng: Random, safety: int) -> list[Fault]:
    """Draw faults of some kinds: from a stream of their own, so that a plan without them is what it ever was."""
    kinds = tuple(kind for kind in kinds if rng.random() < share)
    return [
        Fault(rng.randrange(safety), kind, rng.getrandbits(32)) for kind in kinds for _ in range(rng.randrange(1, 3))
    ]


def _moves(rng: Random, safety: int) -> tuple[list[Fault], tuple[tuple[str, int], ...]]:
    """Draw what users suspend, and what goes wrong with it."""
    if rng.random() >= MOVE_SHARE:
        return [], ()
    count = rng.randrange(4, MOST_MOVES + 1)
    asked = [Fault(rng.randrange(safety), SUSPENDS, rng.getrandbits(32)) for _ in range(count)]
    earlier = [each for each in MOVE_CHANCES if each[0] not in LATER_MOVE_CHANCES]
    later = [each for each in MOVE_CHANCES if each[0] in LATER_MOVE_CHANCES]
    chances = [(name, rng.randrange(1, most + 1)) for name, most in earlier if rng.random() < 0.5]
    faults = _some(MOVE_FAULTS, 0.5, rng, safety)
    chances += [(name, rng.randrange(1, most + 1)) for name, most in later if rng.random() < 0.5]
    return [*asked, *faults], tuple(chances)


def _group(rng: Random, number: int) -> GroupConfig:
    most = rng.randrange(1, 5)
    gpus = rng.choice((0, 0, 8))
    least = rng.choice((0, 0, 0, 1, 2))
    return GroupConfig(
        name=f"g{number}",
        per_worker=Capacity(4000, 16 * GIB, 0, gpus, "H100" if gpus else ""),
        attributes=Attributes({"zone": f"z{number % 2}", "device-type": "gpu" if gpus else "cpu"}),
        instance_type="gd-8xh100ib-i128" if gpus else "cd-gp-i64",
        num_vms=rng.choice((1, 1, 2, 3)),
        min_slices=min(least, most),
        max_slices=most,
        buffer_slices=rng.choice((0, 0, 0, 1)),
        priority=rng.choice((10, 20)),
        quota_pool=rng.choice(("", "shared")),
        compute_class=rng.choice(("default", "default", "spot")),
        timing=TIMING,
    )


def _job(rng: Random, number: int, groups: tuple[GroupConfig, ...], safety: int) -> PlannedJob:
    """Draw a job that some group can run, so that only faults and its user keep it from succeeding."""
    group = rng.choice(groups)
    per = group.per_worker
    demand = Capacity(
        rng.choice((500, 1000, 2000, 4000)),
        rng.choice((1, 4, 8, 16)) * GIB,
        gpu_count=rng.choice((0, per.gpu_count // 4, per.gpu_count)),
    )
    gang = rng.random() < 0.3
    replicas = rng.randrange(1, 1 + min(4, per.times(demand) * group.num_vms)) if gang else rng.randrange(1, 7)
    zone: list[Any] = [group.attributes.get("zone")]
    constraints = (Constraint("zone", Op.EQ, zone),) if rng.random() < 0.3 else ()
    spec = JobSpec(
        name=f"job{number if rng.random() < 0.8 else 0}",
        entrypoint=Entrypoint(EntrypointKind.COMMAND, "0" * 64),
        demand=demand,
        replicas=replicas,
        constraints=constraints,
        group_by="slice-id" if gang else None,
        timeout_ns=rng.choice((0, 0, 30 * SECOND)),
        scheduling_timeout_ns=rng.choice((0, 0, 0, 90 * SECOND)),
        max_retries_failure=rng.choice((0, 1, 2)),
        max_retries_preemption=rng.choice((0, 1, 2, 100)),
        max_task_failures=rng.choice((0, 0, 1)),
    )
    terminate_after = rng.randrange(5, 120) * SECOND if rng.random() < 0.15 else None
    at = rng.randrange(safety * 3 // 4)
    return PlannedJob(at, f"key{number}", spec, rng.choice(tuple(Existing)), terminate_after)
