"""A sync that really fails: a library loaded into the process makes ``fdatasync`` and ``fsync`` return EIO."""

import os
import shutil
import subprocess
import sys

import pytest

SOURCE = r"""
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int fail(void) { if (access(getenv("FAIL_SYNC"), F_OK)) return 0; errno = EIO; return -1; }
int fsync(int descriptor) { return fail(); }
int fdatasync(int descriptor) { return fail(); }
"""

PROGRAM = """
import os, pathlib, sys, time
from iriscw.journal.conformance import REGISTRY, facts
from iriscw.journal.port import JournalStatus
from iriscw.journal.sqlite import SqliteJournal
journal = SqliteJournal.open(sys.argv[1], registry=REGISTRY)
journal.append("/a", facts(1))
while journal.durable < 1:
    time.sleep(0.001)
pathlib.Path(os.environ["FAIL_SYNC"]).touch()
journal.append("/a", facts(2))
while journal.status is not JournalStatus.LOST:
    time.sleep(0.001)
os.unlink(os.environ["FAIL_SYNC"])
time.sleep(0.1)
print(journal.durable, journal.status.value)
try:
    journal.append("/a", facts(3))
except Exception as error:
    print(type(error).__name__, type(error.__cause__).__name__, error.__cause__.sqlite_errorname)
"""


def test_failed_sync(tmp_path):
    """The journal is LOST for ever, though the next sync would succeed; nothing more was said to be durable."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the library that fails syncs")
    (tmp_path / "fail.c").write_text(SOURCE)
    library = tmp_path / "fail.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "fail.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAIL_SYNC": str(tmp_path / "fail-now")}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "journal")],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout.splitlines() == ["1 lost", "JournalLost OperationalError SQLITE_IOERR_FSYNC"]
