"""A disk that is full under the journal of a command: it says so by name, and nothing waits for room for ever."""

import errno
import os
import sqlite3
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world

from agent_world import StepWorld, freeze_plan, machine_of
from freeze_world import HOOK

from iriscw._errors import JournalLost
from iriscw.agent import local as local_module
from iriscw.agent.local import Local
from iriscw.files import StateUnusable
from iriscw.freeze.messages import FreezeTree
from iriscw.freeze.model import NoRoom, Outcome
from iriscw.journal import sqlite as sqlite_module
from iriscw.journal.sqlite import SqliteJournal
from raised import that

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def full_from(monkeypatch):
    """Have the disk of each journal be full while a function says so."""
    opened = SqliteJournal.open

    def arrange(is_full, code=sqlite3.SQLITE_FULL):
        def before_commit():
            if is_full():
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = code
                raise error

        monkeypatch.setattr(
            local_module.SqliteJournal, "open", lambda folder: opened(folder, before_commit=before_commit)
        )

    monkeypatch.setattr(local_module, "FULL_PATIENCE_S", 0.1)
    monkeypatch.setattr(local_module, "FULL_LOOK_S", 0.01)
    monkeypatch.setattr(sqlite_module, "RETRY_PAUSE_FIRST_S", 0.001)
    return arrange


@pytest.mark.parametrize("step", ["quiesce", "lock", "dump", "seal"])
async def test_a_disk_that_fills_up_on_the_way(tmp_path, full_from, step) -> None:
    """It is given up by name, and the next command, with room, leaves the tree running and nothing of the freeze."""
    world = StepWorld()
    full_from(lambda: step in world.log)
    local = Local(tmp_path, machine_of(world))
    words = {"hook": HOOK} if step == "quiesce" else {}
    with pytest.raises(NoRoom, check=that(names="ck-1")):
        await local.run(FreezeTree(freeze_plan(world, **words)))
    assert [path.name for path in (tmp_path / "operations").iterdir()] == ["ck-1"]
    world.log.clear()
    world.crash(1)
    (end,) = await Local(tmp_path, machine_of(world)).recover()
    assert end.outcome is Outcome.UNDONE
    assert list((tmp_path / "operations").iterdir()) == []
    assert all(each.runs for each in world.processes)


async def test_a_disk_that_fails_on_the_way(tmp_path, full_from) -> None:
    """That never passes: it is given up at once, by name, and the tree runs on."""
    world = StepWorld()
    full_from(lambda: "dump" in world.log, sqlite3.SQLITE_IOERR_WRITE)
    with pytest.raises(JournalLost):
        await Local(tmp_path, machine_of(world)).run(FreezeTree(freeze_plan(world)))
    world.log.clear()
    world.crash(1)
    (end,) = await Local(tmp_path, machine_of(world)).recover()
    assert end.outcome is Outcome.UNDONE
    assert all(each.runs for each in world.processes)


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, NoRoom), (errno.EDQUOT, NoRoom), (errno.EROFS, StateUnusable)]
)
async def test_a_disk_on_which_nothing_can_be_begun(tmp_path, monkeypatch, number, error) -> None:
    """It is said before anything is touched, and nothing is left that the next command would take up."""

    def refused(folder):
        folder.mkdir()
        raise OSError(number, os.strerror(number))

    world = StepWorld()
    monkeypatch.setattr(local_module.SqliteJournal, "open", refused)
    with pytest.raises(error, check=that(comes_from="state.usable")):
        await Local(tmp_path, machine_of(world)).run(FreezeTree(freeze_plan(world)))
    assert list((tmp_path / "operations").iterdir()) == []
    assert world.log == []


async def test_a_state_that_cannot_be_made(tmp_path, monkeypatch) -> None:
    """A command that only takes up what is owed says so, too."""

    def refused(folder):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(local_module, "check_state", refused)
    with pytest.raises(StateUnusable, check=that(names=os.strerror(errno.EROFS))):
        await Local(tmp_path, machine_of(StepWorld())).recover()
