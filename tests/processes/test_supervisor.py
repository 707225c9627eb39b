"""What the supervisor does on its own: end its program with the lease, keep a log within its bound, tell the end on a
full disk and whatever the program does to its files.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from iriscw.processes import supervisor
from iriscw.processes.identity import ProcessGone, pidfd_of, send_signal
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.supervised import LeaseOver, Program, SpawnFailed, Supervised, adopt, launch
from iriscw.processes.sweep import marked_processes
from raised import that

MARKER = "IRIS_ATTEMPT_UID"
SECOND = 1_000_000_000
PATIENCE_S = 60

PAUSE = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = """
import os, signal, time
signal.signal(15, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print("up", flush=True)
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def lease(tmp_path: Path):
    lease = LeaseFile(tmp_path / "lease")
    yield lease
    lease.close()


def renew(lease: LeaseFile, until_ns: int) -> int:
    lease.hold(until_ns)
    lease.write()
    return until_ns


def program(tmp_path: Path, code: str, **changes) -> Program:
    values = {
        "argv": (sys.executable, "-I", "-S", "-c", code),
        "folder": tmp_path / "program",
        "workdir": tmp_path,
        "stdout": tmp_path / "program" / "log",
        "stderr": tmp_path / "program" / "log",
        "markers": {MARKER: str(tmp_path)},
        "environment": {"PATH": os.environ["PATH"]},
    }
    return Program(**{**values, **changes})


async def until_text(path: Path, text: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while text not in text_of(path):  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def shorten(lease: LeaseFile, running: Supervised, seconds: float) -> int:
    """Let the lease end that soon. Programs begin with one without an end: a slow machine may take its time."""
    until_ns = renew(lease, time.monotonic_ns() + round(seconds * SECOND))
    running.look_at_lease()
    return until_ns


async def test_without_renewal_the_lease_is_the_end(tmp_path: Path, lease: LeaseFile) -> None:
    """Nobody orders it: at the end of the lease, and not before, everything below the supervisor is killed."""
    renew(lease, NEVER_NS)
    asked = program(tmp_path, STUBBORN, lease=lease.path)
    running = await launch(asked)
    await until_text(asked.stdout, "up")
    until_ns = shorten(lease, running, 1)
    with anyio.fail_after(PATIENCE_S):
        ending = await running.wait()
    assert time.monotonic_ns() >= until_ns
    assert (ending.lease_over, ending.killed, ending.stopped, ending.signal) == (True, True, True, signal.SIGKILL)
    assert marked_processes({MARKER: str(tmp_path)}) == ()


async def test_a_renewed_lease_lets_it_live(tmp_path: Path, lease: LeaseFile) -> None:
    """The supervisor looks again when the time that it read has come: the program that outlives it ends by itself."""
    renew(lease, NEVER_NS)
    code = "import signal; signal.pthread_sigmask(0, [10]); print('up', flush=True); signal.sigwait([10])"
    asked = program(tmp_path, code, lease=lease.path)
    running = await launch(asked)
    await until_text(asked.stdout, "up")
    until_ns = shorten(lease, running, 3)
    await anyio.sleep(0.2)  # for it to be read
    renew(lease, NEVER_NS)
    await anyio.sleep((until_ns - time.monotonic_ns()) / SECOND + 0.5)
    assert running.alive
    assert running.target is not None
    send_signal(running.target, signal.SIGUSR1)
    with anyio.fail_after(PATIENCE_S):
        ending = await running.wait()
    assert (ending.code, ending.lease_over, ending.stopped) == (0, False, False)


async def test_a_lease_that_ends_sooner_has_to_be_told(tmp_path: Path, lease: LeaseFile) -> None:
    """The supervisor waits for what it read last; a look is enough."""
    renew(lease, NEVER_NS)
    running = await launch(program(tmp_path, PAUSE, lease=lease.path))
    renew(lease, 1)
    running.look_at_lease()
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).lease_over
    running.look_at_lease()  # it is gone: nothing happens


async def test_nothing_starts_after_its_lease(tmp_path: Path, lease: LeaseFile) -> None:
    """An order that was carried out too late executes nothing of the program."""
    touched = tmp_path / "touched"
    with pytest.raises(LeaseOver, check=that(comes_from="supervised.launch", names="lease")):
        await launch(program(tmp_path, f"open({str(touched)!r}, 'w')", lease=lease.path))
    assert not touched.exists()
    assert marked_processes({MARKER: str(tmp_path)}) == ()


@pytest.mark.parametrize("content", [b"", b"x", b"boot 99999999999999999999 99999999999999999998\n"])
async def test_a_lease_that_says_nothing_is_none(tmp_path: Path, lease: LeaseFile, content: bytes) -> None:
    """Damaged, empty or always half written: the program does not run without anybody's leave."""
    lease.path.write_bytes(content)
    with pytest.raises(LeaseOver):
        await launch(program(tmp_path, PAUSE, lease=lease.path))


async def test_the_lease_goes_on_under_a_grace(tmp_path: Path, lease: LeaseFile) -> None:
    """A program with a long grace dies with its lease all the same."""
    renew(lease, NEVER_NS)
    code = f"import signal; signal.signal(15, lambda *_: print('asked', flush=True)); {PAUSE}; signal.pause()"
    asked = program(tmp_path, code, lease=lease.path)
    running = await launch(asked)
    await until_text(asked.stdout, "up")
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.stop, 3600)
            await until_text(asked.stdout, "asked")
            shorten(lease, running, 0)
    ending = await running.wait()
    assert (ending.lease_over, ending.stopped, ending.killed) == (True, True, True)


STARTER = """
import sys, anyio
from pathlib import Path
sys.path[:0] = [{tests!r}, {above!r}]
from test_supervisor import NEVER_NS, STUBBORN, program, renew, shorten, until_text
from iriscw.processes.lease import LeaseFile
from iriscw.processes.supervised import launch

async def main():
    folder = Path({folder!r})
    lease = LeaseFile(folder / "lease")
    renew(lease, NEVER_NS)
    asked = program(folder, STUBBORN, lease=lease.path)
    running = await launch(asked)
    await until_text(asked.stdout, "up")
    shorten(lease, running, 3)
    print("ready", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


async def test_a_starter_that_was_killed_is_not_needed(tmp_path: Path) -> None:
    """kill -9 of who started it: the program lives for as long as the lease does, and no longer."""
    code = STARTER.format(tests=str(Path(__file__).parent), above=str(Path(__file__).parents[1]), folder=str(tmp_path))
    async with await anyio.open_process([sys.executable, "-c", code]) as starter:
        assert starter.stdout is not None
        with anyio.fail_after(PATIENCE_S):
            await starter.stdout.receive()
        starter.kill()
        await starter.wait()
    left = marked_processes({MARKER: str(tmp_path)})
    lease = LeaseFile(tmp_path / "lease")
    assert left or lease.over
    for each in left:
        with contextlib.suppress(ProcessGone), pidfd_of(each) as descriptor, anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(descriptor)
    assert lease.over
    assert marked_processes({MARKER: str(tmp_path)}) == ()
    lease.close()


async def _log_of(tmp_path: Path, code: str, limit: int) -> tuple[bytes, bytes, Supervised]:
    asked = program(tmp_path, code, log_limit_bytes=limit)
    running = await launch(asked)
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).code == 0
    before = asked.stdout.with_name("log.1")
    return before.read_bytes() if before.exists() else b"", asked.stdout.read_bytes(), running


async def test_a_bounded_log_keeps_the_last(tmp_path: Path) -> None:
    """However much is written, by whichever child: two files within the bound, which hold the end without a gap."""
    code = "import os\nfor n in range(20_000): os.write(1 + n % 2, b'%06d ' % n)"
    before, last, _ = await _log_of(tmp_path, code, 10_000)
    assert len(before) <= 10_000
    assert len(last) <= 10_000
    numbers = [int(word) for word in (before + last).split()[1:]]
    assert numbers == list(range(20_000 - len(numbers), 20_000))
    assert len(numbers) > 1_000


async def test_a_log_within_its_bound_is_one_file(tmp_path: Path) -> None:
    """Nothing is lost of it, not what is written at the very end either."""
    code = "import sys; sys.stdout.write('x' * 9_000); sys.stdout.flush(); sys.stderr.write('end')"
    before, last, _ = await _log_of(tmp_path, code, 10_000)
    assert (before, last) == (b"", b"x" * 9_000 + b"end")


async def test_two_bounded_logs(tmp_path: Path) -> None:
    """Each output has a file of its own, if it is to."""
    code = "import os\nfor n in range(3_000): os.write(1, b'out%05d ' % n); os.write(2, b'err%05d ' % n)"
    asked = program(tmp_path, code, stderr=tmp_path / "program" / "errors", log_limit_bytes=5_000)
    with anyio.fail_after(PATIENCE_S):
        await (await launch(asked)).wait()
    for path, word in ((asked.stdout, b"out"), (asked.stderr, b"err")):
        assert path.read_bytes().endswith(word + b"02999 ")
        assert path.stat().st_size <= 5_000
        assert {each[:3] for each in path.read_bytes().split()[1:]} == {word}


async def test_a_lease_that_was_put_back_is_found(tmp_path: Path, lease: LeaseFile) -> None:
    """Somebody removed the file: the next look is at the one that its writer made, renewals of which count."""
    renew(lease, NEVER_NS)
    running = await launch(program(tmp_path, PAUSE, lease=lease.path))
    shorten(lease, running, 3)
    await anyio.sleep(0.2)  # for it to be read
    lease.path.unlink()
    until_ns = lease.until_ns
    renew(lease, NEVER_NS)
    renew(lease, NEVER_NS)
    await anyio.sleep((until_ns - time.monotonic_ns()) / SECOND + 0.5)
    assert running.alive
    renew(lease, 1)
    running.look_at_lease()
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).lease_over


@pytest.mark.slow  # the supervisor waits ten seconds for its writer
@pytest.mark.parametrize("make", [None, Path.mkdir, os.mkfifo])
async def test_a_lease_that_nobody_puts_back_ends(tmp_path: Path, lease: LeaseFile, make) -> None:
    """Its supervisor goes by what it read last, not for long if that may be shorter by now, and waits for no pipe."""
    renew(lease, NEVER_NS)
    running = await launch(program(tmp_path, PAUSE, lease=lease.path))
    until_ns = shorten(lease, running, 1)
    lease.path.unlink()
    if make is not None:
        make(lease.path)
    running.look_at_lease()
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).lease_over
    assert time.monotonic_ns() >= until_ns


def fill(disk: Path, free_pages: int = 0) -> Path:
    """Write until nothing more fits, then give some pages back."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    os.truncate(ballast, ballast.stat().st_size - 4096 * free_pages)
    return ballast


def beside(disk: Path, logs: Path) -> dict[str, Path]:
    """Have the status files on the disk, and the log elsewhere."""
    return {"folder": disk / "program", "stdout": logs / "log", "stderr": logs / "log"}


WAIT = "import os, signal; signal.pthread_sigmask(0, [10]); print('up', flush=True); signal.sigwait([10]); "


async def up(asked: Program) -> Supervised:
    running = await launch(asked)
    await until_text(asked.stdout, "up")
    return running


def let_go(running: Supervised) -> None:
    assert running.target is not None
    send_signal(running.target, signal.SIGUSR1)


async def test_a_full_disk_loses_no_end(tmp_path: Path, small_disk: Path) -> None:
    """Its room was taken before the program began."""
    running = await up(program(tmp_path, WAIT + "os._exit(3)", **beside(small_disk, tmp_path)))
    fill(small_disk)
    let_go(running)
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).code == 3
    found = await adopt(running.folder, running.markers)
    assert found is not None
    assert (await found.wait()).code == 3


async def test_a_full_disk_keeps_no_order_to_stop(tmp_path: Path, small_disk: Path) -> None:
    """The program gets the very grace that was ordered, not the one that it was started with."""
    code = f"import signal; signal.signal(15, lambda *_: print('asked', flush=True)); {PAUSE}; signal.pause()"
    asked = program(tmp_path, code, **beside(small_disk, tmp_path), grace_s=3600)
    running = await up(asked)
    fill(small_disk)
    with anyio.fail_after(PATIENCE_S):
        ending = await running.stop(0.5)
    assert (ending.stopped, ending.killed) == (True, True)
    assert "asked" in text_of(asked.stdout)


@pytest.mark.parametrize("free_pages", range(6))
async def test_with_hardly_any_room_it_runs_or_not(tmp_path: Path, small_disk: Path, free_pages: int) -> None:
    """Not started means that nothing was executed; started, that its end is told. Nothing is left of either."""
    fill(small_disk, free_pages)
    touched = tmp_path / "touched"
    code = f"open({str(touched)!r}, 'w'); {ESCAPE}; " + WAIT + "os._exit(3)"
    asked = program(tmp_path, code, **beside(small_disk, tmp_path))
    try:
        running = await up(asked)
    except SpawnFailed:
        assert not touched.exists()
        assert await adopt(asked.folder, asked.markers) is None
    except OSError:  # there was no room for the supervisor's log
        assert not touched.exists()
    else:
        fill(small_disk)
        let_go(running)
        with anyio.fail_after(PATIENCE_S):
            assert (await running.wait()).code == 3
    assert marked_processes({MARKER: str(tmp_path)}) == ()


ESCAPE = "import os, time; os.fork() or (os.setsid(), time.sleep(600))"


def spoil(what: str) -> str:
    """Return code that puts something else in the place of all files in ``folder``."""
    return f"""
import os, shutil, sys
for name in os.listdir({{folder!r}}) + ["exit.json", "stop", "identity.json"]:
    path = os.path.join({{folder!r}}, name)
    if name == "log":
        continue
    if os.path.lexists(path) and not os.path.isdir(path):
        os.unlink(path)
    if not os.path.lexists(path):
        {what}
"""


SPOILS = {
    "nothing": "pass",
    "links": "os.symlink('/etc/passwd', path)",
    "pipes": "os.mkfifo(path)",
    "huge files": "open(path, 'wb').truncate(1 << 40)",
    "nonsense": "open(path, 'w').write('[' * 60000)",
    "folders": "os.makedirs(path + '/inner')",
}


@pytest.mark.parametrize("what", SPOILS)
async def test_a_program_that_spoils_its_files_has_its_end_told(tmp_path: Path, what: str) -> None:
    """Links, pipes, folders: the supervisor puts the end where it belongs, and follows nothing."""
    code = spoil(SPOILS[what]).format(folder=str(tmp_path / "program")) + WAIT + "os._exit(3)"
    running = await up(program(tmp_path, code))
    let_go(running)
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).code == 3


@pytest.mark.parametrize("what", SPOILS)
async def test_a_program_that_spoils_its_files_is_ended(tmp_path: Path, what: str) -> None:
    """It gets the grace that it was started with; the next starter ends it as well, and has no trouble with it."""
    spoiling = spoil(SPOILS[what]).format(folder=str(tmp_path / "program"))
    running = await up(program(tmp_path, f"{ESCAPE}\n{spoiling}\n{WAIT}", grace_s=0.1))
    with anyio.fail_after(PATIENCE_S):
        assert (await running.stop(30)).signal == signal.SIGTERM
    assert marked_processes({MARKER: str(tmp_path)}) == ()
    again = again_in(tmp_path)
    spoiling = spoil(SPOILS[what]).format(folder=str(again["folder"]))
    await up(program(tmp_path, f"{ESCAPE}\n{spoiling}\n{WAIT}", **again))
    with anyio.fail_after(PATIENCE_S):
        found = await adopt(again["folder"], {MARKER: str(tmp_path)})
        assert (found is None) == (what == "nothing"), "without a word of it, it was never executed"
        if found is not None:
            assert (await found.stop(30)).code is None
    assert marked_processes({MARKER: str(tmp_path)}) == ()


def again_in(tmp_path: Path) -> dict[str, Path]:
    """Return another folder for the second program of a test."""
    folder = tmp_path / "again"
    return {"folder": folder, "stdout": folder / "log", "stderr": folder / "log"}


class _Full(supervisor._Record):
    """A record on a disk that copies what is overwritten: room that was taken is of no use."""

    def __init__(self, failures: int, number: int) -> None:
        self.failures = failures
        self.number = number
        self.written: list[object] = []

    def write(self, content: dict[str, object]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(self.number, "no room")
        self.written.append(content)


class Unmoved:
    """A supervisor that was never frozen."""

    def look(self) -> None:
        return


def test_room_that_was_taken_and_is_missing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the lease holds; anything else is no matter of waiting."""
    monkeypatch.setattr(supervisor, "_ROOM_RETRY_S", 0.0)
    record = _Full(3, errno.ENOSPC)
    supervisor._tell_end(record, {"code": 0}, supervisor._Lease(None), Unmoved())
    assert record.written == [{"code": 0}]
    with pytest.raises(OSError, check=that(errno=errno.EIO)):
        supervisor._tell_end(_Full(1, errno.EIO), {}, supervisor._Lease(None), Unmoved())


def test_nobody_waits_for_room_after_the_lease(lease: LeaseFile) -> None:
    """The program may run elsewhere by now."""
    renew(lease, 1)
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)):
        supervisor._tell_end(_Full(1, errno.ENOSPC), {}, supervisor._Lease(str(lease.path)), Unmoved())


def test_a_kernel_without_room_for_a_moment_ends_nothing(monkeypatch: pytest.MonkeyPatch, lease: LeaseFile) -> None:
    """It looks at itself each time that it wakes; what is always there may not be opened for a moment (ENFILE)."""
    monkeypatch.setattr(supervisor, "_KERNEL_RETRY_S", 0.0)
    failures = [OSError(errno.ENFILE, "no room")] * 3

    def seldom(real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return real(*arguments)

        return call

    renew(lease, NEVER_NS)
    order, identity = {"folder": "/nowhere"}, {"target": {"pid": 1}}
    life = supervisor._Life(order, identity, supervisor._Lease(str(lease.path)))
    monkeypatch.setattr(supervisor, "_stat", seldom(supervisor._stat))
    life.look()
    assert failures == []
    failures += [OSError(errno.ENFILE, "no room")] * 3
    monkeypatch.setattr(supervisor, "_offset_ns", seldom(supervisor._offset_ns))
    assert supervisor._Lease(str(lease.path)).left_s() > 0
    assert failures == []


GROUPED = """
import os, sys, anyio
from pathlib import Path
from iriscw.processes.supervised import Program, launch
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
PYTHON = (sys.executable, "-I", "-S", "-c")
SHOT = '''import os, signal
signal.signal(15, lambda *_: os.kill(os.getpid(), 9))
print('up', flush=True); signal.pause()'''
def program(name, code):
    folder = Path(sys.argv[2], name)
    log, markers = folder / "log", {"IRIS_ATTEMPT_UID": str(folder)}
    return Program((*PYTHON, code), folder, Path("/"), log, log, markers, {"PATH": os.environ["PATH"]})
async def main():
    shot = await launch(program("shot", SHOT))
    while "up" not in (shot.folder / "log").read_text():
        await anyio.sleep(0.01)
    greedy = await launch(program("greedy", "x = b'x' * (1 << 30)"))
    print(await greedy.wait())
    os.kill(shot.target.pid, 15)
    print(await shot.wait())
anyio.run(main)
"""


def test_a_neighbour_that_is_killed_for_memory(tmp_path: Path) -> None:
    """The count of such kills is the whole group's: who was killed otherwise meanwhile was perhaps killed for it."""
    group = Path(f"/sys/fs/cgroup/memory/iriscw-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
    except OSError:
        pytest.skip("this user may not make a memory group")
    try:
        words = [sys.executable, "-c", GROUPED, str(group), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    finally:
        group.rmdir()
    for line in done.stdout.splitlines():
        assert "signal=9" in line
        assert "perhaps_out_of_memory=True" in line
        assert " out_of_memory=False" in line
    assert len(done.stdout.splitlines()) == 2
