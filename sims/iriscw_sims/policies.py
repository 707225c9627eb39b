"""A user's policies, as a simulated world asks them: what they said is remembered, for the checks and for people.

Theory of operation. The fleet asks a policy and clamps its answer; where a policy fails the default one decides. That
is judged from outside here, by what the policy itself answered: how many slices a group has to have once nothing else
happens (:meth:`Asked.resting`), and whether the policy ever failed. Of a routing policy only the latter is judged: what
it starves is not over in the end.
"""

from __future__ import annotations

import operator
import traceback
from collections import deque
from types import TracebackType

from iriscw.fleet.model import GroupConfig
from iriscw.fleet.policy import (
    CandidateGroup,
    DemandView,
    GroupView,
    Policy,
    RoutingPolicy,
    chosen_groups,
    default_policy,
)
from iriscw.runtime.vocabulary import SECOND

ANSWERS_KEPT = 16
"""Of the answers that differ from the one before, or were given to other demand: as many as anybody reads."""


class Remembered:
    """What a policy said."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """What it raised first."""
        self.frames: TracebackType | None = None
        """Where: the frames of the policy itself. The error gets more of them, of the fleet's, on its way."""
        self.failure = ""
        """The same in words, with what it was asked."""
        self._told: deque[str] = deque(maxlen=ANSWERS_KEPT)

    def failed(self, error: Exception, view: GroupView | DemandView) -> None:
        """Remember the first error."""
        if self.error is None:
            what = "".join(traceback.format_exception_only(error)).strip()
            self.frames = None if error.__traceback__ is None else error.__traceback__.tb_next
            self.error, self.failure = error, f"{what}, at {view.now / SECOND:.3f} s, for {view}"

    @property
    def told(self) -> str:
        """What it answered, the last of it: for people."""
        return "\n".join(self._told)


class Asked(Remembered):
    """A policy that remembers what it was asked; itself a policy."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.answers: dict[str, int] = {}
        """The last answer for each group."""
        self._known: dict[str, tuple[int, int, int]] = {}

    def __call__(self, view: GroupView) -> int:
        """Ask; what the policy raises is raised."""
        try:
            answer = operator.index(self.policy(view))
        except Exception as error:
            self.failed(error, view)
            self.answers[view.group] = default_policy(view)
            raise
        known = (answer, view.wanted, view.busy)
        if self._known.get(view.group) != known:
            self._known[view.group] = known
            self._told.append(
                f"{view.now / SECOND:10.3f} s  {view.group}: {answer} slices, when demand wanted {view.wanted} beside"
                f" {view.busy} busy ones, {len(view.idle)} were idle, {view.absorbing} fresh or on their way"
            )
        self.answers[view.group] = answer
        return answer

    def resting(self, config: GroupConfig) -> int:
        """Return how many slices a group has once nothing else happens."""
        return min(max(self.answers.get(config.name, 0), config.min_slices), config.max_slices)


class AskedWhere(Remembered):
    """A routing policy that remembers what it was asked; itself one."""

    def __init__(self, policy: RoutingPolicy) -> None:
        super().__init__()
        self.policy = policy
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def __call__(self, view: DemandView) -> tuple[CandidateGroup, ...]:
        """Ask; what the policy raises is raised, and so is what is wrong with its answer."""
        try:
            answer = chosen_groups(self.policy(view), view)
        except Exception as error:
            self.failed(error, view)
            raise
        known = (view.tasks, answer)
        if self._known.get(view.demand_id) != known:
            self._known[view.demand_id] = known
            able = ", ".join(each.name for each in view.groups)
            self._told.append(
                f"{view.now / SECOND:10.3f} s  {view.demand_id}: {', '.join(answer) or 'no group'}, of {able}, for"
                f" {view.tasks} tasks that had waited {view.waited / SECOND:.3f} s"
            )
        by_name = {each.name: each for each in view.groups}
        return tuple(by_name[name] for name in answer)
