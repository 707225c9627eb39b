"""Asks a routing policy where demand may go: once for each entry of one routing. Pure.

Where the policy is the built-in one nobody is asked: routing has that order anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import GroupConfig
from iriscw.fleet.offers import GroupOffer
from iriscw.fleet.policy import CandidateGroup, DemandView, RoutingPolicy, ask_routing
from iriscw.fleet.routing import known_attributes, unmet


@attrs.define
class Asking:
    """One routing of all demand, by a policy of the user's own."""

    policy: RoutingPolicy
    offers: Mapping[str, GroupOffer]
    since: Mapping[str, int]
    """Since when each demand waits, by its id: monotonic ns."""
    now: int
    wall: int
    failures: int = 0
    """How often the policy failed."""
    error: str = ""
    """Why it failed first, and for which demand."""
    candidates: dict[str, CandidateGroup] = attrs.field(factory=dict)
    """Made once for each group."""

    def choose(self, entry: DemandEntry, fitting: Sequence[GroupConfig]) -> Sequence[str]:
        """Name the groups that an entry may go to, in the order in which they are tried."""
        view = DemandView(
            demand_id=entry.demand_id,
            tasks=entry.count,
            each=entry.demand,
            constraints=entry.constraints,
            gang_size=entry.gang_size,
            gang_by=entry.gang_by,
            band=entry.band,
            waited=self.now - self.since.get(entry.demand_id, self.now),
            groups=tuple(self._candidate(config, entry) for config in fitting),
            now=self.now,
            wall=self.wall,
        )
        answer = ask_routing(self.policy, view)
        if answer.error:
            self.failures += 1
            self.error = self.error or f"{entry.demand_id}: {answer.error}"
        return answer.groups

    def _candidate(self, config: GroupConfig, entry: DemandEntry) -> CandidateGroup:
        known = self.candidates.get(config.name)
        if known is None:
            known = self.candidates[config.name] = _candidate(self.offers[config.name], self.wall)
        dislikes = unmet(config, entry)
        return attrs.evolve(known, unmet=dislikes) if dislikes else known


def _candidate(offer: GroupOffer, wall: int) -> CandidateGroup:
    config = offer.config
    return CandidateGroup(
        name=config.name,
        priority=config.priority,
        unmet=0,
        attributes=known_attributes(config),
        per_worker=config.per_worker,
        num_vms=config.num_vms,
        quota_pool=config.quota_pool,
        availability=offer.availability,
        reason=offer.reason,
        retry_in=offer.retry_at - wall if offer.retry_at is not None and offer.retry_at > wall else None,
        room=offer.room,
        ready=offer.ready,
        idle=offer.idle,
        booting=offer.absorbing - offer.fresh,
        waiting=offer.waiting,
        max_slices=config.max_slices,
        boot_estimate=offer.boot_estimate,
    )
