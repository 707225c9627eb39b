"""Suspended attempts that wait for a worker: on the machine that has their checkpoint, or where its repository is.

Where only a repository has the checkpoint, each machine whose agent has that repository will do. Which have is told by
those who know the machines, and all of it again at each change; what they have not told yet, no machine has.

They are placed before the tasks of their band that wait: those have other workers to go to. One for which no worker
there has room costs nothing until one has; nor is one brought back where a task of a higher band waits that could have
it leave again (:mod:`iriscw.jobs.scheduling.preempting`). The fleet is told of its demand, too, as far as that may
help: if there is room for it on another machine, further workers would come there as well, and are not asked for.

What waits is known from the jobs, and forgotten with the scheduler: jobs report it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from iriscw.fleet.messages import DemandEntry
from iriscw.jobs.model import Band
from iriscw.jobs.scheduling import preempting
from iriscw.jobs.scheduling.placement import Commitment, Host, PlacementWish
from iriscw.jobs.scheduling.queues import Waiting, demand_name
from iriscw.jobs.suspension.messages import SuspendedAttempt, SuspendedPlaced

if TYPE_CHECKING:
    from iriscw.jobs.scheduling.state import Scheduler


@attrs.frozen
class Return:
    """A suspended attempt that waits, and its job."""

    job_id: str
    attempt: SuspendedAttempt


class Returns:
    """All suspended attempts that wait, in the order in which they came."""

    def __init__(self) -> None:
        self.waiting: dict[str, Return] = {}
        """By uid."""
        self.due: dict[str, None] = {}
        """Those for which a worker is looked for at the next pass."""
        self.by_place: dict[str, dict[str, None]] = {}
        """By the machine, or the URL of the repository."""
        self.repositories: dict[str, str] = {}
        """The URL of each machine that has one."""
        self.sharing: dict[str, dict[str, None]] = {}
        """The machines of each URL."""
        self.by_job: dict[str, dict[str, None]] = {}

    def add(self, job_id: str, attempt: SuspendedAttempt) -> None:
        """Have one wait."""
        self.drop(attempt.uid)
        self.waiting[attempt.uid] = Return(job_id, attempt)
        self.due[attempt.uid] = None
        self.by_place.setdefault(_place_of(attempt), {})[attempt.uid] = None
        self.by_job.setdefault(job_id, {})[attempt.uid] = None

    def drop(self, uid: str) -> None:
        """Have one wait no more, if it does."""
        known = self.waiting.pop(uid, None)
        if known is None:
            return
        self.due.pop(uid, None)
        for index, key in ((self.by_place, _place_of(known.attempt)), (self.by_job, known.job_id)):
            del index[key][uid]
            if not index[key]:
                del index[key]

    def drop_job(self, job_id: str) -> None:
        """Have none of a job wait."""
        for uid in [*self.by_job.get(job_id, ())]:
            self.drop(uid)

    def wake(self, node: str) -> None:
        """A worker of this machine may have room."""
        self.due.update(self.by_place.get(node, ()))
        repository = self.repositories.get(node)
        if repository:
            self.due.update(self.by_place.get(repository, ()))

    def share(self, nodes: tuple[tuple[str, str], ...]) -> None:
        """Take note of which machine has which repository, and look for workers where there may be more now."""
        before, self.repositories, self.sharing = self.repositories, dict(nodes), {}
        for node, repository in nodes:
            self.sharing.setdefault(repository, {})[node] = None
        for node, repository in nodes:
            if before.get(node) != repository:
                self.due.update(self.by_place.get(repository, ()))

    def wake_job(self, job_id: str) -> None:
        """A job has reported all that it has: workers may be looked for again."""
        self.due.update(self.by_job.get(job_id, ()))


def place_some(state: Scheduler, band: Band, budget: int, wall_ns: int) -> Iterator[tuple[str, SuspendedPlaced]]:
    """Find workers for what waits of a band, ``budget`` looks at most; give jobs and what each is told."""
    for uid in list(state.returns.due):
        known = state.returns.waiting[uid]
        job = state.jobs.get(known.job_id)
        if job is not None and job.spec is not None and job.spec.band is not band:
            continue
        if budget <= 0:
            return
        budget -= 1
        del state.returns.due[uid]
        if job is None:
            state.returns.drop(uid)
            continue
        if job.reporting or job.spec is None:
            continue  # the end of the report makes it due again: until then its old room may not be given back
        if uid in state.inventory.where or uid in state.absent_of:
            state.returns.drop(uid)  # its job was given room for it before it asked once more, and takes that
            continue
        host = _find(state, known.attempt, wish_of(job), band)
        if host is None:
            continue
        state.returns.drop(uid)
        state.inventory.commit(
            host, uid, Commitment(job.job_id, known.attempt.index, job.spec.demand, placed_wall_ns=wall_ns)
        )
        job.live[uid] = None
        state.active[host.info.worker_id] = None
        state.placements += 1
        info = host.info
        yield job.job_id, SuspendedPlaced(known.attempt.index, uid, info.worker_id, info.incarnation, info.node)


def wish_of(job: Waiting) -> PlacementWish:
    """Return what a suspended attempt of a job wants of a worker: its own Python it brings along."""
    assert job.spec is not None
    return PlacementWish(job.spec.demand, job.spec.constraints)


def _find(state: Scheduler, attempt: SuspendedAttempt, wish: PlacementWish, band: Band) -> Host | None:
    nodes = state.returns.sharing.get(attempt.repository, {}) if attempt.repository else (attempt.node,)
    for host in _hosts(state, [node for node in nodes if node not in attempt.doubted]):
        if host.takes(wish.demand) and all(each.satisfied(host.info.attributes) for each in wish.required()):
            if not preempting.held(state, host, band):
                return host
            state.claims.held[attempt.uid] = None
    return None


def _hosts(state: Scheduler, nodes: Iterable[str]) -> Iterator[Host]:
    """Yield the workers of some machines. Of one that is doubted its job says when it may be tried again."""
    for node in nodes:
        yield from state.inventory.nodes.get(node, {}).values()


def _place_of(attempt: SuspendedAttempt) -> str:
    return attempt.repository or attempt.node


def demand(state: Scheduler) -> Iterator[DemandEntry]:
    """Yield what waits and may be helped by further workers."""
    counts: dict[tuple[Band, PlacementWish], int] = {}
    for each in state.returns.waiting.values():
        job = state.jobs.get(each.job_id)
        if job is not None and job.spec is not None:
            shape = (job.spec.band, wish_of(job))
            counts[shape] = counts.get(shape, 0) + 1
    for (band, wish), count in counts.items():
        if state.inventory.find(wish, state.inventory.pools_for(wish)) is None:
            name = demand_name(("suspended", band, wish))
            yield DemandEntry(name, wish.demand, wish.constraints, count, 1, int(band))
