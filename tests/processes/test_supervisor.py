"""What the supervisor does on its own: end its program with the lease, and keep a log within its bound."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

from iriscw.processes.identity import ProcessGone, pidfd_of, send_signal
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.supervised import LeaseOver, Program, Supervised, launch
from iriscw.processes.sweep import marked_processes

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
    until_ns = shorten(lease, running, 5)
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
    with pytest.raises(LeaseOver, match="lease"):
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
sys.path.insert(0, {tests!r})
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
    code = STARTER.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
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
