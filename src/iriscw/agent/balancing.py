"""The agent's own moves: what its tiering policy proposes, whenever something has happened that may change that.

Theory of operation. A *round* begins when an operation of somebody else is over, a checkpoint was removed, or the agent
starts. The tiers are looked at, the policy is asked, what the guard lets through is begun as a durable move like any
other, and when that is over the policy is asked again, until nothing is left. Each checkpoint is moved at most once in
a round, so it ends. Nothing here waits for time to pass.

Whoever asks for a thaw or a move goes first. No move of ours begins until that is over. Those that run are stopped,
which undoes them: they would read the disk that the thaw reads, and the room that they take is what a fetch may need.
Two are not: one of a checkpoint whose moves were stopped ``MAX_STOPPED`` times is let run beside, or a busy machine
would never be rid of anything; and one whose copy can be seen already comes to its end. A thaw of the very checkpoint
that is moved waits until that is undone.

What is remembered of checkpoints (:mod:`iriscw.checkpoint.tiering.usage`) is written beside the journal after each
round. It is worth no more than a guess, so one that cannot be read begins anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
from attrs import validators

from iriscw._errors import IriscwError
from iriscw.agent.doors.figures import AgentFigures
from iriscw.agent.local import new_id
from iriscw.agent.operation_views import Board, RunningOperation
from iriscw.agent.operations import OperationKind
from iriscw.agent.order import Order
from iriscw.checkpoint.drivers.policies import Under, first_ledger, look
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.checkpoint.moving import CANCELLABLE
from iriscw.checkpoint.tiering.guard import admitted, ask
from iriscw.checkpoint.tiering.model import (
    NO_LIMIT,
    MoveReason,
    Proposal,
    Speed,
    TieringPolicy,
    TieringView,
    Watermarks,
)
from iriscw.checkpoint.tiering.usage import Usage, UsageLedger
from iriscw.files import read_bounded, write_atomic
from iriscw.freeze.messages import ThawTree
from iriscw.freeze.model import Outcome
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)

MAX_STOPPED = 3
"""How often the moves of one checkpoint are stopped for somebody else's thaw before one of them is let run."""

MAX_USAGE_BYTES = 16 << 20
"""Of the file with what is remembered: some hundred bytes for each checkpoint."""

GOES_FIRST = "somebody waits for a thaw or a move, which goes first"


@attrs.frozen(kw_only=True)
class Balancing:
    """How an agent balances its tiers: by which policy, between which marks, and with how many moves at once."""

    policy: TieringPolicy
    marks: Mapping[str, Watermarks] = attrs.field(factory=dict)
    limit: int = attrs.field(default=1, validator=[validators.ge(1), validators.le(16)])


@attrs.frozen
class _Own:
    """A move of ours that runs."""

    proposal: Proposal
    reason: MoveReason
    size_bytes: int


class Balancer:
    """Has the tiers of one agent balanced.

    Args:
        settings: how; None: not at all, then it only remembers.
        tiers: of this machine.
        board: what runs.
        figures: what is counted.
        file: where it is written what is remembered.
        begin: begins an operation.
        stop: has one undone.
    """

    def __init__(
        self,
        settings: Balancing | None,
        tiers: Tiers,
        board: Board,
        figures: AgentFigures,
        file: Path,
        *,
        begin: Callable[[Order], Awaitable[str]],
        stop: Callable[[str, str], None],
    ) -> None:
        self.settings = settings
        self._tiers = tiers
        self._board = board
        self._figures = figures
        self._file = file
        self._begin = begin
        self._stop = stop
        self._ledger = first_ledger()
        self._own: dict[str, _Own] = {}
        self._moved: dict[str, None] = {}
        self._fetched: dict[str, None] = {}
        self._stopped: Counter[str] = Counter()
        self._coming = 0
        self._woken = anyio.Event()
        self._written = b""

    # What happens outside

    def seen(self, before: RunningOperation, now: RunningOperation) -> None:
        """Take note of a change. Raises nothing, and is quick: all of the agent waits for it."""
        if not now.over or before.over:
            return
        own = self._own.pop(now.asked.operation, None)
        if own is not None:
            self._ended(own, now)
        else:
            self._moved.clear()
            if now.asked.kind is OperationKind.THAW:
                if now.end is not None and now.end.outcome is Outcome.THAWED:
                    self._thawed(now)
                self._fetched.pop(now.artifact, None)
        self._woken.set()

    def changed(self) -> None:
        """Begin a round: a checkpoint was removed, or the agent starts."""
        self._moved.clear()
        self._woken.set()

    def _ended(self, own: _Own, now: RunningOperation) -> None:
        outcome = now.end.outcome if now.end is not None else Outcome.STAYED
        done = outcome in (Outcome.MOVED, Outcome.COPIED)
        self._figures.balanced(own.reason, outcome, own.size_bytes if done and own.reason is not MoveReason.DROP else 0)
        if done:
            self._stopped.pop(now.artifact, None)
            if outcome is Outcome.MOVED and not own.proposal.keep:
                self._ledger = self._ledger.demoted(own.proposal.source, own.proposal.worth)
        log.info(
            "%s of %s from %s to %s: %s", own.reason.value, now.artifact, own.proposal.source, now.tier, outcome.value
        )

    def _thawed(self, now: RunningOperation) -> None:
        self._ledger = self._ledger.used(now.artifact, time.time_ns())
        if now.made is not None:
            self._ledger = self._ledger.took(now.made.tier, now.made.size_bytes, now.lasted_ns / SECOND)
            if now.artifact not in self._fetched:
                self._figures.hit(now.made.tier)

    def fetched(self, now: RunningOperation, size_bytes: int) -> None:
        """Take note of what was fetched from the repository for a thaw: it was that which had it."""
        if self._tiers.repository is not None:
            self._fetched[now.artifact] = None
            self._ledger = self._ledger.took(self._tiers.repository.name, size_bytes, now.lasted_ns / SECOND)
            self._figures.hit(self._tiers.repository.name)

    # What goes first

    def is_own(self, order: Order) -> bool:
        """Whether a move is one of ours."""
        return order.plan.operation in self._own

    @contextlib.asynccontextmanager
    async def going_first(self, order: Order) -> AsyncIterator[None]:
        """Make way for somebody's thaw or move: until it is begun here, and as long as the board shows it."""
        if self.is_own(order) or not isinstance(order, ThawTree | MoveCheckpoint):
            yield
            return
        self._coming += 1
        try:
            await self.make_way(order.plan.artifact)
            yield
        finally:
            self._coming -= 1
            self._woken.set()

    async def make_way(self, artifact: str) -> None:
        """Stop the moves of ours that can be, and wait until none has this checkpoint."""
        waits = []
        for operation, own in [*self._own.items()]:
            same = own.proposal.artifact == artifact
            view = self._board.view(operation) if self._board.shows(operation) else None
            begun = view is not None and view.phase not in ("", *(phase.value for phase in CANCELLABLE))
            if not begun and (same or self._stopped[own.proposal.artifact] < MAX_STOPPED):
                self._stopped[own.proposal.artifact] += 1
                self._stop(operation, GOES_FIRST)
            if same:
                waits.append(operation)
        for operation in waits:
            await self._over(operation)

    def _demands(self) -> int:
        running = self._board.running()
        return self._coming + sum(
            view.asked.kind is not OperationKind.FREEZE and view.asked.operation not in self._own and not view.aside
            for view in running
        )

    async def admit(self, size_bytes: int) -> str:
        """Return the tier that a checkpoint is fetched into: where the policy says, or else where there is room.

        Where no tier has room, what the policy demotes makes some first, as far as it can.
        """
        while self.settings is not None:
            tier, error = admitted(self.settings.policy, await self._look(), size_bytes)
            if tier:
                return tier
            if error:
                self._failed(error)
            if error or not await self._make_room(self.settings, size_bytes):
                break
        return await self._tiers.roomy(size_bytes)

    async def _make_room(self, settings: Balancing, size_bytes: int) -> bool:
        """Have the slowest tier of this machine that can hold so much emptied by one step; say whether it was."""
        able = [name for name, use in (await self._budgets()).items() if use >= size_bytes]
        if not able:
            return False
        if not self._own:
            view = attrs.evolve(await self._look({able[-1]: size_bytes}), demands=0)  # it is what somebody waits for
            answer = ask(settings.policy, view, settings.limit)
            sizes = {each.artifact: each.size_bytes for each in view.checkpoints}
            for proposal, reason in answer.moves:
                await self._move(_Own(proposal, reason, sizes[proposal.artifact]), urgent=True)
        waits = [*self._own]
        for operation in waits:
            await self._over(operation)
        return bool(waits)

    async def _budgets(self) -> dict[str, int]:
        return {each.name: each.budget_bytes for each in (await self._look()).tiers if each.budget_bytes < NO_LIMIT}

    async def _over(self, operation: str) -> None:
        """Wait until a move of ours is over."""
        if self._board.shows(operation):
            async with aclosing(self._board.follow(operation)) as views:
                async for _ in views:
                    pass

    # Rounds

    async def remember(self) -> None:
        """Read what an earlier agent wrote."""
        self._ledger = await anyio.to_thread.run_sync(remembered, self._file)

    async def run(self) -> None:
        """Balance until it is cancelled."""
        while True:
            self._woken = anyio.Event()
            try:
                if self.settings is not None:
                    await self._next(self.settings)
                await self._write()
            except Exception as error:  # noqa: BLE001 - whatever lies in a tier must not end the agent
                log.warning("the tiers cannot be balanced: %s: %s", type(error).__name__, error)
            await self._woken.wait()

    async def _next(self, settings: Balancing) -> None:
        """Ask once, and begin what is let through."""
        if not self._demands():  # its end wakes this
            view = await self._look()
            answer = ask(settings.policy, view, settings.limit)
            if answer.error:
                self._failed(answer.error)
            for each in answer.refused:
                self._figures.refused_proposal(each.refusal)
            sizes = {each.artifact: each.size_bytes for each in view.checkpoints}
            for proposal, reason in answer.moves:
                await self._move(_Own(proposal, reason, sizes[proposal.artifact]))
            for artifact in [each for each in self._stopped if each not in sizes]:
                del self._stopped[artifact]

    async def _move(self, own: _Own, *, urgent: bool = False) -> None:
        proposal = own.proposal
        if self._demands() and not urgent:  # somebody came while the tiers were looked at
            return
        operation = new_id("mv")
        self._own[operation] = own
        self._moved[proposal.artifact] = None
        plan = MovePlan(operation, proposal.artifact, proposal.target, proposal.keep, proposal.source)
        try:
            await self._begin(MoveCheckpoint(plan))
        except (IriscwError, OSError) as error:  # it is used by now, or as many operations run as may
            self._own.pop(operation, None)
            log.info("%s was not moved: %s", proposal.artifact, error)
            self._woken.set()

    async def _look(self, wanted: Mapping[str, int] | None = None) -> TieringView:
        assert self.settings is not None
        leaving = Counter[str]()
        for own in self._own.values():
            if not own.proposal.keep:
                leaving[own.proposal.source] += own.size_bytes
        under = Under(
            moved=tuple(self._moved),
            moving=len(self._own),
            demands=self._demands(),
            leaving=leaving,
            wanted=wanted or {},
        )
        before = self._ledger
        seen, view = await look(self._tiers, before, self.settings.marks, under)
        if self._ledger is before:  # else a thaw ended meanwhile: the next look has what this one would forget
            self._ledger = seen
        return view

    def _failed(self, error: str) -> None:
        log.warning("the tiering policy failed, and nothing is moved: %s", error)
        self._figures.policy_failed()

    async def _write(self) -> None:
        text = _text(self._ledger)
        if text != self._written:
            try:
                await anyio.to_thread.run_sync(write_atomic, self._file, text)
                self._written = text
            except OSError as error:
                log.warning("what is remembered of checkpoints cannot be written: %s", error)


def _text(ledger: UsageLedger) -> bytes:
    usage = {name: [each.uses, each.last_used_ns, dict(each.floors)] for name, each in ledger.usage.items()}
    speeds = {name: [each.wait_s, each.bytes_per_s] for name, each in ledger.speeds.items()}
    return json.dumps({"usage": usage, "floors": dict(ledger.floors), "speeds": speeds}).encode()


def remembered(file: Path) -> UsageLedger:
    """Return what an earlier agent remembered; nothing where there is none, or none that can be read."""
    try:
        found = json.loads(read_bounded(file, MAX_USAGE_BYTES))
        usage = {
            str(name): Usage(int(uses), int(last), {str(tier): float(floor) for tier, floor in floors.items()})
            for name, (uses, last, floors) in found["usage"].items()
        }
        speeds = {str(name): Speed(float(wait), float(speed)) for name, (wait, speed) in found["speeds"].items()}
        floors = {str(name): float(floor) for name, floor in found["floors"].items()}
        return UsageLedger(usage, floors, speeds=speeds)
    except FileNotFoundError:
        return first_ledger()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("what was remembered of checkpoints is forgotten: %s: %s", type(error).__name__, error)
        return first_ledger()
