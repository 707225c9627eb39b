"""What the scheduler knows: workers, waiting jobs, who was told what. Nothing of it is durable; jobs report it anew."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import Cordon, DemandEntry
from iriscw.jobs.job.ledger import Place
from iriscw.jobs.messages import SchedulerStatistics
from iriscw.jobs.scheduling.placement import Commitment, Host, Inventory
from iriscw.jobs.scheduling.preempting import Claims
from iriscw.jobs.scheduling.queues import Queues, Shape, Waiting, demand_name
from iriscw.jobs.scheduling.resuming import Returns
from iriscw.runtime.vocabulary import MILLISECOND

DEMAND_INTERVAL = 100 * MILLISECOND
"""The least time between two different demands: making one takes time in proportion to the shapes that wait."""


@attrs.define(eq=False)
class Scheduler:
    """What the scheduler knows."""

    syncing: bool = True
    known: bool = False
    """Whether ``/jobs`` has said which jobs there are."""
    unasked: list[str] = attrs.field(factory=list)
    asked: dict[str, None] = attrs.field(factory=dict)
    jobs: dict[str, Waiting] = attrs.field(factory=dict)
    inventory: Inventory = attrs.field(factory=Inventory)
    queues: Queues = attrs.field(factory=Queues)
    returns: Returns = attrs.field(factory=Returns)
    preempts: bool = True
    """Whether attempts give way to work of higher bands at all."""
    claims: Claims = attrs.field(factory=Claims)
    older: dict[Place, Host] = attrs.field(factory=dict)
    """Incarnations that are gone and still hold room of attempts that are not over."""
    absent: dict[Place, dict[str, Commitment]] = attrs.field(factory=dict)
    absent_of: dict[str, Place] = attrs.field(factory=dict)
    cordons: dict[str, Cordon] = attrs.field(factory=dict)
    """Those not answered yet."""
    links: dict[Place, None] = attrs.field(factory=dict)
    """Links that wait for this scheduler to know all jobs, or for their turn."""
    gone: dict[Place, None] = attrs.field(factory=dict)
    """Workers whose slice is gone, and who are to be taken out when their turn comes."""
    unlinked: dict[str, None] = attrs.field(factory=dict)
    """Workers whose links are to be had again, when their turn comes."""
    active: dict[str, None] = attrs.field(factory=dict)
    """Workers whose number of attempts changed since the fleet was told."""
    passing: bool = False
    demand_changed: bool = False
    told: tuple[DemandEntry, ...] | None = None
    """The demand that the fleet was told; None: nothing since we began, and it may remember what another one told."""
    told_at: int = -DEMAND_INTERVAL
    routed: dict[str, str] = attrs.field(factory=dict)
    """What the fleet does about each demand."""
    never: dict[str, None] = attrs.field(factory=dict)
    """Those of them that no group can ever run."""
    tokens: int = 0
    placements: int = 0
    passes: int = 0


def statistics(state: Scheduler, workers: Iterable[str] = ()) -> SchedulerStatistics:
    """Return the figures of a scheduler, and of these workers, as far as it knows them."""
    inventory = state.inventory
    wanted = [(worker_id, host) for worker_id in workers if (host := inventory.hosts.get(worker_id)) is not None]
    return SchedulerStatistics(
        syncing=state.syncing,
        workers=len(inventory.hosts),
        placeable_workers=sum(host.placeable for host in inventory.hosts.values()),
        jobs=len(state.jobs),
        pending_tasks=sum(job.count for job in state.jobs.values()),
        live_attempts=sum(len(job.live) for job in state.jobs.values()),
        placements=state.placements,
        passes=state.passes,
        committed=tuple(
            (worker_id, _sum(each.demand for each in host.commitments.values())) for worker_id, host in wanted
        ),
        attempts=tuple((worker_id, len(host.commitments)) for worker_id, host in wanted),
        returning=len(state.returns.waiting),
        preempted=state.claims.asked,
    )


def host_of(state: Scheduler, place: Place) -> Host | None:
    """Return a worker incarnation, whether it is the present one or an older one that holds room still."""
    host = state.inventory.hosts.get(place[0])
    if host is not None and host.info.incarnation == place[1]:
        return host
    return state.older.get(place)


def demand_id(shape: Shape) -> str:
    """Name what a shape asks of the fleet: the same for the same demand, across restarts."""
    if not shape.demand_id:
        shape.demand_id = demand_name(shape.key)
    return shape.demand_id


def _sum(demands: Iterable[Capacity]) -> Capacity:
    total = Capacity()
    for each in demands:
        total = total.plus(each)
    return total
