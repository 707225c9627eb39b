"""The fleet as a tree of actors: binds the decisions to effects, children and supervision.

::

    /fleet                              routes demand, watches the cloud, answers users
    /fleet/<group>                      durable: which slices exist; how many there should be
    /fleet/<group>/<slice id>           one slice: its pool
    /fleet/<group>/<slice id>/<worker>  one worker's place: its pod, its registration, its liveness

Groups, slices and places are entities: one that fails again and again is quarantined, and the others go on
(INV-R7).
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.fleet import pods, root
from iriscw.fleet.groups import group as groups, rules as group_rules
from iriscw.fleet.model import FleetConfig
from iriscw.fleet.policy import Policy, RoutingPolicy, default_policy, default_routing
from iriscw.fleet.slices import rules as slice_rules, slice as slices
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, EffectFunction, SessionFunction, Supervision
from iriscw.runtime.vocabulary import SECOND

FLEET_CAPACITY = 16_384
"""Messages that wait at ``/fleet`` and at a group: each of a thousand slices may have several reports on
their way."""

CARE = Supervision(backoff=Backoff(initial=SECOND // 10, maximum=30 * SECOND))
"""How the fleet's actors are restarted: never at once, because what failed will often fail again."""


def fleet_behavior(
    config: FleetConfig,
    *,
    policy: Policy = default_policy,
    routing: RoutingPolicy = default_routing,
    effects: Mapping[type, EffectFunction],
    sessions: Mapping[type, SessionFunction],
) -> Behavior:
    """Return the behavior of ``/fleet``, with all its groups.

    Args:
        config: groups, paths, delays.
        policy: says how many slices each group should have.
        routing: says which groups demand may go to, in which order.
        effects: carries out each effect of :mod:`iriscw.cloud.effects`; a simulation gives its own.
        sessions: the same for the watches.
    """

    def place_spec(seed: pods.PodSeed) -> ChildSpec:
        behavior = Behavior(
            initial=lambda: pods.WorkerPlace(seed),
            on=pods.RULES,
            resume=pods.resume,
            effects=effects,
            name="worker place",
        )
        return ChildSpec(seed.worker_id, behavior, entity=True)

    def slice_spec(seed: slices.SliceSeed) -> ChildSpec:
        behavior = Behavior(
            initial=lambda: slices.Slice(seed),
            on=slice_rules.RULES,
            resume=slices.resume,
            effects=effects,
            supervision=CARE,
            name="slice",
        )
        return ChildSpec(seed.slice_id, behavior, entity=True)

    def group_spec(seed: groups.GroupSeed) -> ChildSpec:
        behavior = Behavior(
            initial=lambda: groups.Group(seed),
            on=group_rules.RULES,
            resume=groups.resume,
            evolve=groups.apply,
            compact=groups.snapshot,
            awaits_journal=True,
            effects=effects,
            supervision=CARE,
            name="scale group",
        )
        return ChildSpec(seed.config.name, behavior, entity=True, capacity=FLEET_CAPACITY)

    seeds = [
        groups.GroupSeed(
            config=group,
            cluster=config.cluster,
            scheduler=config.scheduler,
            links=config.links,
            takeover_delay=config.takeover_delay,
            piece=slice_spec,
            place=place_spec,
            policy=policy,
        )
        for group in config.groups
    ]
    return Behavior(
        initial=lambda: root.Fleet(config, policy=routing),
        on=root.RULES,
        resume=root.resume,
        effects=effects,
        sessions=sessions,
        children=tuple(group_spec(seed) for seed in seeds),
        supervision=CARE,
        name="fleet",
    )
