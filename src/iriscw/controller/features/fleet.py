"""The feature ``fleet``: slices and their pods, what clients ask of the cluster, and workers that are missed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.controller.cloud import CloudBinding
from iriscw.controller.doors.figures import COUNTER, GAUGE, counter, gauge, labelled
from iriscw.controller.doors.overview import ClusterDoor, ClusterFacts, Overview
from iriscw.controller.feature import Background, Feature, FeatureContext, Parts
from iriscw.controller.unregistered import Unregistered
from iriscw.fleet.actor import FLEET_CAPACITY, fleet_behavior
from iriscw.fleet.model import FleetDescription
from iriscw.fleet.policy import Policy, RoutingPolicy
from iriscw.runtime import ChildSpec
from iriscw.runtime.vocabulary import SECOND

if TYPE_CHECKING:
    from iriscw.cloud.kube.notices import NoticeStatistics
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.server import Service


class FleetParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext, policy: Policy, routing: RoutingPolicy) -> None:
        self._context = context
        self._policy, self._routing = policy, routing
        self._notices = context.platform.notices
        self.overview = Overview(context.access, _facts(context), context.workers, context.journal)
        self._door = ClusterDoor(context.access, self.overview)
        waits_s = min((group.timing.init_timeout for group in context.fleet.groups), default=SECOND) / SECOND
        drivers = context.platform.drivers
        self._missed = Unregistered(context.access, context.workers, drivers, lambda: self.fleet, waits_s)
        self.fleet: FleetDescription | None = None
        """As it was last sampled."""

    def children(self) -> tuple[ChildSpec, ...]:
        """Return ``/fleet``."""
        binding = CloudBinding(self._context.platform.drivers)
        effects, sessions = binding.effects(), binding.sessions()
        behavior = fleet_behavior(
            self._context.fleet, policy=self._policy, routing=self._routing, effects=effects, sessions=sessions
        )
        return (ChildSpec("fleet", behavior, capacity=FLEET_CAPACITY),)

    def services(self) -> tuple[Service, ...]:
        """Return what clients ask of the cluster."""
        return (self._door,)

    def background(self) -> tuple[Background, ...]:
        """Look after workers that do not register."""
        return (self._missed.run,)

    async def sample(self) -> None:
        """Ask for all slices."""
        self.fleet = await self.overview.fleet()

    def notice(self, event: Any) -> None:
        """Tell on pools what becomes of their slices."""
        if self._notices is not None:
            self._notices.notice(event)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {"fleet": self.fleet, "notices": None if self._notices is None else self._notices.statistics()}

    def figures(self) -> Iterator[Family]:
        """Yield slices, and what was told on their pools."""
        if self._notices is not None:
            yield from notice_figures(self._notices.statistics())
        if self.fleet is not None:
            yield from fleet_figures(self.fleet)


def _facts(context: FeatureContext) -> ClusterFacts:
    return ClusterFacts(
        name=context.config.name,
        platform=context.config.platform.name,
        durability=context.config.controller.durability.value,
        started_wall_ns=time.time_ns(),
        groups={group.name: group for group in context.fleet.groups},
    )


def notice_figures(notices: NoticeStatistics) -> Iterator[Family]:
    """Yield the families of what is told on pools."""
    text = "What was to be told on node pools as Events of Kubernetes, by what became of it."
    outcomes = [((outcome,), getattr(notices, outcome)) for outcome in ("told", "dropped", "lost")]
    yield labelled(COUNTER, "iriscw_pool_notices", text, ("outcome",), outcomes)
    yield gauge("iriscw_pool_notices_waiting", "Events that wait to be written.", notices.waiting)


def fleet_figures(fleet: FleetDescription) -> Iterator[Family]:
    """Yield the families of slices."""
    counts: dict[tuple[str, ...], int] = {}
    for row in fleet.slices:
        key = (row.group, row.state.value)
        counts[key] = counts.get(key, 0) + 1
    text = "Slices by scale group and state."
    yield labelled(GAUGE, "iriscw_slices", text, ("group", "state"), sorted(counts.items()))
    wanted = [((group.group,), group.wanted) for group in fleet.groups]
    yield labelled(GAUGE, "iriscw_slices_wanted", "Slices that demand was routed to.", ("group",), wanted)
    text = "Times that the policy of a scale group failed, and the default one decided."
    failures = [((group.group,), group.policy_failures) for group in fleet.groups]
    yield labelled(COUNTER, "iriscw_policy_failures", text, ("group",), failures)
    text = "Times that the routing policy failed, and the default one decided."
    yield counter("iriscw_routing_failures", text, fleet.routing_failures)


def fleet_feature(policy: Policy, routing: RoutingPolicy) -> Feature:
    """Return the feature.

    Args:
        policy: says how many slices each scale group should have.
        routing: says which groups demand may go to.
    """
    return Feature(name="fleet", open=lambda context: FleetParts(context, policy, routing))
