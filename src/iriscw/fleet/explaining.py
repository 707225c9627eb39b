"""What was decided about demand, told by group: made when somebody asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iriscw.fleet.model import GroupDemand, RoutedDemand
from iriscw.fleet.offers import GroupOffer, PlacedDemand
from iriscw.fleet.routing import Routing
from iriscw.fleet.sentences import takes, verdict

MAX_DEMANDS_TOLD = 20
"""Of one group: more than anybody reads, and the answer stays small with a thousand kinds of tasks."""

MAX_BEFORE_TOLD = 5
"""Groups that were tried before, of which is said why."""


def explain_demand(
    groups: Sequence[str], routing: Routing, offers: Mapping[str, GroupOffer], since: Mapping[str, int]
) -> tuple[GroupDemand, ...]:
    """Say which demand was routed to each group, and why the groups before it did not take that.

    Args:
        groups: of ``offers``.
        routing: of all demand.
        offers: of all groups, as the demand was routed by them.
        since: since when each demand is there, by its id: wall-clock ns.
    """
    taken: dict[str, list[PlacedDemand]] = {group: [] for group in groups}
    passed: dict[str, list[PlacedDemand]] = {group: [] for group in groups}
    tasks = dict.fromkeys(groups, 0)
    for placed in routing.placed:
        takers: dict[str, int] = {}
        for (group, _), count in placed.shares.items():
            takers[group] = takers.get(group, 0) + count
        for group in (*placed.order, *placed.left_out):
            if group in tasks:
                tasks[group] += takers.get(group, 0)
                (taken if group in takers else passed)[group].append(placed)
    result = []
    for group in groups:
        told = [*taken[group], *passed[group]][:MAX_DEMANDS_TOLD]
        demands = tuple(_told(each, offers[group], routing, offers, since) for each in told)
        result.append(GroupDemand(group, tasks[group], len(taken[group]) + len(passed[group]), demands))
    return tuple(result)


def _told(
    placed: PlacedDemand,
    offer: GroupOffer,
    routing: Routing,
    offers: Mapping[str, GroupOffer],
    since: Mapping[str, int],
) -> RoutedDemand:
    entry, group = placed.entry, offer.config.name
    place = placed.order.index(group) if group in placed.order else len(placed.order)
    before = placed.order[:place][:MAX_BEFORE_TOLD]
    return RoutedDemand(
        demand_id=entry.demand_id,
        each=entry.demand,
        tasks=entry.count,
        takes=takes(placed, offer),
        why=verdict(placed, offer, routing.asked[group]),
        before=tuple((name, verdict(placed, offers[name], routing.asked[name])) for name in before),
        since=since.get(entry.demand_id, 0),
    )
