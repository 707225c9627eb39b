"""How many slices a group should have, and which groups demand may go to: the questions that somebody else may answer.

Theory of operation. A *policy* is a function from what is known of a group (:class:`GroupView`) to a number of slices,
ready and on their way together. It is asked whenever the group looks at its size: after anything that may matter, and
at the latest after ``evaluation_interval``. It says how many, never which: slices are asked for, given up and removed
by the group's own rules, whatever the answer is. So no policy can

* exceed ``max_slices`` or fall below ``min_slices``: its answer is brought within them (INV-F4);
* touch a slice on which something runs, or one that is not the longest idle: those that are too many go once they were
  idle for ``scale_down_delay``, the longest idle first, and only if the scheduler agrees (INV-F3);
* ask faster than rate limits, pauses after failures, quota and churn allow (INV-F5, INV-F9);
* end the group: where it raises, or answers with anything but a whole number, :func:`default_policy` decides, the
  failure is counted and :class:`~iriscw.fleet.messages.PolicyFailed` is published.

A *routing policy* is a function from demand and the groups that could run it (:class:`DemandView`) to those of the
groups that the demand may go to, in the order in which they are tried. It is asked once for each entry of demand
whenever demand is routed. It says which groups and in which order, never how much: what each takes is packed by
:mod:`iriscw.fleet.routing`. So no routing policy can route demand to a group that could never run it, that is closed,
or that has no room; where it fails :func:`default_routing` decides on that demand, and
:class:`~iriscw.fleet.messages.RoutingFailed` is published.

Both are called inside a decision. They must be quick (all actors wait for them), and functions of their argument alone:
no clock, no random numbers, no memory. The times that they may need are in the view.
"""

from __future__ import annotations

import itertools
import operator
import traceback
from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from iriscw._errors import as_failure
from iriscw.cloud.model import Attributes, Capacity, Constraint
from iriscw.fleet.model import Availability

MAX_ERROR_CHARS = 200
"""Of what a policy raised: one line of a log."""


@attrs.frozen
class GroupView:
    """What a policy may know of its group: in slices where nothing else is said. Durations and times are integer ns.

    A slice that is ready is either running something (:attr:`busy`), or it is *fresh*, or it is in ``idle``.
    """

    group: str
    min_slices: int
    max_slices: int
    buffer_slices: int
    wanted: int
    """Those that waiting demand was routed to, of the ones on their way, fresh, waiting, or still to be asked for."""
    ready: int
    booting: int
    """On their way, from the promise until all workers are registered."""
    waiting: int
    """In the cloud's queue for machines."""
    fresh: int
    """Ready since so recently that the scheduler may not have filled them yet."""
    going: int
    """On their way out, or failed: they count against ``max_slices`` until they are gone."""
    idle: tuple[int, ...]
    """For how long each slice has been idle, the longest first."""
    availability: Availability
    """Whether the group asks for slices now, and what keeps it from that: quota, capacity, failures, churn."""
    retry_in: int | None
    """Until a closed group opens again by itself; None if it is open, or waits for people."""
    boot_estimate: int
    """What a boot is thought to take, from the request until ready."""
    now: int
    """The monotonic clock: only differences mean something."""
    wall: int
    """The wall clock, since 1970 in UTC. It may jump."""
    kept: int = 0
    """Idle slices on which a gang waits for the rest of its slices. They are not part of ``wanted``."""

    @property
    def alive(self) -> int:
        """Slices that are ready or on their way: what the answer of a policy is compared with."""
        return self.ready + self.booting + self.waiting

    @property
    def busy(self) -> int:
        """Slices on which something runs."""
        return self.ready - self.fresh - len(self.idle)

    @property
    def absorbing(self) -> int:
        """Slices that will soon take demand."""
        return self.booting + self.waiting + self.fresh

    @property
    def needed(self) -> int:
        """Slices that are busy, kept for a gang, or have demand routed to them: with fewer something waits."""
        return self.busy + self.kept + self.wanted


Policy: TypeAlias = Callable[[GroupView], int]
"""Says how many slices a group should have, ready and on their way together."""


@attrs.frozen
class PolicyAnswer:
    """What came of asking a policy."""

    slices: int
    """At least ``min_slices``; more than ``max_slices`` only if there are more, which a changed bound ends for none."""
    error: str = ""
    """Why the default policy decided instead; else empty."""


def default_policy(view: GroupView) -> int:
    """Return what demand needs and ``buffer_slices`` on top, at least ``min_slices``.

    As long as demand misses slices no idle one goes: it may be about to be taken.
    """
    spare = view.buffer_slices
    if view.wanted > view.absorbing:
        spare = max(spare, len(view.idle) - view.kept)
    return max(view.min_slices, view.needed + spare)


def ask(policy: Policy, view: GroupView) -> PolicyAnswer:
    """Ask a policy, whatever it does."""
    error = ""
    try:
        slices = int(operator.index(policy(view)))
    except BaseException as raised:  # noqa: BLE001 - it is somebody else's code; what it raised is reported
        error, slices = _told(raised), default_policy(view)
    most = max(view.max_slices, view.alive)
    return PolicyAnswer(min(max(slices, view.min_slices), most), error)


def _told(raised: BaseException) -> str:
    problem = as_failure(raised)
    return "".join(traceback.format_exception_only(problem)).strip()[:MAX_ERROR_CHARS]


# Routing


@attrs.frozen
class CandidateGroup:
    """A group that could run some demand, as it stands. In slices where nothing else is said; durations are ns."""

    name: str
    priority: int
    """Of the configuration: the lower number comes first."""
    unmet: int
    """How many of the demand's preferences the group does not meet."""
    attributes: Attributes
    """What the configuration says of all its workers: ``attributes.get("region")``, or what the file adds, such as a
    price. A value is text or an integer."""
    per_worker: Capacity
    """What each worker offers."""
    num_vms: int
    """Workers of one slice."""
    quota_pool: str
    """Which quota it shares with others; empty: none."""
    availability: Availability
    """Whether it asks for slices now, and what keeps it from that."""
    reason: str
    """The same as a sentence; may be empty."""
    retry_in: int | None
    """Until a closed group opens again by itself; None if it is open, or waits for people."""
    room: int
    """Slices that could be asked for now."""
    ready: int
    idle: int
    """Of those that are ready: nothing runs there."""
    booting: int
    """On their way."""
    waiting: int
    """In the cloud's queue for machines."""
    max_slices: int
    boot_estimate: int
    """What a boot is thought to take; 0: nobody knows."""


@attrs.frozen
class DemandView:
    """Tasks of one shape that cannot be placed now, and the groups that could run them. Times are integer ns."""

    demand_id: str
    """The same for the same shape."""
    tasks: int
    each: Capacity
    """What one task needs."""
    constraints: tuple[Constraint, ...]
    gang_size: int
    """Tasks that run together; 1: each by itself."""
    gang_by: str
    """The attribute that the workers of a gang share."""
    band: int
    """The priority band: the lower number comes first."""
    waited: int
    """For how long demand of this shape has been there without a break, as far as this controller's process knows."""
    groups: tuple[CandidateGroup, ...]
    """Those that could run it, in the order of :func:`default_routing`; at least one."""
    now: int
    """The monotonic clock: only differences mean something."""
    wall: int
    """The wall clock, since 1970 in UTC. It may jump."""


RoutingPolicy: TypeAlias = Callable[[DemandView], Iterable[CandidateGroup]]
"""Gives the groups that demand may go to now, in the order in which they are tried: some of the view's, all or none."""


@attrs.frozen
class RoutingAnswer:
    """What came of asking a routing policy."""

    groups: tuple[str, ...]
    """By name."""
    error: str = ""
    """Why the default one decided instead; else empty."""


def default_routing(view: DemandView) -> tuple[CandidateGroup, ...]:
    """Return all groups: those that meet more of the demand's preferences first, then those of lower ``priority``."""
    return view.groups


def ask_routing(policy: RoutingPolicy, view: DemandView) -> RoutingAnswer:
    """Ask a routing policy, whatever it does."""
    try:
        return RoutingAnswer(chosen_groups(policy(view), view))
    except BaseException as raised:  # noqa: BLE001 - it is somebody else's code; what it raised is reported
        return RoutingAnswer(tuple(each.name for each in default_routing(view)), _told(raised))


def chosen_groups(answer: Iterable[object], view: DemandView) -> tuple[str, ...]:
    """Return the names of the groups that a routing policy gives.

    Raises:
        ValueError: one is none of the view's, or is there twice.
    """
    known = {each.name: False for each in view.groups}
    names: list[str] = []
    for group in itertools.islice(answer, len(known) + 1):
        if not isinstance(group, CandidateGroup) or group.name not in known:
            raise ValueError(f"{group!r:.60} is none of the groups of the view")
        if known[group.name]:
            raise ValueError(f"the group {group.name!r} is there twice")
        known[group.name] = True
        names.append(group.name)
    return tuple(names)
