"""``checkpoints --retain``: the policy as users write it, and how it is applied, wherever the checkpoints are."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from iriscw.cli.kinds import Duration, SizeType
from iriscw.cli.outcome import headline

if TYPE_CHECKING:
    from iriscw.checkpoint.retention import KeptCheckpoint, RetentionPolicy

_COUNT: Final = click.IntRange(min=0)
_KINDS: Final[dict[str, tuple[str, click.ParamType[Any]]]] = {
    "max-checkpoints": ("max_checkpoints", _COUNT),
    "max-total-size": ("max_total_size_bytes", SizeType()),
    "max-checkpoint-size": ("max_checkpoint_size_bytes", SizeType()),
    "max-age": ("max_age_ms", Duration()),
    "per": ("per", click.STRING),
}
"""The names of a policy's parts, with the field and the kind of each."""


class Retention(click.ParamType["RetentionPolicy"]):
    """Text such as ``max-checkpoints=3,max-age=7d,per=job`` to a policy."""

    name = "retention"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RetentionPolicy:
        """Read it."""
        from iriscw.checkpoint.retention import RetentionPolicy

        if isinstance(value, RetentionPolicy):
            return value
        fields: dict[str, Any] = {}
        for part in str(value).split(","):
            name, sign, text = (each.strip() for each in part.partition("="))
            if name not in _KINDS or not sign or not text:
                known = ", ".join(f"{each}=" for each in _KINDS)
                self.fail(f"{part!r} is not a part of a policy; such are {known}", param, ctx)
            field, kind = _KINDS[name]
            if field in fields:
                self.fail(f"{name} has two values", param, ctx)
            found = kind.convert(text, param, ctx)
            fields[field] = round(found * 1000) if field == "max_age_ms" else found
        policy = RetentionPolicy(**fields)
        if not policy.bounds:
            self.fail(f"{value!r} bounds nothing", param, ctx)
        return policy


def refuse_needed(checkpoint: str, needed: str) -> None:
    """Refuse to remove the state of a task that may be suspended: it would begin anew.

    Args:
        checkpoint: which.
        needed: why; empty: it is not.

    Raises:
        CheckpointNeeded: it is.
    """
    from iriscw.nodes.errors import CheckpointNeeded

    if needed:
        raise CheckpointNeeded(
            f"{checkpoint} stays: {needed}; resume the job (iriscw resume JOB), or ask its controller, which knows "
            "whether it is needed (iriscw checkpoints --cluster --remove)"
        )


async def retain(
    candidates: Sequence[KeptCheckpoint],
    policy: RetentionPolicy,
    *,
    dry_run: bool,
    remove: Callable[[str], Awaitable[None]],
) -> None:
    """Remove what the policy lets go, and say why. What turns out to be needed stays, and is counted as such.

    Raises:
        IriscwError: nobody can say whether one is needed; those that were named before are removed.
        OSError: the first by which one could not be removed; it stays, and the others were looked at all the same.
    """
    from contextlib import aclosing

    from iriscw.agent.retaining import let_go
    from iriscw.client.errors import OrderFailed
    from iriscw.freeze.model import ArtifactInUse
    from iriscw.nodes.errors import CheckpointNeeded

    async def only_say(checkpoint: str) -> None:
        """Remove nothing."""

    needed = (ArtifactInUse, CheckpointNeeded, OrderFailed, OSError)
    failures: list[OSError] = []
    async with aclosing(let_go(candidates, policy, only_say if dry_run else remove, needed)) as those:
        async for gone, error in those:
            if isinstance(error, OSError):
                failures.append(error)
            if error is not None:
                sys.stderr.write(f"iriscw: {gone.checkpoint} stays: {headline(error)}\n")
            else:
                sys.stderr.write(f"iriscw: {'would remove' if dry_run else 'removed'} {gone.checkpoint}: {gone.why}\n")
    if failures:
        raise failures[0]
