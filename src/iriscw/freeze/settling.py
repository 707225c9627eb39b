"""Bringing processes with CUDA back to running, by reading where they are.

Theory of operation. After an error, a cancellation or a crash nobody knows which calls of the driver had their effect,
and a call of unknown outcome is never repeated (INV-C5). So there is one loop, whatever happened: read all states, take
the one step that the table names, read again. The first row that applies counts:

============================ ======================================================================================
what the reading shows       what is done
============================ ======================================================================================
nothing lives                it is over: gone
a process is FAILED          it is over: hopeless, the tree is killed and that is reported
it is the last reading       the same
a state cannot be told       wait, read again: the process may be within another call
some are CHECKPOINTED        restore them, in reverse order; read again
some are LOCKED              unlock them, in reverse order; read again (all are restored by now: INV-C4)
all are RUNNING              it is over: running
============================ ======================================================================================

Every round but a successful one counts, so the loop ends. A thaw goes the same way: what comes out of CRIU is
CHECKPOINTED.
"""

from __future__ import annotations

import enum

import attrs

from iriscw.freeze.effects import RestoreCuda, States, UnlockCuda
from iriscw.freeze.model import CudaState, TaskIdentity
from iriscw.runtime.vocabulary import SECOND

READINGS = 10
"""Rounds after which a tree is given up: two would do if every call had its effect, and a hanging driver costs some."""

READ_AGAIN_NS = 2 * SECOND


class End(enum.Enum):
    """How a settling ended."""

    RUNNING = "running"
    GONE = "gone"
    HOPELESS = "hopeless"


class Wait(enum.Enum):
    """There is nothing to do but wait and read again."""

    READ_AGAIN = "read again"


@attrs.frozen
class Settled:
    """It is over, and a sentence that says why if it ended badly."""

    end: End
    text: str = ""


def settle(
    states: States, *, reading: int, copy_ns: int, unlock_ns: int, gpus: tuple[tuple[str, str], ...] = ()
) -> RestoreCuda | UnlockCuda | Wait | Settled:
    """Say what to do after the reading with this number, by the table above."""
    if not states.living:
        return Settled(End.GONE, "no process of the tree lives")
    failed = _in_state(states, CudaState.FAILED)
    if failed:
        return Settled(End.HOPELESS, f"CUDA gave up process {failed[0].pid}: its state is FAILED, for good")
    unknown = tuple(task for task, state in states.cuda if state is None)
    checkpointed = _in_state(states, CudaState.CHECKPOINTED)
    locked = _in_state(states, CudaState.LOCKED)
    if reading >= READINGS and (unknown or checkpointed or locked):
        stuck = (*unknown, *checkpointed, *locked)[0]
        return Settled(End.HOPELESS, f"process {stuck.pid} could not be brought back to running in {reading} tries")
    if unknown:
        return Wait.READ_AGAIN
    if checkpointed:
        return RestoreCuda(checkpointed, copy_ns, gpus, reading)
    if locked:
        return UnlockCuda(locked, unlock_ns, reading)
    return Settled(End.RUNNING)


def _in_state(states: States, wanted: CudaState) -> tuple[TaskIdentity, ...]:
    """Give the processes in a state, the last one that was locked first."""
    return tuple(task for task, state in reversed(states.cuda) if state is wanted)
