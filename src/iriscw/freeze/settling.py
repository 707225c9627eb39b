"""Bringing processes with CUDA back to running, by reading where they are.

Theory of operation. After an error, a cancellation or a crash nobody knows which calls of the driver had their effect,
and a call of unknown outcome is never repeated (INV-C5). So there is one loop, whatever happened: read all states, take
the one step that the table names, read again. The first row that applies counts:

================================= =================================================================================
what the reading shows            what is done
================================= =================================================================================
nothing lives                     it is over: gone
a process is FAILED               it is over: hopeless, the tree is killed and that is reported
it is the last reading            the same
a state cannot be told, or it is  unlock those that are LOCKED, in reverse order, if none can be CHECKPOINTED; else
UNKNOWN                           wait; read again: the process may be within another call
some are CHECKPOINTED             restore them, in reverse order; read again
some are LOCKED                   unlock them, in reverse order; read again (all are restored by now: INV-C4)
all are RUNNING                   it is over: running
================================= =================================================================================

Every round but a successful one counts, so the loop ends. A thaw goes the same way: what comes out of CRIU is
CHECKPOINTED.

*In reverse order* is the reverse of the order in which they were locked, one after the other: who was locked last is
let go first, so that none runs while one that was locked after it, and may wait for it, is held (INV-C4).

Why some are unlocked while a state cannot be told: where processes share a communicator (NCCL), a driver was seen to
answer nobody's question about the second one while the first one is locked (NVIDIA/cuda-checkpoint#30). To wait for the
answer would be to wait for ever, and then to kill both. Before any checkpoint was begun that is safe: none can be
CHECKPOINTED, so none is unlocked before all are restored.

A state that is UNKNOWN is not ours: no call of iriscw's leads there. It is given a few rounds to pass, as that of
another program's copy does, and not all of them.
"""

from __future__ import annotations

import enum

import attrs

from iriscw.freeze.effects import RestoreCuda, States, UnlockCuda
from iriscw.freeze.model import CudaState, TaskIdentity
from iriscw.runtime.vocabulary import SECOND

READINGS = 10
"""Rounds after which a tree is given up: two would do if every call had its effect, and a hanging driver costs some."""

READINGS_OF_UNKNOWN = 3
"""Rounds after which a tree is given up because the driver names a state that iriscw does not know."""

READ_AGAIN_NS = 2 * SECOND


class SettlingEnd(enum.Enum):
    """How a settling ended."""

    RUNNING = "running"
    GONE = "gone"
    HOPELESS = "hopeless"


class WaitAndRead(enum.Enum):
    """There is nothing to do but wait and read again."""

    READ_AGAIN = "read again"


@attrs.frozen
class Settled:
    """It is over, and a sentence that says why if it ended badly."""

    end: SettlingEnd
    text: str = ""


def settle(
    states: States,
    *,
    reading: int,
    copy_ns: int,
    unlock_ns: int,
    gpus: tuple[tuple[str, str], ...] = (),
    only_locked: bool = False,
) -> RestoreCuda | UnlockCuda | WaitAndRead | Settled:
    """Say what to do after the reading with this number, by the table above.

    Args:
        states: What was read.
        reading: Its number.
        copy_ns: For a restore.
        unlock_ns: For an unlock.
        gpus: The map for a restore, whole, or empty if nothing moves.
        only_locked: No checkpoint was ever begun, so none can be CHECKPOINTED, whatever cannot be read.
    """
    if not states.living:
        return Settled(SettlingEnd.GONE, "no process of the tree lives")
    failed = _in_state(states, CudaState.FAILED)
    if failed:
        return Settled(SettlingEnd.HOPELESS, f"CUDA gave up process {failed[0].pid}: its state is FAILED, for good")
    strange = _in_state(states, CudaState.UNKNOWN)
    unread = (*(task for task, state in states.cuda if state is None), *strange)
    checkpointed = _in_state(states, CudaState.CHECKPOINTED)
    locked = _in_state(states, CudaState.LOCKED)
    if strange and reading >= READINGS_OF_UNKNOWN:
        text = f"the driver names a state of process {strange[0].pid} that iriscw does not know"
        return Settled(SettlingEnd.HOPELESS, f"{text}: another program may copy its memory, or the driver is newer")
    if reading >= READINGS and (unread or checkpointed or locked):
        stuck = (*unread, *checkpointed, *locked)[0]
        return Settled(
            SettlingEnd.HOPELESS, f"process {stuck.pid} could not be brought back to running in {reading} tries"
        )
    if unread:
        return UnlockCuda(locked, unlock_ns, reading) if locked and only_locked else WaitAndRead.READ_AGAIN
    if checkpointed:
        return RestoreCuda(checkpointed, copy_ns, gpus, reading)
    if locked:
        return UnlockCuda(locked, unlock_ns, reading)
    return Settled(SettlingEnd.RUNNING)


def _in_state(states: States, wanted: CudaState) -> tuple[TaskIdentity, ...]:
    """Return the processes in a state, the last one that was locked first."""
    return tuple(task for task, state in reversed(states.cuda) if state is wanted)
