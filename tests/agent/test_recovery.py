"""What is read off the journal of an agent that died."""

import attrs
import pytest

from iriscw.agent.operations import Asked, OperationKind
from iriscw.agent.recovery import AgentLeftovers, Known, left_in
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import FreezePlan, Outcome, TaskIdentity, ThawPlan
from iriscw.freeze.records import FreezeAccepted, FreezeEnded, ThawAccepted, ThawEnded, ThawRestored
from iriscw.journal.sqlite import SqliteJournal

ROOT = TaskIdentity(100, 500, "boot-1")
FREEZE = FreezeAccepted(FreezePlan("ck-1", ROOT, "disk"), 1)
THAW = ThawAccepted(ThawPlan("th-1", "ck-9"), 1)


@pytest.fixture
def journal(tmp_path):
    """A journal that is closed afterwards."""
    made = SqliteJournal.open(tmp_path / "journal")
    yield made
    made.close()


def test_what_is_owed_and_what_is_over(journal, caplog):
    """Each operation is known by its first record, and owes something unless its last one says that it ended."""
    journal.append("/operations/ck-1", [FREEZE])
    journal.append("/operations/th-1", [THAW])
    journal.append("/operations/ck-2", [FREEZE, FreezeEnded(Outcome.UNDONE, "", "", 2)])
    journal.append("/operations/th-2", [THAW, ThawRestored((ROOT,)), ThawEnded(Outcome.THAWED, "", "", 2)])
    journal.append("/operations/odd", [FreezeEnded(Outcome.UNDONE, "", "", 2)])
    journal.append("/elsewhere/ck-3", [FREEZE])
    journal.append("/operations/ck-4", [FREEZE])
    journal.forget("/operations/ck-4")
    freeze = Known(Asked("ck-1", OperationKind.FREEZE, "freeze-boot-1-100-500"), "ck-1", "disk")
    thaw = Known(Asked("th-1", OperationKind.THAW, "thaw-ck-9"), "ck-9", "")
    ends = OperationEnded("ck-1", Outcome.UNDONE, "", ""), OperationEnded("th-1", Outcome.THAWED, "", "", 100)
    over = tuple(attrs.evolve(known, ended=end) for known, end in zip((freeze, thaw), ends, strict=True))
    assert left_in(journal) == AgentLeftovers((freeze, thaw), over)
    assert "operation odd cannot be taken up" in caplog.text


def test_one_that_cannot_be_read(journal, monkeypatch, caplog):
    """It is told of, and keeps none of the others."""
    from iriscw.journal.errors import UnreadableRecord

    journal.append("/operations/ck-0", [FREEZE])
    journal.append("/operations/ck-1", [FREEZE])
    read = journal.read

    def unreadable(path):
        if path.endswith("ck-0"):
            raise UnreadableRecord("of a newer version")
        return read(path)

    monkeypatch.setattr(journal, "read", unreadable)
    assert [each.asked.operation for each in left_in(journal).owed] == ["ck-1"]
    assert "operation ck-0 cannot be taken up: of a newer version" in caplog.text
