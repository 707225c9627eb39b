"""What is said of demand: where it goes, what it waits for, and why a group does not take it. Pure.

Two kinds of sentences are made. Those of a routing are told to the scheduler each time, and stay the same for as long
as nothing changes (INV-J7). A verdict is made of one group and one demand when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.fleet.newest import Doubt
from iriscw.fleet.offers import GroupOffer, PlacedDemand, Round, spreads
from iriscw.fleet.pacing import time_of_day
from iriscw.runtime.vocabulary import SECOND

MAX_GROUPS_NAMED = 3
"""Groups that a sentence for users names."""

LONG_BOOT = 120 * SECOND
"""A boot from this on is told in minutes."""

NO_DOUBT: Mapping[str, Doubt] = {}


def impossible(misfits: Mapping[str, str], *, final: bool) -> str:
    """Say what each group lacks; what is not ``final`` a worker may bring."""
    if not misfits:
        return "there is no scale group"
    named = [f"{name}: {why}" for name, why in sorted(misfits.items())[:MAX_GROUPS_NAMED]]
    more = len(misfits) - len(named)
    why = "; ".join(named) + (f"; and {more} more" if more else "")
    return f"no scale group can ever run this: {why}" if final else f"no scale group is known to run this: {why}"


def sentence(placed: PlacedDemand, offers: Mapping[str, GroupOffer]) -> str:
    """Say what is done about some demand, and why the rest of it finds no room."""
    parts = []
    for (name, round_), count in placed.shares.items():
        tasks = f"{count} task{'s' if count != 1 else ''}"
        match round_:
            case Round.IDLE:
                parts.append(f"{tasks} for idle slices of {name!r}, which are kept for the rest of the gang")
            case Round.ABSORBING:
                parts.append(f"{tasks} for slices of {name!r} that are on their way{_ready(offers[name])}")
            case Round.ROOM:
                parts.append(f"{tasks} for new slices of {name!r}{_boots(offers[name])}")
            case Round.WAITING:
                parts.append(f"{tasks} for slices of {name!r} that wait for machines: {offers[name].reason}")
            case Round.RENEWAL:
                why = offers[name].reason
                parts.append(
                    f"{tasks} for new slices of {name!r} in the place of idle ones that cannot run this: {why}"
                )
    if placed.left:
        named = placed.order[:MAX_GROUPS_NAMED]
        closed = [_takes_none(offers[name], placed.doubts.get(name)) for name in named]
        closed += [
            f"the routing policy leaves out {name!r}" for name in placed.left_out[: MAX_GROUPS_NAMED - len(named)]
        ]
        parts.append(f"no group takes {placed.left} more now: " + ", ".join(closed))
    return "; ".join(parts)


def _takes_none(offer: GroupOffer, doubt: Doubt | None) -> str:
    name = offer.config.name
    if doubt is not None and offer.availability.accepts:
        if doubt.due:
            return f"the newest slice of {name!r} cannot run this, and one more is tried first"
        at = time_of_day(doubt.next_at, minutes=offer.boot_estimate >= LONG_BOOT)
        return f"the newest slice of {name!r} cannot run this, and the next one is tried at {at} UTC"
    return f"{name!r} is {offer.availability.value}" + (f" ({offer.reason})" if offer.reason else "")


def _ready(offer: GroupOffer) -> str:
    """Say when the first slice on its way should be ready: by the clock, so that the sentence stays the same."""
    if offer.expected_at is None:
        return ""
    at = time_of_day(offer.expected_at, minutes=offer.boot_estimate >= LONG_BOOT)
    return f", the first ready at about {at} UTC"


def _boots(offer: GroupOffer) -> str:
    """Say how long boots take."""
    if not offer.boot_estimate:
        return ""
    if offer.boot_estimate >= LONG_BOOT:
        return f", which take about {-(-offer.boot_estimate // (60 * SECOND))} min to boot"
    return f", which take about {max(1, round(offer.boot_estimate / SECOND))} s to boot"


# Verdicts


def takes(placed: PlacedDemand, offer: GroupOffer) -> int:
    """Return how many tasks of some demand were routed to a group."""
    return sum(count for (name, _), count in placed.shares.items() if name == offer.config.name)


def verdict(placed: PlacedDemand, offer: GroupOffer, asked: int) -> str:
    """Say of one group why it takes some demand, and why no more of it.

    Args:
        placed: the demand.
        offer: of the group, as it was when the demand was routed.
        asked: new slices of the group that all demand was routed to.
    """
    name = offer.config.name
    if name in placed.left_out:
        return "the routing policy leaves it out now"
    parts = [
        f"{count} for {_WHERE[round_]}{_when(round_, offer)}"
        for (group, round_), count in placed.shares.items()
        if group == name
    ]
    if takes(placed, offer) < placed.entry.count:
        why = _passes_on(placed, offer, asked)
        parts.append(f"no more: {why}" if parts else why)
    return "; ".join(parts)


_WHERE: Mapping[Round, str] = {
    Round.IDLE: "idle slices, which are kept for the rest of the gang",
    Round.ABSORBING: "slices on their way",
    Round.ROOM: "new slices",
    Round.WAITING: "slices that wait for machines",
    Round.RENEWAL: "new slices in the place of idle ones that cannot run this",
}


def _when(round_: Round, offer: GroupOffer) -> str:
    if round_ is Round.ABSORBING:
        return _ready(offer)
    return _boots(offer) if round_ is Round.ROOM else ""


def _passes_on(placed: PlacedDemand, offer: GroupOffer, asked: int) -> str:
    """Say why a group does not take all of some demand."""
    name = offer.config.name
    doubt = placed.doubts.get(name)
    if doubt is not None and offer.availability.accepts:
        return _takes_none(offer, doubt)
    mine = placed.order.index(name)
    later = [round_ for group, round_ in placed.shares if placed.order.index(group) > mine]
    if not placed.left and not later:
        return "those before it take the rest"
    if not offer.availability.accepts:
        return _closed(offer)
    if not offer.room:
        return "it takes nothing now" + (f" ({offer.reason})" if offer.reason else "")
    if offer.room == asked:
        return "other demand takes all that it could ask for"
    if not placed.left and all(round_ in (Round.IDLE, Round.ABSORBING) for round_ in later):
        return "slices that are there or on their way elsewhere come before new ones"
    if not placed.left and spreads(placed.entry):
        return "its gangs need fewer new slices elsewhere"
    return "no whole gang fits into what it could still ask for"


def _closed(offer: GroupOffer) -> str:
    until = ""
    if offer.retry_at is not None:
        until = f" until {time_of_day(offer.retry_at, minutes=offer.boot_estimate >= LONG_BOOT)} UTC"
    return f"{offer.availability.value}{until}" + (f" ({offer.reason})" if offer.reason else "")
