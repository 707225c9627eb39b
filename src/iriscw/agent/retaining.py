"""Which checkpoints of this machine a policy of retention lets go, and an agent's own rounds of it.

What the repository has is left alone: other machines may need it. Where the repository cannot be read nobody knows what
that is, and nothing is removed. So is what lies in a folder that a caller named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from iriscw._errors import OperationError
from iriscw.agent.caller_folders import PREFIX
from iriscw.agent.doors.figures import AgentFigures
from iriscw.agent.operation_views import RunningOperation
from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.checkpoint.model import ListedArtifact
from iriscw.checkpoint.retention import Expired, KeptCheckpoint, RetentionPolicy, expired
from iriscw.freeze.model import ArtifactInUse, ArtifactUnknown
from iriscw.runtime.vocabulary import MILLISECOND

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent

log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0
"""Before what the policy would let go, and somebody needed, is looked at again: not every use ends with an event."""


def candidates(found: Sequence[ListedArtifact]) -> list[KeptCheckpoint]:
    """Return what a policy may let go of what this machine and its repository have."""
    return [
        KeptCheckpoint(
            each.artifact,
            sum(copy.size_bytes for copy in each.copies),
            each.manifest.sealed_wall_ns // MILLISECOND,
            each.manifest.labels,
            needed=needed_by(
                each.manifest.frozen.guard,
                [name for copy in each.copies for name in copy.pinned_by],
                carried=each.manifest.frozen.carried is not None,
            ),
        )
        for each in found
        if each.manifest is not None and all(copy.tier != REPOSITORY for copy in each.copies)
    ]


def needed_by(guard: str, pins: Sequence[str], *, carried: bool = False) -> str:
    """Say who needs a checkpoint, if somebody of this machine does: ``guard`` is the folder of its attempt.

    One that carries that folder goes on without it: as long as only this machine has it, its job may have no other.
    """
    if guard and carried:
        return "it is of a job's task, and is to come to a repository"
    if guard and Path(guard).is_dir():
        return "it is of a job's task, whose attempt is still here"
    return f"operation {pins[0]} uses it" if pins else ""


async def let_go(
    those: Sequence[KeptCheckpoint],
    policy: RetentionPolicy,
    remove: Callable[[str], Awaitable[None]],
    needed: tuple[type[Exception], ...],
) -> AsyncGenerator[tuple[Expired, Exception | None], None]:
    """Remove what the policy lets go; yield each, with the error by which it turned out to be needed.

    What is needed stays, and is counted as such: the policy is asked again. So is what meets one of these errors.

    Raises:
        IriscwError, OSError: one could not be removed for another reason; those before it are.
    """
    left = {each.checkpoint: each for each in those}
    now_ms = time.time_ns() // MILLISECOND
    again = True
    while again:
        again = False
        for gone in expired(left.values(), policy, now_ms):
            try:
                await remove(gone.checkpoint)
            except needed as error:
                left[gone.checkpoint] = attrs.evolve(left[gone.checkpoint], needed=str(error))
                yield gone, error
                again = True
                break
            del left[gone.checkpoint]
            yield gone, None


class Retainer:
    """Has a policy applied to an agent's checkpoints: when it starts, when an operation ends, and when one grows old.

    Args:
        policy: which; None: nothing is removed that nobody asked for.
        agent: whose.
        figures: what is counted.
    """

    def __init__(self, policy: RetentionPolicy | None, agent: Agent, figures: AgentFigures) -> None:
        self._policy = policy
        self._agent = agent
        self._figures = figures
        self._woken = anyio.Event()

    def seen(self, before: RunningOperation, now: RunningOperation) -> None:
        """Take note of a change. Raises nothing, and is quick: all of the agent waits for it."""
        if now.over and not before.over:
            self._woken.set()

    async def run(self) -> None:
        """Apply the policy until it is cancelled."""
        while self._policy is not None:
            self._woken = anyio.Event()
            after_s = AGAIN_S
            try:
                after_s = await self._apply(self._policy)
            except Exception as error:  # noqa: BLE001 - whatever lies in a tier must not end the agent
                log.warning("no checkpoint is removed for its retention: %s: %s", type(error).__name__, error)
            with anyio.move_on_after(after_s):
                await self._woken.wait()

    async def _apply(self, policy: RetentionPolicy) -> float:
        """Apply it once; return after how many seconds that is due again if nothing happens."""
        agent = self._agent
        stored = await agent.machine.tiers.stored()  # that it cannot be read is an error: nothing is removed
        found, _ = await agent.look()
        ours = [each for each in found if not any(copy.tier.startswith(PREFIX) for copy in each.copies)]
        held = {each.artifact for each in stored}
        those = [each for each in candidates(ours) if each.checkpoint not in held]
        kept = {each.checkpoint: each for each in those}
        refused = False
        stays = (ArtifactInUse, ArtifactUnknown, OperationError, OSError)
        remove = partial(agent.remove, here_only=True)  # one may be stored while others are removed
        async with aclosing(let_go(those, policy, remove, stays)) as removed:
            async for gone, error in removed:
                kept.pop(gone.checkpoint)
                if error is None:
                    self._figures.expired()
                    log.info("removed %s: %s", gone.checkpoint, gone.why)
                else:
                    refused = True
                    log.info("%s stays: %s", gone.checkpoint, error)
        return self._due_s(policy, list(kept.values()), refused=refused)

    @staticmethod
    def _due_s(policy: RetentionPolicy, kept: Sequence[KeptCheckpoint], *, refused: bool) -> float:
        again_s = AGAIN_S if refused or any(each.needed for each in kept) else float("inf")
        if policy.max_age_ms is None or not kept:
            return again_s
        now_ms = time.time_ns() // MILLISECOND
        sealed = [each.sealed_at_ms for each in kept if each.sealed_at_ms and not each.needed]
        ages = [each + policy.max_age_ms - now_ms for each in sealed]
        return min([again_s, *(max(0.0, each / 1000 + 0.001) for each in ages)])
