"""Bringing CUDA back to running: the step that each reading calls for, and the order in which it is taken."""

import itertools

import pytest

from iriscw.freeze.effects import RestoreCuda, States, UnlockCuda
from iriscw.freeze.model import CudaState, TaskIdentity
from iriscw.freeze.settling import READINGS, READINGS_OF_UNKNOWN, Settled, SettlingEnd, WaitAndRead, settle

RUNNING, LOCKED, CHECKPOINTED, FAILED, UNKNOWN = CudaState
FIRST, SECOND, THIRD = (TaskIdentity(100 + index, 5, "b") for index in range(3))


def step(*states, reading=1, only_locked=False, gpus=()):
    """Say what follows when the processes are in these states, in the order in which they were locked."""
    found = tuple(zip((FIRST, SECOND, THIRD), states, strict=False))
    living = tuple(task for task, _ in found)
    return settle(States(living, found), reading=reading, copy_ns=7, unlock_ns=8, gpus=gpus, only_locked=only_locked)


@pytest.mark.parametrize("states", [*itertools.product((RUNNING, LOCKED, CHECKPOINTED), repeat=3)])
def test_who_was_locked_last_is_let_go_first(states) -> None:
    """Restores and unlocks go in the reverse order of the locks, and nobody is unlocked before all are restored: C4."""
    taken = step(*states)
    wanted = CHECKPOINTED if CHECKPOINTED in states else LOCKED
    reverse = tuple(
        task for task, state in reversed([*zip((FIRST, SECOND, THIRD), states, strict=True)]) if state is wanted
    )
    match taken:
        case RestoreCuda(tasks=tasks, within_ns=within_ns):
            assert (wanted, tasks, within_ns) == (CHECKPOINTED, reverse, 7)
        case UnlockCuda(tasks=tasks, within_ns=within_ns):
            assert (wanted, tasks, within_ns) == (LOCKED, reverse, 8)
        case _:
            assert (taken, {*states}) == (Settled(SettlingEnd.RUNNING), {RUNNING})


@pytest.mark.parametrize("unread", [None, UNKNOWN])
def test_who_is_locked_is_unlocked_while_another_cannot_be_read(unread) -> None:
    """Where no checkpoint was begun: that one may answer only then. Else it may be CHECKPOINTED, and is waited for."""
    assert step(LOCKED, unread, LOCKED, only_locked=True) == UnlockCuda((THIRD, FIRST), 8, 1)
    assert step(LOCKED, unread, LOCKED) is WaitAndRead.READ_AGAIN
    assert step(RUNNING, unread, only_locked=True) is WaitAndRead.READ_AGAIN
    assert step(CHECKPOINTED, unread) is WaitAndRead.READ_AGAIN


def test_a_state_that_is_newer_than_we_are_is_given_a_few_rounds() -> None:
    """It is not waited for as long as one that cannot be read, and it is not taken for running."""
    assert step(RUNNING, UNKNOWN, reading=READINGS_OF_UNKNOWN - 1) is WaitAndRead.READ_AGAIN
    over = step(RUNNING, UNKNOWN, reading=READINGS_OF_UNKNOWN)
    assert isinstance(over, Settled)
    assert (over.end, "does not know" in over.text) == (SettlingEnd.HOPELESS, True)
    assert step(RUNNING, None, reading=READINGS_OF_UNKNOWN) is WaitAndRead.READ_AGAIN
    assert READINGS_OF_UNKNOWN < READINGS


@pytest.mark.parametrize("state", [None, LOCKED, CHECKPOINTED])
def test_it_comes_to_an_end(state) -> None:
    """After the last reading, and at once where a process is FAILED or none lives."""
    over = step(RUNNING, state, reading=READINGS)
    assert isinstance(over, Settled)
    assert (over.end, f"process {SECOND.pid}" in over.text) == (SettlingEnd.HOPELESS, True)
    assert step(state, FAILED, reading=0).end is SettlingEnd.HOPELESS
    assert step().end is SettlingEnd.GONE
