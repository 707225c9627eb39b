"""Real processes, really killed: what was said to be durable is there."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iriscw.journal import tool
from iriscw.journal.conformance import REGISTRY, Fact
from iriscw.journal.sqlite import SqliteJournal
from raised import that

STEPS = ["draft created", "draft filled", "draft synced", "draft renamed", "folder synced", "journal-000001.db removed"]
STARTED_S = 60.0


def start(folder, first, step="never"):
    """Start a writer."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer.py")), str(folder), str(first), step],
        stdout=subprocess.PIPE,
    )


def acknowledged(process, after_s):
    """Kill the writer ``after_s`` after its first word, and give the last sequence it said was durable."""
    heard = os.read(process.stdout.fileno(), 1 << 20)
    time.sleep(after_s)
    process.kill()
    heard += process.stdout.read()
    process.stdout.close()
    assert process.wait(STARTED_S) == -signal.SIGKILL
    return int(heard[: heard.rindex(b"\n")].split()[-1])


def check(folder, durable):
    """Open the journal and check it against what the writer does; give the last number written."""
    verdict = tool.verify(folder)
    assert verdict.problem is None
    journal = SqliteJournal.open(folder, registry=REGISTRY)
    try:
        assert journal.appended >= durable
        log = journal.read("/log")
        numbers = [fact.number for fact in log]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "facts are missing, repeated or out of order"
        assert log[0] == Fact("upto" if numbers[0] % 20 == 0 else "fact", numbers[0])
        done = sorted(
            fact.number for path in journal.paths() if path.startswith("/done/") for fact in journal.read(path)
        )
        # Every fifth number forgets. The crash may have come before the other record of the last number, or the forget.
        assert done == list(range(done[0], done[-1] + 1)) if done else numbers[-1] % 5 in (0, 1)
        assert not done or (done[-1] in (numbers[-1], numbers[-1] - 1) and len(done) <= 5)
        return numbers[-1]
    finally:
        journal.close()


def kill_often(folder, times):
    """Kill a writer again and again on one journal, at moments drawn between a commit and a few compactions."""
    moments = random.Random(1)
    number = durable = 0
    for _ in range(times):
        heard = acknowledged(start(folder, number), moments.uniform(0, 0.15))
        assert heard > durable, "sequences went back"
        durable = heard
        number = check(folder, durable)


def test_kill(tmp_path):
    """Five times: every acknowledged entry is there after SIGKILL, in order, and nothing is broken."""
    kill_often(tmp_path / "journal", 5)


@pytest.mark.parametrize(
    "times", [pytest.param(60, marks=pytest.mark.slow), pytest.param(1_000, marks=pytest.mark.soak)]
)
def test_kill_more(tmp_path, times):
    """The same, more often."""
    kill_often(tmp_path / "journal", times)


@pytest.mark.parametrize("step", STEPS)
def test_kill_in_compaction(tmp_path, step):
    """A process killed at any step of a compaction leaves one valid journal, and the next one cleans up."""
    folder = tmp_path / "journal"
    with start(folder, 0, step) as process:
        heard = process.stdout.read()
        assert process.wait(STARTED_S) == -signal.SIGKILL
    number = check(folder, int(heard.split()[-1]))
    assert number > 10
    left = sorted(file.name for file in folder.iterdir())
    new = step in STEPS[3:]
    assert left == ["journal-000002.db" if new else "journal-000001.db", "journal.lock"]


def test_torn_log(tmp_path):
    """The tail of SQLite's log, torn by a power cut, is dropped: what remains is a whole, shorter journal."""
    folder = tmp_path / "journal"
    process = start(folder, 0)
    durable = acknowledged(process, 0)
    log = next(folder.glob("*.db-wal"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 1_000)
    assert tool.verify(folder).problem is None
    journal = SqliteJournal.open(folder, registry=REGISTRY)
    assert journal.appended >= 0
    assert journal.appended != 0 or durable > 0
    journal.append("/log", [Fact("again")])
    journal.close()
    assert journal.durable == journal.appended


def test_locked_by_process(tmp_path):
    """A journal that another process writes is refused, and the refusal names the process."""
    from iriscw._errors import JournalLocked

    process = start(tmp_path / "journal", 0)
    os.read(process.stdout.fileno(), 100)
    with pytest.raises(JournalLocked, check=that(comes_from="files.Lock.__init__", names=process.pid)):
        SqliteJournal.open(tmp_path / "journal", registry=REGISTRY)
    acknowledged(process, 0)
    SqliteJournal.open(tmp_path / "journal", registry=REGISTRY).close()
