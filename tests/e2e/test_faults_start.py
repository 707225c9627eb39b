"""A controller that cannot start, or cannot go on, ends with one line that names why; its jobs are not lost."""

import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import PATIENCE_S, SMALL, ControllerProcess, controller_process, still_serves

from iriscw._errors import OutcomeUnknown
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState

USAGE, REFUSED = 2, 3

FAILING_SYNC = r"""
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int fail(void) { if (access(getenv("FAIL_SYNC"), F_OK)) return 0; errno = EIO; return -1; }
int fsync(int descriptor) { return fail(); }
int fdatasync(int descriptor) { return fail(); }
"""


def refusal(done, code):
    """The one line of a process that ended by itself."""
    assert done.returncode == code, done.stderr
    [line] = [each for each in done.stderr.splitlines() if not each.startswith("{")]  # the others are its log
    return line


@pytest.mark.slow
async def test_unknown_keys_are_named(tmp_path):
    """A configuration with a slip is refused with the place of the slip and the nearest key."""
    controller = ControllerProcess(tmp_path, controler={"local": {}})
    done = controller.once()
    assert done.returncode == USAGE
    assert done.stderr.startswith(f"ConfigError: {controller.config}: line ")
    assert done.stderr.endswith("controler: unknown key; did you mean controller?\n")
    assert not controller.state_dir.exists()


@pytest.mark.slow
async def test_what_is_taken_is_named(tmp_path):
    """A port in use and a journal in use refuse the newcomer by name; who was there first serves on."""
    async with controller_process(tmp_path) as controller:
        second = refusal(controller.once(), REFUSED)
        assert second.startswith("JournalLocked: ")
        assert str(controller.pid) in second
        other = ControllerProcess(tmp_path)
        other.state_dir = tmp_path / "other"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            assert refusal(other.once("--port", port), REFUSED).startswith("AddressInUse: ")
        async with controller.client() as client:
            await still_serves(client)


@pytest.fixture
async def killed(tmp_path):
    """A controller that had a job, and was killed; it is expected to be able to start in the end."""
    async with controller_process(tmp_path, nodes=1) as controller:
        async with controller.client() as client:
            await still_serves(client)
        await controller.kill()
        yield controller


def journal_file(controller):
    """Where the journal's rows are."""
    [file] = (controller.state_dir / "journal").glob("*.db")
    return file


@pytest.mark.slow
async def test_a_corrupt_journal_is_named(killed):
    """One flipped bit is found at the start, with its sequence; with the bit put right nothing is lost."""
    file = journal_file(killed)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sequence, before = database.execute(
            "SELECT sequence, payload FROM entries WHERE length(payload) > 8 ORDER BY sequence LIMIT 1 OFFSET 2"
        ).fetchone()
        flipped = before[:5] + chr(ord(before[5]) ^ 1) + before[6:]
        database.execute("UPDATE entries SET payload = ? WHERE sequence = ?", (flipped, sequence))
    database.close()
    line = refusal(killed.once(), REFUSED)
    assert line.startswith("JournalCorrupt: ")
    assert f"sequence {sequence}" in line
    with sqlite3.connect(file) as database:
        database.execute("UPDATE entries SET payload = ? WHERE sequence = ?", (before, sequence))
    database.close()
    await killed.start()
    async with killed.client() as client:
        assert [job.seen.state for job in await client.jobs()] == [JobState.SUCCEEDED]
        await still_serves(client)


@pytest.mark.slow
async def test_a_truncated_journal_is_named(killed):
    """A journal of which the end is cut off is refused by name; the whole file put back, nothing is lost."""
    file = journal_file(killed)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    line = refusal(killed.once(), REFUSED)
    assert line.startswith("JournalCorrupt: ")
    file.write_bytes(whole)
    await killed.start()
    async with killed.client() as client:
        assert [job.seen.state for job in await client.jobs()] == [JobState.SUCCEEDED]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here to build the library that fails syncs")
async def test_a_failed_sync_ends_the_controller(tmp_path):
    """After a sync that failed nothing is acknowledged: the process ends by name, and the next one has all."""
    library, switch = failing_sync(tmp_path), tmp_path / "fail-now"
    environment = {"LD_PRELOAD": str(library), "FAIL_SYNC": str(switch)}
    async with controller_process(tmp_path, nodes=1, environment=environment) as controller:
        async with controller.client() as client:
            kept = await client.submit(Command(["true"]), name="kept", resources=SMALL)
            switch.touch()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(submit_quietly, client)
                assert await controller.ended() == REFUSED
                switch.unlink()
                tasks.cancel_scope.cancel()
        [line] = [each for each in controller.lines if not each.startswith("{")]
        assert line.startswith("JournalLost: ")
        await controller.start()
        async with controller.client() as client:
            with anyio.fail_after(PATIENCE_S):
                assert (await (await client.job(kept.id)).wait()).state is JobState.SUCCEEDED
            await still_serves(client)


def failing_sync(folder):
    """Build the library that makes syncs fail once there is a file."""
    source, library = folder / "fail.c", folder / "fail.so"
    source.write_text(FAILING_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


async def submit_quietly(client):
    """Ask for something that cannot be promised any more: nobody knows whether it was."""
    with pytest.raises(OutcomeUnknown):
        await client.submit(Command(["true"]), name="unacknowledged", resources=SMALL)
