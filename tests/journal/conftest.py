"""Rigs for both journals, for the suite that both pass and the model that both follow."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from iriscw.journal.conformance import BOUND_BYTES, REGISTRY
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.journal.port import JournalStatus
from iriscw.journal.replica import NameTaken, Replica, ReplicaUnreachable
from iriscw.journal.sqlite import SqliteJournal

PATIENCE_S = 30.0


def sqlite_error(code: int) -> sqlite3.OperationalError:
    """Return the error that SQLite raises with ``code``."""
    error = sqlite3.OperationalError(f"injected {code}")
    error.sqlite_errorcode = code
    return error


def await_until(condition, what: str) -> None:
    """Wait for another thread until ``condition`` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.001)


class MemoryRig:
    """A simulated disk."""

    def __init__(self, registry=REGISTRY, bound_bytes=BOUND_BYTES) -> None:
        self.disk = MemoryDisk()
        self._options = {"registry": registry, "bound_bytes": bound_bytes}
        self.journal = None

    def open(self):
        self.journal = MemoryJournal(self.disk, **self._options)
        return self.journal

    def settle(self):
        self.journal.commit()

    def hold(self):
        self.journal.stall()

    def fill(self):
        self.journal.fill()

    def free(self):
        self.journal.resume()
        self.journal.free()

    def lose(self):
        self.journal.lose()

    def crash(self):
        self.disk.crash(keep=0)


class SqliteRig:
    """A real disk, with a hook in each commit that can hold it back or fail it."""

    def __init__(self, directory: Path, registry=REGISTRY, bound_bytes=BOUND_BYTES, **options) -> None:
        self.directory = directory
        self._options = {"registry": registry, "bound_bytes": bound_bytes, **options}
        self._go = threading.Event()
        self._error: int | None = None
        self.journal = None

    def _before_commit(self) -> None:
        assert self._go.wait(PATIENCE_S)
        if self._error is not None:
            raise sqlite_error(self._error)

    def open(self):
        journal = SqliteJournal.open(self.directory, before_commit=self._before_commit, **self._options)
        self._error = None
        self._go.set()
        self.journal = journal
        return journal

    def settle(self):
        await_until(lambda: self.journal.durable == self.journal.appended, "the disk")

    def hold(self):
        self._go.clear()

    def fill(self):
        self._error = sqlite3.SQLITE_FULL
        self._go.set()
        if self.journal.durable < self.journal.appended:
            await_until(lambda: self.journal.status is JournalStatus.FULL, "FULL")

    def free(self):
        self._error = None
        self._go.set()

    def lose(self):
        self._error = sqlite3.SQLITE_IOERR_FSYNC
        self._go.set()
        await_until(lambda: self.journal.status is JournalStatus.LOST, "LOST")

    def crash(self):
        self._error = sqlite3.SQLITE_IOERR_FSYNC
        self._go.set()
        journal = self.journal
        # A commit that had passed the hook already may still succeed.
        await_until(lambda: journal.status is JournalStatus.LOST or journal.durable == journal.appended, "the crash")
        journal.close()


class MemoryVault:
    """Objects in memory; ``script`` says what becomes of the next writes: None is well."""

    where = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.script: list[str] = []
        self.away = False

    def put_new(self, name, data):
        fate = self.script.pop(0) if self.script else ""
        if self.away or fate == "lost":
            raise ReplicaUnreachable("the vault is away")
        if name in self.objects:
            raise NameTaken(name)
        self.objects[name] = data
        if fate == "unanswered":
            raise ReplicaUnreachable("the vault did not answer")

    def get(self, name):
        if self.away:
            raise ReplicaUnreachable("the vault is away")
        return self.objects.get(name)

    def has(self, name):
        return self.get(name) is not None

    def names(self, prefix):
        if self.away:
            raise ReplicaUnreachable("the vault is away")
        return sorted(name for name in self.objects if name.startswith(prefix))

    def delete(self, name):
        self.objects.pop(name, None)


class ReplicaRig(SqliteRig):
    """A disk that does not outlive a crash, and a second copy that does."""

    def __init__(self, directory, **options) -> None:
        super().__init__(directory, **options)
        self.vault = MemoryVault()
        self.openings = 0

    def open(self):
        self.openings += 1
        self._options["replica"] = Replica(self.vault, f"opening {self.openings}", per_base=4)
        return super().open()

    def crash(self):
        super().crash()
        shutil.rmtree(self.directory)


@pytest.fixture
def memory_vault():
    """Make places for second copies."""
    return MemoryVault


@pytest.fixture
def replica_rig(tmp_path):
    """Make rigs whose disks are gone after each crash; all journals are closed at the end."""
    rigs = []

    def make(directory=None, **options):
        rigs.append(ReplicaRig(directory or tmp_path / f"replicated{len(rigs)}", **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        if rig.journal is not None:
            rig.free()
            rig.journal.close()


@pytest.fixture
def sqlite_error_of():
    """The errors that SQLite raises."""
    return sqlite_error


@pytest.fixture
def until():
    """Waiting for another thread."""
    return await_until


@pytest.fixture
def memory_rig():
    """Make rigs on simulated disks."""
    return MemoryRig


@pytest.fixture
def sqlite_rig(tmp_path):
    """Make rigs on real disks; all journals are closed at the end."""
    rigs = []

    def make(directory=None, **options):
        rigs.append(SqliteRig(directory or tmp_path / f"journal{len(rigs)}", **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        if rig.journal is not None:
            rig.free()
            rig.journal.close()
