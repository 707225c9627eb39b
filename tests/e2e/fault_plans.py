"""What goes wrong on a CoreWeave cluster, when, and what is asked of it meanwhile: drawn from a number.

A plan has three parts. *Moods*: how often which misfortune of :mod:`iriscw_sims.coreweave.fault_points` comes true, for
everybody, the controller's own node and pod among them. *Strikes*: what is done to the cluster at a moment: a process
killed, a server, a node with its disk. *Jobs*: what is submitted, when, and how it must end. The moments are those of a
real clock, so that two runs of a plan differ in detail; what is drawn does not.
"""

from __future__ import annotations

from random import Random

import attrs

from iriscw.jobs.model import JobState
from iriscw_sims.coreweave.fault_points import FAULT_POINTS

WINDOW_S = 6.0
"""For how long things go wrong; then all is repaired."""

MOOD_SHARE = 0.25
"""How many of the moods a plan has."""

CONTROLLER_KILLED = "the controller's process is killed"
DISK_LOST = "the controller's node is lost, and its disk"
SERVER_STRIKES = ("the API server is killed", "etcd is killed", "history is compacted")
STRIKES = (
    "the controller's process stands still",
    "the controller's pod is deleted",
    "the controller's node is cut off",
    "the Lease is deleted",
    "the Lease is made anew",
    "a worker's process is killed",
    "a worker's pod is evicted",
    "a worker's pod is deleted",
    "a node dies",
    "a node is cut off",
    "a node is interrupted",
    "a node goes into triage",
    "a node is cordoned",
    "a pool is deleted by somebody",
    "a pool is lost",
)
"""What a plan may do beside killing the controller, which all do."""

OTHER_STRIKES = (2, 4)
"""How many of :data:`STRIKES` a plan has, at least and at most."""

SERVER_SHARE = 0.4
DISK_SHARE = 0.3


TESTS = "tests/e2e/test_faults_coreweave.py"
PYTEST = ".venv/bin/python -m pytest -n 0 -o faulthandler_timeout=900 -m 'slow or soak'"


@attrs.frozen
class Strike:
    """Something that is done to the cluster.

    Attributes:
        at_s: When, from the plan's beginning.
        kind: What.
        pick: Chooses whom it hits, and for how long.
    """

    at_s: float
    kind: str
    pick: int


@attrs.frozen
class PlannedJob:
    """A job that is submitted.

    Attributes:
        at_s: When, from the plan's beginning.
        ends: How it must end.
        group: The scale group that it runs on.
        replicas: Its tasks.
        seconds: What each of them takes.
    """

    at_s: float
    ends: JobState
    group: str
    replicas: int
    seconds: float


@attrs.frozen
class FaultPlan:
    """All of it."""

    seed: int
    moods: tuple[tuple[str, float], ...]
    strikes: tuple[Strike, ...]
    jobs: tuple[PlannedJob, ...]

    @property
    def disk_lost(self) -> bool:
        """Whether what was only on the controller's disk is gone."""
        return any(each.kind == DISK_LOST for each in self.strikes)

    @property
    def text(self) -> str:
        """For people: what it is, and how to run it again."""
        moods = ", ".join(f"{name} {rate:g}" for name, rate in self.moods) or "none"
        lines = [
            f"plan {self.seed}; moods: {moods}",
            *(f"  {each.at_s:5.2f} s  {each.kind} ({each.pick})" for each in self.strikes),
            *(
                f"  {each.at_s:5.2f} s  job: {each.replicas} tasks of {each.seconds:g} s on {each.group},"
                f" ends {each.ends.name}"
                for each in self.jobs
            ),
            f"again: {PYTEST} -k plan{self.seed}_ {TESTS}",
        ]
        return "\n".join(lines)


def draw_plan(seed: int) -> FaultPlan:
    """Draw everything from the seed."""
    rng = Random(f"{seed}:coreweave faults")
    moods = tuple(
        (name, round(2 * rng.randrange(1, most + 1) / 1000, 3))
        for name, most in FAULT_POINTS
        if rng.random() < MOOD_SHARE
    )
    kinds = [CONTROLLER_KILLED] * rng.choice((1, 1, 2))
    kinds += rng.sample(STRIKES, rng.randint(*OTHER_STRIKES))
    kinds += [rng.choice(SERVER_STRIKES)] if rng.random() < SERVER_SHARE else []
    kinds += [DISK_LOST] if rng.random() < DISK_SHARE else []
    strikes = [Strike(_moment(rng, WINDOW_S), kind, rng.getrandbits(32)) for kind in kinds]
    ends = [JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.SUCCEEDED]
    ends += rng.choices((JobState.SUCCEEDED, JobState.FAILED), k=rng.randrange(3))
    jobs = [_job(rng, each) for each in ends]
    return FaultPlan(
        seed,
        moods,
        tuple(sorted(strikes, key=lambda each: each.at_s)),
        tuple(sorted(jobs, key=lambda each: each.at_s)),
    )


def _job(rng: Random, ends: JobState) -> PlannedJob:
    group = rng.choice(("single", "single", "single", "pair"))
    seconds = round(rng.uniform(0.2, 4.0), 1)
    return PlannedJob(_moment(rng, WINDOW_S * 0.7), ends, group, rng.choice((1, 1, 2)), seconds)


def _moment(rng: Random, most_s: float) -> float:
    return round(rng.uniform(0.0, most_s), 2)
