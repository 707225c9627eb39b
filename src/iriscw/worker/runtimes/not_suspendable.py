"""For runtimes whose attempts are never suspended: what is asked of others, refused by name."""

from __future__ import annotations

from pathlib import Path

from iriscw.worker.ports import ResumeRefused, RunningAttempt, Whereabouts


class Unmoved:
    """The part of a :class:`~iriscw.worker.ports.TaskRuntime` that brings suspended attempts back."""

    async def permit(self, uid: str, folder: Path, grant: str, where: Whereabouts) -> RunningAttempt:
        """Refuse it.

        Raises:
            ResumeRefused: always.
        """
        raise ResumeRefused(f"attempts of this worker are not processes of its machine: {uid} cannot go on here")

    async def thawed(self, uid: str, grant: str) -> RunningAttempt:
        """Refuse it.

        Raises:
            ResumeRefused: always.
        """
        raise ResumeRefused(f"{uid} was never permitted to go on here")

    async def revoke(self, uid: str, grant: str) -> RunningAttempt | None:
        """Nothing was permitted."""
        return None

    async def let_go(self, uid: str) -> None:
        """Nothing is suspended here."""
