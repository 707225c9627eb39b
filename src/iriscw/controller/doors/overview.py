"""Answers about the whole cluster: slices, scale groups, counts. A part of ControllerService.

The fleet answers from memory, with all its rows at once; pages are cut here, by name, so that a page begins where
the last one ended even if rows came or went in between.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import attrs

from iriscw._version import __version__
from iriscw.cloud.model import Capacity
from iriscw.cloud.wire import amount, attributes
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.listing import page_size
from iriscw.controller.doors.rules import CLUSTER_RULES
from iriscw.controller.doors.streams import Switchboard
from iriscw.fleet.messages import DescribeFleet, ExplainDemand, ReopenGroup
from iriscw.fleet.model import FleetDescription, GroupConfig, GroupDemand, SliceRow
from iriscw.fleet.wire import pool_status, slice_status
from iriscw.jobs.messages import MAX_PAGE, JobPage, ListJobs, SchedulerFigures, SchedulerStatistics
from iriscw.jobs.scheduling.messages import ExplainDemandJobs
from iriscw.journal.port import Journal, JournalStatus
from iriscw.proto.iriscw import v1
from iriscw.rpc.rules import ServicePart
from iriscw.runtime.vocabulary import MILLISECOND

PROTOCOL_VERSION = 1

_DEGRADED = {
    JournalStatus.READY: "",
    JournalStatus.STALLED: "journal stalled: its disk is slow",
    JournalStatus.FULL: "journal stalled: its disk is full",
    JournalStatus.LOST: "journal lost: its disk failed",
}


@attrs.frozen
class ClusterFacts:
    """What does not change while a controller lives."""

    name: str
    platform: str
    durability: str
    started_wall_ns: int
    groups: Mapping[str, GroupConfig]


def degraded(journal: Journal) -> str:
    """Say why no new work is taken; empty if it is. Names no paths: strangers may ask for it."""
    return _DEGRADED[journal.status]


class Overview:
    """See the module.

    Args:
        access: asks the actors.
        facts: what does not change.
        switchboard: the connected workers.
        journal: says whether work is taken.
    """

    def __init__(self, access: Access, facts: ClusterFacts, switchboard: Switchboard, journal: Journal) -> None:
        self._access = access
        self._facts = facts
        self._switchboard = switchboard
        self._journal = journal

    async def fleet(self) -> FleetDescription:
        """Ask the fleet for its rows."""
        found: FleetDescription = await self._access.ask("/fleet", DescribeFleet())
        return found

    async def scheduler(self, workers: Iterable[str] = ()) -> SchedulerStatistics:
        """Ask the scheduler for its figures, and those of some workers."""
        found: SchedulerStatistics = await self._access.ask("/jobs/scheduler", SchedulerFigures(tuple(workers)))
        return found

    async def slices(self, after: str, size: int, group: str) -> tuple[list[v1.SliceStatus], str]:
        """Return a page of slices and the token of the next."""
        rows = [
            row for row in (await self.fleet()).slices if row.slice_id > after and (not group or row.group == group)
        ]
        rows.sort(key=lambda row: row.slice_id)
        figures = await self.scheduler(worker_id for row in rows[:size] for worker_id in row.workers)
        committed, attempts = dict(figures.committed), dict(figures.attempts)
        page = [slice_status(row, self._workers(row, committed, attempts)) for row in rows[:size]]
        return page, rows[size - 1].slice_id if len(rows) > size else ""

    def _workers(
        self, row: SliceRow, committed: Mapping[str, Capacity], attempts: Mapping[str, int]
    ) -> list[v1.WorkerStatus]:
        workers = []
        for worker_id in row.workers:
            status = v1.WorkerStatus(
                worker_id=worker_id,
                committed=amount(committed.get(worker_id, Capacity())),
                live_attempts=attempts.get(worker_id, 0),
            )
            connection = self._switchboard.find(worker_id)
            if connection is not None:
                info = connection.info
                status.incarnation, status.address, status.connected = info.incarnation, info.address, True
                status.capacity = amount(info.capacity)
                status.attributes = attributes(info.attributes)
            workers.append(status)
        return workers

    async def pools(self, after: str, size: int) -> tuple[list[v1.PoolStatus], str]:
        """Return a page of scale groups and the token of the next."""
        fleet = await self.fleet()
        rows = sorted((row for row in fleet.groups if row.group > after), key=lambda row: row.group)
        asked = ExplainDemand(tuple(row.group for row in rows[:size]))
        told: tuple[GroupDemand, ...] = await self._access.ask("/fleet", asked)
        demand = {each.group: each for each in told}
        waiting = dict.fromkeys(each.demand_id for group in told for each in group.told)
        whose: tuple[tuple[str, tuple[str, ...]], ...] = ()
        if waiting:
            whose = await self._access.ask("/jobs/scheduler", ExplainDemandJobs(tuple(waiting)))
        page = [
            pool_status(row, self._facts.groups.get(row.group), fleet.slices, demand.get(row.group), dict(whose))
            for row in rows[:size]
        ]
        return page, rows[size - 1].group if len(rows) > size else ""

    async def cluster(self, version: str) -> v1.ClusterStatus:
        """Describe the controller."""
        counts: collections.Counter[str] = collections.Counter()
        token = ""
        while True:
            page: JobPage = await self._access.ask("/jobs", ListJobs(token, MAX_PAGE))
            counts.update(row.state.name for row in page.rows)
            token = page.next
            if not token:
                break
        return v1.ClusterStatus(
            name=self._facts.name,
            iriscw_version=version,
            protocol_version=PROTOCOL_VERSION,
            started_at_ms=self._facts.started_wall_ns // MILLISECOND,
            platform=self._facts.platform,
            durability=self._facts.durability,
            degraded=degraded(self._journal),
            jobs=[v1.JobCount(state=v1.JobState[name], count=count) for name, count in sorted(counts.items())],
            workers_connected=len(self._switchboard),
            slices=len((await self.fleet()).slices),
        )


class ClusterDoor(ServicePart, v1.ControllerServiceBase):
    """The part of ControllerService that is about the cluster.

    Args:
        access: asks on behalf of callers.
        overview: answers.
    """

    method_rules = CLUSTER_RULES

    def __init__(self, access: Access, overview: Overview) -> None:
        self._access = access
        self._overview = overview

    async def list_slices(self, message: v1.ListSlicesRequest) -> v1.ListSlicesResponse:
        """Return a page of slices by id."""
        self._access.admin()
        size = page_size(message.page_size)
        slices, token = await self._overview.slices(message.page_token, size, message.scale_group)
        return v1.ListSlicesResponse(slices=slices, next_page_token=token)

    async def list_pools(self, message: v1.ListPoolsRequest) -> v1.ListPoolsResponse:
        """Return a page of scale groups by name."""
        self._access.admin()
        pools, token = await self._overview.pools(message.page_token, page_size(message.page_size))
        return v1.ListPoolsResponse(pools=pools, next_page_token=token)

    async def reopen_pool(self, message: v1.ReopenPoolRequest) -> v1.ReopenPoolResponse:
        """Have a closed scale group try again."""
        self._access.admin()
        await self._access.ask("/fleet", ReopenGroup(message.scale_group))
        return v1.ReopenPoolResponse()

    async def get_cluster_status(self, message: v1.GetClusterStatusRequest) -> v1.ClusterStatus:
        """Describe the controller."""
        self._access.admin()
        return await self._overview.cluster(__version__)
