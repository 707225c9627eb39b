"""Which GPUs of the machine are this worker's: claimed while its process lives, so that nobody else offers them.

A claim is a name (:mod:`iriscw.processes.names`): whatever user and folder a worker has, no other one can take it
meanwhile, and it goes with the process that holds it. It counts within one network namespace.

Attempts outlive a worker that was killed, by their lease at most, and use their GPUs until then. So a GPU that nobody
claims is not free while a process of an attempt is there that has it; but for the attempts of this worker itself, which
it has taken up. Processes of other users are not seen.

What blocks runs in a thread.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import attrs

from iriscw._errors import OperationError
from iriscw.files import read_bounded
from iriscw.processes.names import SocketNameTaken, held_names, hold
from iriscw.processes.sweep import environments_with
from iriscw.task.context import MAX_CONTEXT_BYTES
from iriscw.task.environment import CONTEXT_FILE, GPUS_VARIABLE, PRIVATE_FOLDER, decode_facts
from iriscw.worker.gpus import GpuOffer

PREFIX: Final = "iriscw-gpu-"
_ATTEMPT: Final = "IRIS_ATTEMPT_UID"
_FOLDER: Final = "IRIS_WORKDIR"

MAX_TRIES: Final = 100
"""Each time another worker was faster somebody has got a GPU; no machine has so many."""


class GpusTaken(OperationError):
    """Fewer GPUs of this machine are free than the worker has promised: other workers have them."""

    retryable = True


@attrs.define(eq=False)
class GpuClaims:
    """The GPUs that this process holds, by UUID. Call :meth:`close` to give them all back."""

    _held: dict[str, socket.socket] = attrs.field(factory=dict)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return those that are held."""
        return tuple(self._held)

    def take(self, uuids: Sequence[str]) -> bool:
        """Hold these as well; give False, and hold none of them, if somebody was faster."""
        taken: dict[str, socket.socket] = {}
        for uuid in sorted(uuids):
            try:
                taken[uuid] = hold(f"{PREFIX}{uuid[:80]}")
            except (SocketNameTaken, OSError) as error:
                for each in taken.values():
                    each.close()
                if isinstance(error, OSError):
                    raise
                return False
        self._held |= taken
        return True

    def close(self) -> None:
        """Give all back. Repeating it is fine."""
        for name in self._held.values():
            name.close()
        self._held.clear()

    def __enter__(self) -> Self:
        """Hold what is taken until the block is left."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give all back."""
        self.close()


def claim(claims: GpuClaims, offer: GpuOffer, count: int, own: Mapping[str, Path], *, fewer: bool = False) -> GpuOffer:
    """Claim GPUs, those first that the worker's own attempts have. Blocks for a look at all processes.

    Args:
        claims: takes them.
        offer: the GPUs of the machine that the worker may have at all.
        count: how many it is to have.
        own: the attempts that it has taken up, with their working folders.
        fewer: whether to be content with those that are free.

    Returns:
        What the worker has now.

    Raises:
        GpusTaken: see there. Nothing is held.
        OSError: the kernel does not say.
    """
    before = [uuid for folder in own.values() for uuid in gpus_of(folder) or ()]
    for _ in range(MAX_TRIES):
        used = {uuid: who for uuid, who in used_by_attempts(own).items() if uuid not in before}
        others = {**used, **dict.fromkeys(claimed(), "another worker")}
        free = offer.free([tuple(others)])
        wanted = min(count, len(free)) if fewer else count
        chosen = offer.choose(free, wanted, before)
        if chosen is None:
            known = [f"{gpu.uuid} ({others[gpu.uuid]})" for gpu in offer.gpus if gpu.uuid in others]
            text = f"{count} GPUs were promised, and {len(free)} of {len(offer.gpus)} here are free"
            raise GpusTaken(f"{text}; taken are: {', '.join(known) or 'none'}")
        if claims.take(chosen):
            return offer.only(chosen)
    raise GpusTaken(f"other workers claimed GPUs {MAX_TRIES} times while this one chose")


def claimed() -> tuple[str, ...]:
    """Return the UUIDs of all GPUs that any worker of this network namespace holds. Blocks.

    Raises:
        OSError: the kernel does not say.
    """
    return held_names(PREFIX)


def used_by_attempts(own: Collection[str]) -> Mapping[str, str]:
    """Return for each GPU that an attempt has whose it is, but for ``own``. Blocks for a look at ``/proc``."""
    found: dict[str, str] = {}
    for variables in environments_with(_ATTEMPT):
        uid = variables[_ATTEMPT]
        if uid in own:
            continue
        gpus = gpus_of(Path(variables[_FOLDER])) if _FOLDER in variables else None
        if gpus is None:
            gpus = tuple(each for each in variables.get(GPUS_VARIABLE, "").split(",") if each)
        found |= dict.fromkeys(gpus, f"the attempt {uid[:64]!a}")
    return found


def gpus_of(workdir: Path) -> tuple[str, ...] | None:
    """Read which GPUs an attempt has now, by UUID; None if its program has spoilt that, or its worker never said."""
    try:
        return decode_facts(read_bounded(workdir / PRIVATE_FOLDER / CONTEXT_FILE, MAX_CONTEXT_BYTES)).gpus
    except (OSError, ValueError):
        return None
