"""All journals pass the public suite."""

import pytest

from iriscw.journal.conformance import JournalConformance


class TestMemory(JournalConformance):
    """The simulated disk."""

    @pytest.fixture(autouse=True)
    def _rigs(self, memory_rig):
        self.rig = memory_rig


class TestSqlite(JournalConformance):
    """The real one."""

    @pytest.fixture(autouse=True)
    def _rigs(self, sqlite_rig):
        self.rig = sqlite_rig


class TestReplicated(JournalConformance):
    """A real disk that is gone after each crash, with a second copy."""

    @pytest.fixture(autouse=True)
    def _rigs(self, replica_rig):
        self.rig = replica_rig
