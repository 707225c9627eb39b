"""Both journals against a list: whatever is accepted, committed, lost and reopened, reading gives what it should."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from iriscw.journal.conformance import Fact
from profiles import examples

PATHS = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/b"]
paths = st.sampled_from(PATHS)
facts = st.lists(st.builds(Fact, st.text(max_size=3), st.integers(0, 9)), max_size=4)


def takes(path, other):
    """Whether forgetting ``path`` takes ``other`` along."""
    return path in ("/", other) or other.startswith(path + "/")


def replayed(log):
    """Return what each path's records are after the operations of ``log``, in the order of their first."""
    live = {}
    for operation, path, value in log:
        if operation == "record":
            live.setdefault(path, []).append(value)
        elif operation == "snapshot":
            live.pop(path, None)
            live.update({path: list(value)} if value else {})
        else:
            live = {other: found for other, found in live.items() if not takes(path, other)}
    return live


class Model(RuleBasedStateMachine):
    """One entry of the log is one operation of the model; its length is the sequence."""

    make_rig = None

    @initialize()
    def begin(self):
        self.rig = self.make_rig()
        self.log = []
        self.held = False
        self.journal = self.rig.open()

    @rule(path=paths, records=facts)
    def append(self, path, records):
        self.log += [("record", path, record) for record in records]
        assert self.journal.append(path, records) == len(self.log)

    @rule(path=paths, records=facts)
    def snapshot(self, path, records):
        self.log.append(("snapshot", path, tuple(records)))
        assert self.journal.snapshot(path, records) == len(self.log)

    @rule(path=paths)
    def forget(self, path):
        self.log.append(("forget", path, None))
        assert self.journal.forget(path) == len(self.log)

    @rule()
    def settle(self):
        if not self.held:
            self.rig.settle()
            assert self.journal.durable == len(self.log)

    @rule()
    def hold_or_free(self):
        if self.held:
            self.rig.free()
        else:
            self.rig.settle()
            self.rig.hold()
        self.held = not self.held

    @rule()
    def close_and_reopen(self):
        self.rig.free()
        self.held = False
        self.journal.close()
        assert self.journal.durable == len(self.log)
        self.journal = self.rig.open()

    @rule(data=st.data())
    def crash_and_reopen(self, data):
        before = self.journal.durable
        kept = self.crash(data, before)
        self.held = False
        self.journal = self.rig.open()
        assert before <= self.journal.appended <= len(self.log)
        assert kept is None or self.journal.appended == kept
        del self.log[self.journal.appended :]

    def crash(self, data, before):
        self.rig.crash()

    @invariant()
    def reads_as_the_model(self):
        expected = replayed(self.log)
        assert self.journal.appended == len(self.log)
        assert self.journal.paths() == list(expected)
        assert {path: self.journal.read(path) for path in PATHS if self.journal.read(path)} == expected
        assert self.journal.statistics().live <= len(self.log)

    def teardown(self):
        if hasattr(self, "journal"):
            self.rig.free()
            self.journal.close()


@pytest.mark.hypothesis
def test_memory(memory_rig, monkeypatch):
    """The simulated disk follows the model; a crash may keep any prefix; it compacts all the time."""
    monkeypatch.setattr("iriscw.journal.memory.COMPACT_AFTER", 2)

    class MemoryModel(Model):
        make_rig = staticmethod(memory_rig)

        def crash(self, data, before):
            keep = data.draw(st.integers(0, self.rig.disk.pending_commits()))
            self.rig.disk.crash(keep)
            return before + keep

    run_state_machine_as_test(MemoryModel, settings=examples(30, stateful_step_count=25))


@pytest.mark.hypothesis
@pytest.mark.parametrize("compact_after", [3, 1_000])
def test_sqlite(sqlite_rig, compact_after):
    """The real disk follows the model, compacting all the time or never."""

    class SqliteModel(Model):
        def begin_folder(self):
            self.folder = Path(tempfile.mkdtemp())
            return sqlite_rig(self.folder / "journal", compact_after=compact_after)

        make_rig = begin_folder

        def teardown(self):
            super().teardown()
            shutil.rmtree(self.folder)

    run_state_machine_as_test(SqliteModel, settings=examples(12, stateful_step_count=20))


@pytest.mark.hypothesis
def test_replicated(replica_rig):
    """With a second copy: each crash takes the disk, and with it at most what was not durable."""

    class ReplicatedModel(Model):
        def begin_folder(self):
            self.folder = Path(tempfile.mkdtemp())
            return replica_rig(self.folder / "journal")

        make_rig = begin_folder

        def teardown(self):
            super().teardown()
            if hasattr(self, "folder"):
                shutil.rmtree(self.folder)

    run_state_machine_as_test(ReplicatedModel, settings=examples(10, stateful_step_count=20))
