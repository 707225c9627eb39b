"""A trace, replayed on one machine in virtual time by a policy: how long people waited, and what it cost.

What is real: the policy, the guard, the ledger, the view. What is simulated: the bytes. A request takes what thawing
from the fastest tier with a copy takes; what only the repository has is fetched into the tier that the policy admits it
to; where none has room, it waits for the moves that make some. Between two requests one move runs at a time. A request
that comes meanwhile has it stopped, and what it had copied is lost; a checkpoint whose move was stopped three times is
moved to the end, and the request waits.
"""

from __future__ import annotations

from collections import Counter

import attrs

from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.checkpoint.tiering.guard import admitted, ask
from iriscw.checkpoint.tiering.model import CheckpointView, MoveReason, Proposal, TieringPolicy, TieringView, TierView
from iriscw.checkpoint.tiering.policies import ByWorth
from iriscw_sims.tiering.shelves import Shelves
from iriscw_sims.tiering.traces import GB, Trace

BUDGETS = {RAM: 96 * GB, DISK: 320 * GB}

MAX_STOPPED = 3


@attrs.frozen
class Replayed:
    """What came of it."""

    waited_s: float
    """Summed over all requests."""
    hits: dict[str, int]
    """Requests by the tier that had a copy."""
    moved_bytes: int
    """By the policy in the background; what requests fetched is not in it."""
    stopped_bytes: int
    """Copied and lost, because a request came."""
    refused: int
    """Proposals that the guard did not let through, but for such as only had to wait."""
    crowded: int
    """Requests that had to wait for room."""


class Clairvoyant(ByWorth):
    """Knows the trace: what is asked for next is worth most, for each byte and second that it saves. No real policy."""

    def __init__(self, trace: Trace) -> None:
        self.at = 0
        self._next: dict[str, list[int]] = {}
        for number, (_, artifact) in reversed([*enumerate(trace.requests)]):
            self._next.setdefault(artifact, []).append(number)

    def worth(self, view: TieringView, checkpoint: CheckpointView, tier: TierView) -> float:
        """Return how soon it is asked for again."""
        coming = self._next.get(checkpoint.artifact, [])
        while coming and coming[-1] < self.at:
            coming.pop()
        return 1 / (coming[-1] - self.at + 1) if coming else 0.0


@attrs.define
class _Run:
    """One replay so far."""

    shelves: Shelves
    policy: TieringPolicy
    waited_s: float = 0.0
    hits: Counter[str] = attrs.field(factory=Counter)
    moved_bytes: int = 0
    stopped_bytes: int = 0
    refused: int = 0
    crowded: int = 0
    stopped: Counter[str] = attrs.field(factory=Counter)

    def request(self, artifact: str, at: float) -> float:
        """Thaw; return how long it takes."""
        view, size, has = self.shelves.view(), self.shelves.sizes[artifact], self.shelves.copies[artifact]
        tier = next(each for each in view.tiers if each.name in has)
        self.hits[tier.name] += 1
        took = tier.speed.seconds(size)
        if tier.name == REPOSITORY:
            where, made_room_s = self._admit(view, size)
            has.append(where)
            took += made_room_s
        self.shelves.ledger = self.shelves.ledger.used(artifact, int(at * 1e9))
        self.waited_s += took
        return took

    def _admit(self, view: TieringView, size: int) -> tuple[str, float]:
        """Return the tier that something is fetched into, and how long it took to make room there."""
        where, error = admitted(self.policy, view, size)
        if error:
            raise AssertionError(f"the policy failed: {error}")
        if where:
            return where, 0.0
        self.crowded += 1
        lowest, seconds = view.tiers[-2].name, 0.0
        self.shelves.moved.clear()
        self.shelves.reserved[lowest] = size
        while not (where := admitted(self.policy, attrs.evolve(self.shelves, reserved={}).view(), size)[0]):
            (move,) = ask(self.policy, self.shelves.view(), 1).moves
            seconds += self._takes(*move)
            self._carry_out(*move)
        del self.shelves.reserved[lowest]
        return where, seconds

    def idle(self, seconds: float) -> None:
        """Move until the next request comes."""
        self.shelves.moved.clear()
        while seconds > 0:
            answer = ask(self.policy, self.shelves.view(), 1)
            if answer.error:
                raise AssertionError(f"the policy failed: {answer.error}")
            self.refused += sum(each.refusal.value not in ("too-many", "demand-first") for each in answer.refused)
            if not answer.moves:
                return
            seconds = self._move(*answer.moves[0], seconds)

    def _move(self, proposal: Proposal, reason: MoveReason, seconds: float) -> float:
        """Move, and return how much time is left until the next request."""
        took = self._takes(proposal, reason)
        if took > seconds and self.stopped[proposal.artifact] < MAX_STOPPED:
            self.stopped[proposal.artifact] += 1
            self.stopped_bytes += int(self.shelves.sizes[proposal.artifact] * seconds / took)
            return 0
        self.waited_s += max(0.0, took - seconds)
        self._carry_out(proposal, reason)
        return seconds - took

    def _takes(self, proposal: Proposal, reason: MoveReason) -> float:
        """Return how long a move takes: what it copies is read and written at once, what is there is compared."""
        size, speeds = self.shelves.sizes[proposal.artifact], self.shelves.ledger
        read = [proposal.target] if reason is MoveReason.DROP else [proposal.source, proposal.target]
        return max(speeds.speed(tier).seconds(size) for tier in read)

    def _carry_out(self, proposal: Proposal, reason: MoveReason) -> None:
        self.stopped.pop(proposal.artifact, None)
        self.moved_bytes += 0 if reason is MoveReason.DROP else self.shelves.sizes[proposal.artifact]
        self.shelves.carry_out(proposal, reason)


def replay(trace: Trace, policy: TieringPolicy) -> Replayed:
    """Replay a trace; everything lies in the repository first, and stays there.

    Raises:
        AssertionError: the policy raised, or gave what is no proposal.
    """
    shelves = Shelves(BUDGETS, trace.sizes, {each: [REPOSITORY] for each in trace.sizes})
    run = _Run(shelves, policy)
    ends = [at for at, _ in trace.requests[1:]] + [trace.requests[-1][0]]
    for number, ((at, artifact), until) in enumerate(zip(trace.requests, ends, strict=True)):
        if isinstance(policy, Clairvoyant):
            policy.at = number + 1
        took = run.request(artifact, at)
        run.idle(until - at - took)
    return Replayed(run.waited_s, dict(run.hits), run.moved_bytes, run.stopped_bytes, run.refused, run.crowded)
