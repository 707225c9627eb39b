"""Which group takes which demand: packing on paper, without touching anything.

Theory of operation. Demand comes as entries, each so many tasks of one shape that the scheduler cannot
place now. They are routed in order of their band, gangs and big shapes first, as first-fit-decreasing does.
An entry may go to the groups whose workers could run it at all; those that meet more of its preferences
come first, then those with a lower ``priority``, unless a routing policy of the user's own names others of them, or
another order (:func:`iriscw.fleet.policy.ask_routing`). It is packed in rounds:

1. into slices that are on their way already;
2. into slices that could still be asked for;
3. into slices that wait for machines: only what nobody else takes.

A group's slices of one round are a *bay* (:mod:`iriscw.fleet.bays`). A gang takes its workers in one untouched slice;
it fits where its members fit into ``num_vms`` workers (INV-J4).

A gang whose members share another attribute *spreads* over slices of all groups with one value of it. Slices of one
gang become ready one after the other, and stand idle until the last one is: for such a gang, and for nothing else,
idle slices are packed too, before all others. They are *kept* for it, and only the rest is asked for. What is missing
is asked for only where the whole gang finds room, since half of its machines would be bought for nothing. Of several
values that one is taken for which the least has to be asked for, so that a gang stays where some of its machines are.
Where a group that is closed for a while would have room once it is open, what is there is kept until then.
Idle slices whose workers, as they registered, do not do for the gang are not packed: they would be kept for ever.
Idle slices of one *kind* are alike in all that gangs ask for.

What is left after all rounds may find its room in the place of idle slices that nothing that waits could use
(:mod:`iriscw.fleet.useless`): a group that has ``max_slices`` lets such a one go, and asks for another.

Where new slices of a group are in doubt for a demand (:mod:`iriscw.fleet.newest`) the demand takes one of those that
nobody else takes, as a trial, and none that would have to be asked for before that is due. Demand that finds doubt
everywhere comes after all other demand.

For every demand the result has a sentence that says what is done about it, or what is missing (INV-J7).
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from iriscw.cloud.model import Attributes, Constraint, Op
from iriscw.fleet.bays import Bay
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import DECIDED_BY_WORKERS, SLICE_ID, WORKER_ID, Availability, GroupConfig
from iriscw.fleet.newest import Doubt, Doubts
from iriscw.fleet.offers import ANY, Bays, Fit, GroupOffer, Kind, Place, PlacedDemand, Round, Shares, spreads
from iriscw.fleet.sentences import NO_DOUBT, impossible, sentence
from iriscw.fleet.useless import IdleSlice, useless

MAX_GROUPS_REMEMBERED = 1_024
"""Groups whose attributes are put together once, and not for each entry of each decision."""

NO_DOUBTS: Doubts = {}


@attrs.frozen
class Routing:
    """What was decided: slices wanted by group, and a sentence for each demand."""

    wanted: Mapping[str, int]
    """Those that demand was routed to."""
    spread: Mapping[str, int]
    """Of these, the ones for gangs that spread: a slice that is ready and idle is as good as one on its way."""
    unfit: Mapping[str, tuple[str, ...]]
    """Idle slices that are not: none of the gangs that the group takes slices for could run there."""
    renew: Mapping[str, int]
    """Slices that could take the place of ones on their way out, or of ``useless`` ones, for demand that finds no other
    room."""
    useless: Mapping[str, tuple[str, ...]]
    """Idle slices that nothing that waits could use; empty where nothing would come of replacing one."""
    reasons: tuple[tuple[str, str], ...]
    never: tuple[str, ...] = ()
    """Demands that no group can ever run, whatever its workers turn out to be like."""
    placed: tuple[PlacedDemand, ...] = ()
    """All demand that some group could run."""
    asked: Mapping[str, int] = attrs.field(factory=dict)
    """By group: new slices that demand was routed to."""


# Which groups could run it at all


def misfit(config: GroupConfig, entry: DemandEntry) -> str:
    """Say why no slice of this group can ever run the entry; empty if one can."""
    short = config.per_worker.shortage(entry.demand)
    if short:
        return f"its workers are too small ({short})"
    for constraint in entry.constraints:
        if constraint.required and not _may_satisfy(constraint, config):
            return f"it does not meet '{constraint}'"
    return _gang_misfit(config, entry) if entry.gang_size > 1 else ""


def _gang_misfit(config: GroupConfig, entry: DemandEntry) -> str:
    size, by = entry.gang_size, entry.gang_by
    if by not in (SLICE_ID, WORKER_ID) and not _is_shared(by, config):
        return f"no worker is known to have the attribute '{by}'{_meant(by, config)}"
    needed = -(-size // config.per_worker.times(entry.demand))
    if by == WORKER_ID and needed > 1:
        return f"a gang of {size} needs room on one worker, and takes {needed}"
    if not spreads(entry) and needed > config.num_vms:
        alone = f"a gang of {size} needs {needed} workers of one slice, which has {config.num_vms} (num_vms)"
        return alone + "; by 'group' it may have several" if by == SLICE_ID else alone
    return ""


def _is_shared(attribute: str, config: GroupConfig) -> bool:
    """Whether the workers of a group share a value of the attribute, as far as is known before there are some."""
    return attribute in known_attributes(config) or attribute in DECIDED_BY_WORKERS


def _meant(attribute: str, config: GroupConfig) -> str:
    known = [*(name for name, _ in known_attributes(config).pairs), *DECIDED_BY_WORKERS, SLICE_ID, WORKER_ID]
    near = difflib.get_close_matches(attribute, known, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def is_final(config: GroupConfig, entry: DemandEntry) -> bool:
    """Tell whether a misfit lies in what the configuration says: a worker may bring attributes that no group names."""
    if config.per_worker.lacking(entry.demand):
        return True
    named = known_attributes(config)
    wrong = [each for each in entry.constraints if each.required and not _may_satisfy(each, config)]
    if not wrong and entry.gang_by not in (SLICE_ID, WORKER_ID):
        return False  # workers may bring the attribute, and those of several slices may share it
    return any(each.key in named for each in wrong) or (not wrong and bool(misfit(config, entry)))


def _may_satisfy(constraint: Constraint, config: GroupConfig) -> bool:
    name, named = constraint.key, known_attributes(config)
    if name in DECIDED_BY_WORKERS and name not in named:
        return constraint.op is not Op.NOT_EXISTS
    return constraint.satisfied(named)


def known_attributes(config: GroupConfig) -> Attributes:
    """Return what is known of all workers of a group before there is one."""
    return _with_group(config.attributes, config.name)


@functools.lru_cache(maxsize=MAX_GROUPS_REMEMBERED)
def _with_group(attributes: Attributes, group: str) -> Attributes:
    return attributes.merged(Attributes({"group": group}))


def unmet(config: GroupConfig, entry: DemandEntry) -> int:
    """Return how many of an entry's preferences a group does not meet."""
    return sum(1 for each in entry.constraints if not each.required and not _may_satisfy(each, config))


# Routing


def _order(entry: DemandEntry) -> tuple[int, int, int, int, int, str]:
    demand = entry.demand
    size = (-demand.gpu_count, -demand.cpu_milli, -demand.memory_bytes)
    return (entry.band, -entry.gang_size, *size, entry.demand_id)


Chooser: TypeAlias = Callable[[DemandEntry, Sequence[GroupConfig]], Sequence[str]]
"""Names those of the groups that could run an entry which it may go to, in the order in which they are tried."""


def route(
    entries: Sequence[DemandEntry],
    offers: Sequence[GroupOffer],
    doubts: Doubts = NO_DOUBTS,
    choose: Chooser | None = None,
) -> Routing:
    """Route all demand: pure, and the same for the same arguments.

    Args:
        entries: what waits.
        offers: of all groups.
        doubts: where new slices of a group are in doubt for an entry.
        choose: which groups an entry may go to. Default: all that could run it, in their order.
    """
    bays = _lay_out(entries, offers)
    by_name = {offer.config.name: offer for offer in offers}
    impossibles: list[tuple[str, str]] = []
    never: list[str] = []
    fit: Fit = {}
    placed: list[PlacedDemand] = []
    in_doubt: list[_InDoubt] = []
    for entry in sorted((entry for entry in entries if entry.count > 0), key=_order):
        misfits = {offer.config.name: misfit(offer.config, entry) for offer in offers}
        if spreads(entry):
            misfits |= _too_few(entry, [offer.config for offer in offers if not misfits[offer.config.name]])
        fitting = sorted(
            (offer.config for offer in offers if not misfits[offer.config.name]),
            key=lambda config: (unmet(config, entry), config.priority, config.name),
        )
        if not fitting:
            final = all(is_final(offer.config, entry) for offer in offers)
            impossibles.append((entry.demand_id, impossible(misfits, final=final)))
            if final:
                never.append(entry.demand_id)
            continue
        fitting, left_out = _chosen(entry, fitting, by_name, choose)
        doubted = {
            each.name: doubts[each.name, entry.demand_id] for each in fitting if (each.name, entry.demand_id) in doubts
        }
        trusted = [each for each in fitting if each.name not in doubted] if doubted else fitting
        shares, left = _place(entry, entry.count, trusted, bays, by_name, fit)
        if doubted and left:
            in_doubt.append(_InDoubt(entry, fitting, left_out, doubted, shares, left))
        else:
            placed.append(PlacedDemand(entry, _names(fitting), left_out, shares, left, NO_DOUBT))
    tried: dict[str, None] = {}
    for each in in_doubt:
        _place_in_doubt(each, bays, by_name, fit, tried)
        order = _names(each.fitting)
        placed.append(PlacedDemand(each.entry, order, each.left_out, each.shares, each.left, each.doubts))
    reasons = impossibles + [(each.entry.demand_id, sentence(each, by_name)) for each in placed]
    return _add_up(_names([offer.config for offer in offers]), bays, fit, reasons, never, placed)


def _names(configs: Sequence[GroupConfig]) -> tuple[str, ...]:
    return tuple(config.name for config in configs)


def _chosen(
    entry: DemandEntry, fitting: list[GroupConfig], offers: Mapping[str, GroupOffer], choose: Chooser | None
) -> tuple[list[GroupConfig], tuple[str, ...]]:
    """Return the groups that an entry may go to, in order, and the names of the others that could run it."""
    if choose is None:
        return fitting, ()
    order = dict.fromkeys(choose(entry, fitting))
    return [offers[name].config for name in order], tuple(each.name for each in fitting if each.name not in order)


def _add_up(
    groups: Sequence[str],
    bays: Bays,
    fit: Fit,
    reasons: Sequence[tuple[str, str]],
    never: Sequence[str],
    placed: Sequence[PlacedDemand],
) -> Routing:
    """Count what was placed, by group."""
    wanted = dict.fromkeys(groups, 0)
    spread, renew, asked = dict(wanted), dict(wanted), dict(wanted)
    unfit: dict[str, tuple[str, ...]] = dict.fromkeys(wanted, ())
    replaceable = dict(unfit)
    for place, bay in bays.items():
        name = place[0]
        if place[1] is Round.RENEWAL:
            renew[name], replaceable[name] = bay.used, bay.slices if bay.used else ()
            continue
        wanted[name] += bay.used
        spread[name] += bay.spread
        if place[1] is Round.ROOM:
            asked[name] = bay.used
        if name in fit and place not in fit[name]:
            unfit[name] += bay.slices
    return Routing(
        wanted, spread, unfit, renew, replaceable, tuple(sorted(reasons)), tuple(sorted(never)), tuple(placed), asked
    )


def _lay_out(entries: Sequence[DemandEntry], offers: Sequence[GroupOffer]) -> Bays:
    """Return a bay for all slices of a group that are in one round, and alike."""
    gangs = [entry for entry in entries if entry.count > 0 and spreads(entry)]
    asked = dict.fromkeys(entry.gang_by for entry in gangs)
    asked |= dict.fromkeys(each.key for entry in gangs for each in entry.constraints if each.required)
    bays: Bays = {}
    for offer in offers:
        name = offer.config.name
        coming = ((Round.ABSORBING, offer.absorbing), (Round.ROOM, offer.room), (Round.WAITING, offer.waiting))
        for round_, slices in coming:
            # Where there are no slices there is nothing to place: in a large fleet that is at work, almost everywhere.
            if slices:
                bays[name, round_, ANY] = Bay(offer.config, slices)
        named = _replaceable(entries, offer)
        if named:
            bays[name, Round.RENEWAL, ANY] = Bay(offer.config, len(named) + offer.going, slices=named)
        if not gangs:
            continue
        known = [each for each in offer.known[: offer.idle] if each.workers]
        kinds: dict[Kind, list[str]] = {}
        for each in known:
            kinds.setdefault(_kind(each, asked), []).append(each.slice_id)
        for kind, names in kinds.items():
            bays[name, Round.IDLE, kind] = Bay(offer.config, len(names), slices=tuple(names))
        if offer.idle > len(known):
            bays[name, Round.IDLE, ANY] = Bay(offer.config, offer.idle - len(known))
    return bays


def _replaceable(entries: Sequence[DemandEntry], offer: GroupOffer) -> tuple[str, ...]:
    """Return the idle slices of a group that nothing that waits for it could use, where others could come."""
    known = [each for each in offer.known[: offer.idle] if each.workers]
    if not known or not (offer.availability.accepts or offer.availability is Availability.AT_MAX):
        return ()
    fitting = [entry for entry in entries if entry.count > 0 and not misfit(offer.config, entry)]
    return useless(fitting, known, offer.config.per_worker)


def _kind(idle: IdleSlice, asked: Mapping[str, None]) -> Kind:
    workers = (Attributes({name: value for name, value in each.pairs if name in asked}) for each in idle.workers)
    return tuple(dict.fromkeys(workers))


def _place(
    entry: DemandEntry,
    count: int,
    fitting: Sequence[GroupConfig],
    bays: Bays,
    offers: Mapping[str, GroupOffer],
    fit: Fit,
) -> tuple[Shares, int]:
    """Find places for ``count`` tasks of one entry: give how many went where, and how many found none."""
    if spreads(entry):
        return _spread(entry, count, fitting, bays, offers, fit)
    return _pack(entry, count, fitting, bays)


@attrs.define
class _InDoubt:
    """An entry for which new slices of some groups are in doubt, with what found no place in others."""

    entry: DemandEntry
    fitting: list[GroupConfig]
    left_out: tuple[str, ...]
    doubts: Mapping[str, Doubt]
    shares: Shares
    left: int


def _place_in_doubt(
    waiting: _InDoubt, bays: Bays, offers: Mapping[str, GroupOffer], fit: Fit, tried: dict[str, None]
) -> None:
    """Take one slice as a trial; where none can be had, only what is known."""
    taken = _try_one(waiting, bays, offers, tried)
    if not taken:
        known = {
            place: bay
            for place, bay in bays.items()
            if place[0] not in waiting.doubts or _is_known(place[1], offers[place[0]])
        }
        taken, _ = _place(waiting.entry, waiting.left, waiting.fitting, known, offers, fit)
    for share, count in taken.items():
        waiting.shares[share] = waiting.shares.get(share, 0) + count
        waiting.left -= count


def _try_one(waiting: _InDoubt, bays: Bays, offers: Mapping[str, GroupOffer], tried: dict[str, None]) -> Shares:
    """Take one slice though the newest of its group could not run the entry: give how many tasks went there.

    What is on its way shows as much as what would be asked for; of each group one is tried at a time.
    """
    entry = waiting.entry
    gang = 1 if spreads(entry) else entry.gang_size
    untried = [each for each in waiting.fitting if each.name in waiting.doubts and each.name not in tried]
    for config in sorted(untried, key=lambda config: not _comes(offers[config.name])):
        name = config.name
        rounds = _comes(offers[name]) or ((Round.ROOM,) if waiting.doubts[name].due else ())
        one = max(gang, config.num_vms * config.per_worker.times(entry.demand))
        for round_ in rounds:
            bay = bays.get((name, round_, ANY))
            placed = bay.place(entry.demand, min(waiting.left, one), gang) if bay is not None else 0
            if placed:
                tried[name] = None
                return {(name, round_): placed}
    return {}


def _is_known(round_: Round, offer: GroupOffer) -> bool:
    """Whether a round needs no new slice that would be asked for: a full group has pauses of its own."""
    return round_ is Round.IDLE or (round_ is Round.RENEWAL and offer.availability is Availability.AT_MAX)


def _comes(offer: GroupOffer) -> tuple[Round, ...]:
    """Return the rounds of slices that have not shown yet what they are like."""
    absorbing = (Round.ABSORBING,) if offer.absorbing > offer.fresh else ()
    return (*absorbing, Round.WAITING) if offer.waiting else absorbing


def _pack(entry: DemandEntry, count: int, fitting: Sequence[GroupConfig], bays: Bays) -> tuple[Shares, int]:
    """Pack tasks of one entry: give how many went where, and how many found no place."""
    left = count
    shares: Shares = {}
    if not bays:
        return shares, left
    for round_ in (Round.ABSORBING, Round.ROOM, Round.WAITING, Round.RENEWAL):
        for config in fitting:
            bay = bays.get((config.name, round_, ANY))
            placed = bay.place(entry.demand, left, entry.gang_size) if bay is not None and left else 0
            if placed:
                shares[config.name, round_] = placed
                left -= placed
    assert 0 <= left <= count
    return shares, left


# Gangs that spread


@attrs.frozen
class Sharing:
    """Groups whose workers share a value of a gang's attribute."""

    members: Sequence[GroupConfig]
    idle: Mapping[str, Sequence[Place]]
    """By group: where its idle slices are whose workers have the value, and do for the gang."""


@attrs.frozen
class Trial:
    """How one gang would be packed into the groups that share a value of its attribute."""

    sharing: Sharing
    places: Mapping[Place, int]
    """How many of its tasks go where."""
    left: int

    @property
    def cost(self) -> tuple[bool, bool, int]:
        """Whether idle slices go for it, whether it waits for machines, and for how many of its tasks some have to be
        asked for: less is better.
        """
        asked = sum(count for (_, round_, _), count in self.places.items() if round_ is Round.ROOM)
        rounds = [round_ for _, round_, _ in self.places]
        return Round.RENEWAL in rounds, Round.WAITING in rounds, asked


def _by_value(entry: DemandEntry, fitting: Sequence[GroupConfig]) -> list[list[GroupConfig]]:
    """Return the groups whose workers share a value of the gang's attribute, in order of the first of each.

    What a group does not name only its workers know, so nothing is said of those of two groups.
    """
    values: dict[tuple[bool, str], list[GroupConfig]] = {}
    for config in fitting:
        value = known_attributes(config).get(entry.gang_by)
        values.setdefault((value is None, config.name if value is None else str(value)), []).append(config)
    return list(values.values())


def _sharings(entry: DemandEntry, fitting: Sequence[GroupConfig], bays: Bays) -> list[Sharing]:
    """Return the groups that share a value, with their idle slices that the gang could run on, in order of liking.

    A group that names no value is there once for each value that workers of its idle slices have: what is still to come
    may have any.
    """
    usable: dict[str, list[Place]] = {}
    for place in bays:
        name, round_, kind = place
        if round_ is Round.IDLE and _does(kind, entry):
            usable.setdefault(name, []).append(place)
    result = []
    for members in _by_value(entry, fitting):
        places = [place for each in members for place in usable.get(each.name, ())]
        found = dict.fromkeys(value for _, _, kind in places for value in _values(kind, entry))
        for value in sorted(found) or [""]:
            idle: dict[str, list[Place]] = {}
            for place in places:
                if _values(place[2], entry) in ([], [value]):
                    idle.setdefault(place[0], []).append(place)
            result.append(Sharing(members, idle))
    return result


def _does(kind: Kind, entry: DemandEntry) -> bool:
    """Whether members of one gang may run on all workers of a slice of this kind."""
    required = [each for each in entry.constraints if each.required]
    return all(entry.gang_by in worker and all(each.satisfied(worker) for each in required) for worker in kind) and (
        len(_values(kind, entry)) <= 1
    )


def _values(kind: Kind, entry: DemandEntry) -> list[str]:
    """Return the values that workers of this kind have of what the gang shares, each once."""
    return list(dict.fromkeys(str(worker.get(entry.gang_by)) for worker in kind))


def _too_few(entry: DemandEntry, configs: Sequence[GroupConfig]) -> dict[str, str]:
    """Say of groups that have no room for a gang, with all that share their value, why not."""
    result: dict[str, str] = {}
    for members in _by_value(entry, configs):
        most = sum(each.max_slices * each.num_vms * each.per_worker.times(entry.demand) for each in members)
        if most < entry.gang_size:
            why = f"of a gang of {entry.gang_size} at most {most} fit where '{entry.gang_by}' is the same (max_slices)"
            result |= dict.fromkeys((each.name for each in members), why)
    return result


def _spread(
    entry: DemandEntry,
    count: int,
    fitting: Sequence[GroupConfig],
    bays: Bays,
    offers: Mapping[str, GroupOffer],
    fit: Fit,
) -> tuple[Shares, int]:
    """Pack gangs that spread, one after the other: give how many tasks went where, and how many found no place.

    Which idle slices do for them is added to ``fit``, for each group that they take slices of.
    """
    shares: Shares = {}
    left = count
    sharings = _sharings(entry, fitting, bays)
    trials = [_try(entry, entry.gang_size, sharing, bays, tuple(Round)) for sharing in sharings]
    for _ in range(count // entry.gang_size):
        whole = [trial for trial in trials if not trial.left]
        # Of equals the first is taken: the one that is liked best.
        chosen = min(whole, key=lambda trial: trial.cost, default=None) or _keep(entry, sharings, bays, offers)
        if chosen is None:
            break
        for place, here in chosen.places.items():
            bays[place].spread_over(entry.demand, here)
            name, round_, _ = place
            shares[name, round_] = shares.get((name, round_), 0) + here
            fit.setdefault(name, {}).update(dict.fromkeys(chosen.sharing.idle.get(name, ())))
        left -= entry.gang_size - chosen.left
        # What other values have is as it was: so many gangs of one entry cost no more than so many entries of one.
        trials = [
            _try(entry, entry.gang_size, trial.sharing, bays, tuple(Round))
            if trial.sharing.members is chosen.sharing.members and left
            else trial
            for trial in trials
        ]
    return shares, left


def _try(entry: DemandEntry, count: int, sharing: Sharing, bays: Bays, rounds: Sequence[Round]) -> Trial:
    """Say where so many tasks of one gang would go, without placing them."""
    found: dict[Place, int] = {}
    left = count
    for round_ in rounds:
        for config in sharing.members:
            name = config.name
            places = sharing.idle.get(name, ()) if round_ is Round.IDLE else ((name, round_, ANY),)
            for place in places:
                room = bays[place].has_room(entry.demand, left) if left and place in bays else 0
                if room:
                    found[place] = room
                    left -= room
    return Trial(sharing, found, left)


def _keep(
    entry: DemandEntry, sharings: Sequence[Sharing], bays: Bays, offers: Mapping[str, GroupOffer]
) -> Trial | None:
    """Keep what is there for one gang, where groups that are closed now would have room for the rest."""
    best: Trial | None = None
    for sharing in sharings:
        there = _try(entry, entry.gang_size, sharing, bays, (Round.IDLE, Round.ABSORBING, Round.WAITING))
        opened: Bays = {}
        for each in sharing.members:
            place = (each.name, Round.ROOM, ANY)
            taken = bays[place].used if place in bays else 0
            opened[place] = Bay(each, max(0, offers[each.name].later - taken))
        rest = _try(entry, there.left, sharing, opened, (Round.ROOM,))
        if not rest.left and (best is None or there.left < best.left):
            best = there
    return best if best is not None and best.places else None
