"""What the newest slice of a group says of those that could still come: pure.

Theory of operation. All slices of a group promise the same, and differ in what only a running worker says of itself
(:mod:`iriscw.fleet.useless`). Demand that asks for that cannot know whether the next slice will do, but the slice that
was asked for last is the best guess: it has the image of today. As long as it could not run what waits, new slices are
in *doubt* for that demand. Nothing is asked for then, but for one slice at a time as a trial, since an image changes
without a word. The first trial begins as soon as what waits has been there for as long as a trial takes, and the
newest slice as well; after each one in vain the demand waits as long again as it has waited so far, up to
:data:`LONGEST_PAUSE`. A fleet would else buy slices without end that stand idle and go.

A group that let an idle slice go for another (:mod:`iriscw.fleet.groups.renewal`) has its own pauses: until the other
is there the trial is due.

What is known is forgotten with each incarnation of ``/fleet``; its groups tell it of the slices that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from iriscw.cloud.model import Attributes, Constraint
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import GroupConfig, SliceRow, SliceState
from iriscw.fleet.useless import could_run, is_choosy
from iriscw.runtime.vocabulary import SECOND

LONGEST_PAUSE = 6 * 3600 * SECOND
"""Between two slices that are tried in vain: four boots a day, each of half an hour, cost less than two hours."""

Asked: TypeAlias = tuple[str, tuple[Constraint, ...], str, int]
"""What some demand asks of slices of a group: the group, what is required, and what a gang shares, with its size."""


@attrs.frozen
class Newest:
    """The slice of a group that was asked for last, of those that became ready."""

    slice_id: str
    requested_at: int
    """Wall-clock ns."""
    workers: tuple[Attributes, ...]
    known_at: int
    """Since when its workers are known to be like that: monotonic ns."""


@attrs.frozen
class Doubt:
    """That new slices of a group will not do for some demand."""

    due: bool
    """Whether one may be asked for now, to see."""
    next_at: int
    """When that is: wall-clock ns."""


Doubts: TypeAlias = Mapping[tuple[str, str], Doubt]
"""By group and demand."""


@attrs.frozen
class TrialPause:
    """How long some demand waits for the next trial. Monotonic ns, but for ``next_at``."""

    since: int
    until: int
    next_at: int
    """``until`` for people: wall-clock ns."""


@attrs.frozen
class Prospect:
    """A group in which another slice may come."""

    config: GroupConfig
    boot_estimate: int
    """How long a boot is thought to take, in ns."""
    renewing: bool
    """Whether a slice went for another that is not there yet."""

    @property
    def trial_takes(self) -> int:
        """The time until another slice is there, and has shown whether it is of use, in ns."""
        return self.boot_estimate + self.config.timing.scale_up_delay + self.config.timing.scale_down_delay


@attrs.define
class NewestSlices:
    """What the fleet knows of the newest slice of each group, and how long demand waits for others."""

    newest: dict[str, Newest] = attrs.field(factory=dict)
    pauses: dict[Asked, TrialPause] = attrs.field(factory=dict)

    def note(self, row: SliceRow, workers: tuple[Attributes, ...], now: int) -> bool:
        """Note how a slice stands; tell whether it is news."""
        before = self.newest.get(row.group)
        if row.state is not SliceState.READY or not workers or len(workers) < row.num_vms:
            return False
        if before is not None:
            if row.requested_at < before.requested_at:
                return False
            if (row.slice_id, workers) == (before.slice_id, before.workers):
                return False
        self.newest[row.group] = Newest(row.slice_id, row.requested_at, workers, now)
        return True

    def doubts(
        self,
        entries: Iterable[DemandEntry],
        prospects: Iterable[Prospect],
        now: int,
        wall: int,
    ) -> Doubts:
        """Say for which demand new slices of which groups are in doubt; what waits no more is forgotten.

        Args:
            entries: what waits.
            prospects: the groups that have told how they stand.
            now: monotonic ns.
            wall: wall-clock ns.
        """
        pauses: dict[Asked, TrialPause] = {}
        found: dict[tuple[str, str], Doubt] = {}
        choosy = [entry for entry in entries if entry.count > 0 and is_choosy(entry)]
        for prospect in prospects if choosy else ():
            name = prospect.config.name
            newest = self.newest.get(name)
            if newest is None:
                continue
            for entry in choosy:
                if not could_run(newest.workers, entry, prospect.config.per_worker):
                    asked = _asked(name, entry)
                    pause = pauses[asked] = self._pause(asked, newest, prospect.trial_takes, now, wall)
                    found[name, entry.demand_id] = Doubt(prospect.renewing or now >= pause.until, pause.next_at)
        self.pauses = pauses
        return found

    def next_trial(self, now: int) -> int | None:
        """Return the time until the next trial comes due, in ns; None if none does."""
        return min((each.until - now for each in self.pauses.values() if each.until > now), default=None)

    def _pause(self, asked: Asked, newest: Newest, trial_takes: int, now: int, wall: int) -> TrialPause:
        before = self.pauses.get(asked)
        since = now if before is None else before.since
        waited = max(trial_takes, newest.known_at - since)
        until = newest.known_at + min(waited, max(trial_takes, LONGEST_PAUSE))
        if before is not None and before.until == until:
            return before
        return TrialPause(since, until, wall + until - now)


def _asked(group: str, entry: DemandEntry) -> Asked:
    return group, tuple(each for each in entry.constraints if each.required), entry.gang_by, entry.gang_size
