"""What was decided about demand, told by group: made when somebody asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.fleet.model import GroupDemand, RoutedDemand
from iriscw.fleet.offers import GroupOffer, PlacedDemand
from iriscw.fleet.routing import Routing
from iriscw.fleet.sentences import takes, verdict

MAX_DEMANDS_TOLD = 20
"""Of one group: more than anybody reads, and the answer stays small with a thousand kinds of tasks."""

MAX_BEFORE_TOLD = 5
"""Groups that were tried before, of which is said why."""


def explain_demand(
    group: str, routing: Routing, offers: Mapping[str, GroupOffer], since: Mapping[str, int]
) -> GroupDemand:
    """Say which demand was routed to a group, and why the groups before it did not take that.

    Args:
        group: one of ``offers``.
        routing: of all demand.
        offers: of all groups, as the demand was routed by them.
        since: since when each demand is there, by its id: wall-clock ns.
    """
    offer = offers[group]
    able = [each for each in routing.placed if group in each.order or group in each.left_out]
    able.sort(key=lambda each: not takes(each, offer))
    told = tuple(_told(each, offer, routing, offers, since) for each in able[:MAX_DEMANDS_TOLD])
    return GroupDemand(group, sum(takes(each, offer) for each in able), len(able), told)


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
