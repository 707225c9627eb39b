"""The features that every controller has, in the order of its tree: /fleet, /jobs, /nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from iriscw.controller.feature import Feature
from iriscw.controller.features.commands import COMMANDS
from iriscw.controller.features.fleet import fleet_feature
from iriscw.controller.features.hosted import HOSTED
from iriscw.controller.features.inspection import INSPECTION
from iriscw.controller.features.jobs import jobs_feature
from iriscw.controller.features.nodes import NODES
from iriscw.fleet.policy import Policy, RoutingPolicy
from iriscw.jobs.registry import RegistryLimits


def builtin_features(
    policy: Policy, routing: RoutingPolicy, limits: RegistryLimits, confirm: Callable[[], Awaitable[None]]
) -> tuple[Feature, ...]:
    """Return them.

    Args:
        policy: says how many slices each scale group should have.
        routing: says which groups demand may go to.
        limits: how many jobs and tasks are taken and kept.
        confirm: returns if nobody else has taken the journal over up to now.
    """
    return (fleet_feature(policy, routing), jobs_feature(limits, confirm), NODES, COMMANDS, HOSTED, INSPECTION)
