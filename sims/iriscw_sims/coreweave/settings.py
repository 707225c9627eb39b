"""How long everything takes, and what the cloud's dialect is: frozen values, with two presets.

:data:`QUICK` has seconds where CoreWeave has minutes; only the order of the delays matters there. :data:`FAITHFUL` has
what was measured: boots of 14 to 30 minutes with a tail, 40 s until a lost node is noticed, 300 s until its pods go.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import attrs

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.coreweave.shapes import GENERIC, Shape

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
TAIL_SHARE = 0.1
"""How many draws fall into a span's tail, where it has one."""


@attrs.frozen
class Span:
    """A duration drawn evenly between two bounds in ns; with ``tail``, one in ten lies between ``most`` and that.

    Raises:
        InvalidArgument: the bounds are not in order, or negative.
    """

    least: int
    most: int
    tail: int = 0

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.least <= self.most or (self.tail and self.tail < self.most):
            raise InvalidArgument(f"no span of time: {self.least} to {self.most} ns, tail to {self.tail} ns")

    def draw(self, rng: Random) -> int:
        """Draw one duration, ns."""
        if self.tail and rng.random() < TAIL_SHARE:
            return rng.randrange(self.most, self.tail + 1)
        return rng.randrange(self.least, self.most + 1)


def seconds(least: float, most: float, tail: float = 0) -> Span:
    """Return a span with its bounds in seconds."""
    return Span(int(least * SECOND), int(most * SECOND), int(tail * SECOND))


def minutes(least: float, most: float, tail: float = 0) -> Span:
    """Return a span with its bounds in minutes."""
    return seconds(least * 60, most * 60, tail * 60)


@attrs.frozen
class Settings:
    """Every delay and limit. Spans are drawn anew each time."""

    # Pools
    validation: Span
    """Until a new pool's specification is judged."""
    validation_slow: Span
    boot: Span
    """From a machine's assignment to its Node object."""
    boot_slow: Span
    node_ready: Span
    """From a Node object to its being ready."""
    capacity: Span
    """Until machines come to a pool that waits for them."""
    quota_raised: Span
    """Until somebody raises a quota that is said to be used up."""
    deletion: Span
    """From a pool's or pod's deletion to its end."""
    deletion_slow: Span

    # Nodes
    early_death: Span
    """From a node's being ready to what befalls it: death, triage, a cordon, an interruption."""
    detection: Span
    """From a node's silence to its being shown as not ready."""
    repair: Span
    """From there to its removal, unless it is back by then."""
    triage: Span
    """From a node's leaving production to its removal."""
    cordon: Span
    """How long a node is cordoned for maintenance."""
    drain: Span
    """How long pods may take to leave a node that is removed."""
    interruption: Span
    """From the notice of an interruption to the end of the node."""
    exec_after_join: int
    """ns for which exec and port-forward are refused on a new node, until its tunnel is up."""

    # Pods
    scheduling: Span
    sync: Span
    """Until a kubelet acts on what it sees."""
    pull: Span
    pull_slow: Span
    retry: Span
    """Between two attempts at an image or a mount."""
    failing: Span
    """From a container's start to its failing, if it is to fail."""
    eviction: Span
    """From a container's start to its eviction, if it is to be evicted."""
    pressure: Span
    """How long a node is short of disk or memory after an eviction."""
    reclaim: Span
    """Between two evictions from a node that is still short."""
    clock_off: Span
    """By how much the clock of a node is off, ahead or behind, if it is."""
    stop: Span
    """From the stop signal to a container's end, grace allowing."""
    kill: Span
    """From a forced deletion, already answered, to the end of the processes."""
    collection: Span
    """Until pods of a removed node are removed."""
    restart_backoff: int
    """ns before the second restart of a container; doubles with each."""
    restart_backoff_most: int

    toleration_divisor: int = 1
    """By how much tolerationSeconds are shortened: small worlds have no 300 s."""

    # Dialect
    validated: str = "Validated"
    """The condition's name; older clusters say ``Valid``."""
    in_progress: str = "inProgress"
    """The status field's name; also seen: ``inProgressNodes``."""
    gpu_taint: bool = True
    """Whether GPU nodes carry ``nvidia.com/gpu:NoSchedule``."""
    normal_events: bool = False
    """Whether events of type Normal are written, beside warnings."""
    event_lifetime: int = HOUR
    """ns after which an event is forgotten (``--event-ttl``)."""
    quotas: Mapping[str, int] = attrs.field(factory=dict)
    """Nodes that may be had at once, by instance type; what is not named has no limit."""
    first_address: int = 1
    """The number of the first node's address in its network. Where these are addresses of one machine, and other
    clusters are on it, each begins elsewhere."""
    region: str = "US-EAST-02A"
    organisation: str = "cw0000"
    unknown_type: Shape | None = GENERIC
    """What a machine of an unknown instance type is; None: there is none, and its pools are invalid."""


QUICK = Settings(
    validation=seconds(0, 1),
    validation_slow=seconds(2, 15),
    boot=seconds(3, 19),
    boot_slow=seconds(30, 74),
    node_ready=seconds(0, 1),
    capacity=seconds(10, 240),
    quota_raised=seconds(600, 1800),
    deletion=seconds(1, 5),
    deletion_slow=seconds(20, 60),
    early_death=seconds(1, 60),
    detection=seconds(1, 4),
    repair=seconds(2, 22),
    triage=seconds(2, 20),
    cordon=seconds(5, 60),
    drain=seconds(5, 20),
    interruption=seconds(2, 10),
    exec_after_join=2 * SECOND,
    scheduling=seconds(0, 1),
    sync=seconds(0, 1),
    pull=seconds(0.2, 3),
    pull_slow=seconds(10, 40),
    retry=seconds(1, 4),
    failing=seconds(0, 2),
    eviction=seconds(1, 60),
    pressure=seconds(5, 30),
    reclaim=seconds(1, 2),
    clock_off=seconds(1, 600),
    stop=seconds(0.5, 5),
    kill=Span(0, 500 * MILLISECOND),
    collection=seconds(0, 3),
    restart_backoff=1 * SECOND,
    restart_backoff_most=20 * SECOND,
    toleration_divisor=15,
)
"""Seconds where a cloud has minutes, in the proportions of :data:`iriscw_sims.pace.TIMING`."""

FAITHFUL = Settings(
    validation=seconds(1, 10),
    validation_slow=minutes(1, 5),
    boot=minutes(14, 30, tail=90),
    boot_slow=minutes(45, 120),
    node_ready=seconds(5, 40),
    capacity=Span(10 * MINUTE, 4 * HOUR, 24 * HOUR),
    quota_raised=Span(4 * HOUR, 72 * HOUR),
    deletion=minutes(1, 8, tail=30),
    deletion_slow=minutes(20, 60),
    early_death=Span(MINUTE, 6 * HOUR),
    detection=seconds(40, 50),
    repair=minutes(5, 30, tail=120),
    triage=minutes(5, 60),
    cordon=minutes(10, 60),
    drain=minutes(1, 10),
    interruption=seconds(30, 120),
    exec_after_join=30 * SECOND,
    scheduling=Span(5 * MILLISECOND, 200 * MILLISECOND),
    sync=Span(50 * MILLISECOND, 2 * SECOND),
    pull=seconds(5, 90, tail=300),
    pull_slow=minutes(5, 20),
    retry=seconds(10, 120),
    failing=seconds(1, 120),
    eviction=Span(MINUTE, 2 * HOUR),
    pressure=minutes(5, 10),
    reclaim=seconds(10, 20),
    clock_off=seconds(1, 600),
    stop=seconds(0.1, 10, tail=60),
    kill=seconds(0.1, 2),
    collection=seconds(1, 40),
    restart_backoff=10 * SECOND,
    restart_backoff_most=5 * MINUTE,
    normal_events=True,
    unknown_type=None,
)
"""Delays as measured and documented."""
