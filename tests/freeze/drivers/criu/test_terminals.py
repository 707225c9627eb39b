"""Trees with terminals and the real CRIU: one that is in the tree, and one that is that of whoever restores."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "agent"))  # for real_trees

from iriscw.freeze.criu_images import FILES_MAGIC
from iriscw.freeze.criu_protobuf import encode
from iriscw.freeze.criu_terminals import REACH, TERMINALS_MAGIC
from iriscw.freeze.drivers.criu import driver as driver_module
from iriscw.freeze.drivers.criu.record import NAME, read_run
from iriscw.freeze.drivers.criu.terminal_queues import CRIUS, give_back
from iriscw.freeze.drivers.criu.terminals import TIOCGPTN, check_numbers, within_reach
from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.processes.reading import children_of
from iriscw.freeze.model import (
    CriuFailed,
    CriuOptions,
    GateRefused,
    RestoreRequest,
    SweepRequest,
    TargetUnfit,
    TaskIdentity,
    UnsafeRequest,
)
from iriscw.processes.identity import read_stat
from raised import that
from waiting import block_until

PATIENCE_NS = 60_000_000_000

OF_ITS_OWN = "import os, time; pair = os.openpty(); print(os.ttyname(pair[1]), flush=True); time.sleep(1 << 20)"
"""Holds both sides of a terminal."""

HOLDING = """
import fcntl, os, signal, struct, termios
master, slave = os.openpty()
os.write(slave, b"out" + os.linesep.encode())
os.write(master, b"in" + os.linesep.encode() + b"begun")

def tell():
    waits = [struct.unpack("i", fcntl.ioctl(each, termios.FIONREAD, bytes(4)))[0] for each in (master, slave)]
    print(waits, os.get_blocking(master), os.get_blocking(slave), flush=True)

asked = [signal.SIGUSR1, signal.SIGUSR2]
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
print("ready", flush=True)
while True:
    tell() if signal.sigwait(asked) == signal.SIGUSR1 else os.fork()
"""
"""Has something wait on both sides of a terminal, and says how much when it is asked."""

HARD = """
import fcntl, os, select, signal, struct, termios, tty
others = [os.openpty() for _ in range(16)]
(lines, by_lines), (full, first), (packets, other) = pairs = [os.openpty() for _ in range(3)]
for descriptor in [side for pair in others for side in pair]:  # the lowest free number is given out first
    os.close(descriptor)
os.write(lines, b"one" + bytes([4]) + b"two" + os.linesep.encode() + bytes([4]) + b"begun")
to_write = os.open(os.ttyname(first), os.O_RDWR | os.O_NOCTTY)
os.dup2(os.open(os.ttyname(first), os.O_RDONLY | os.O_NOCTTY), first)
fcntl.ioctl(packets, termios.TIOCPKT, struct.pack("i", 1))

def fill(descriptor):
    tty.setraw(descriptor)
    os.set_blocking(descriptor, False)
    written = bytes(0)
    try:
        while True:
            written += bytes(range(100))[:os.write(descriptor, bytes(range(100)))]
    except BlockingIOError:
        os.set_blocking(descriptor, True)
    return written

filled = fill(to_write), fill(other)

def whole(descriptor, written, begin):
    data = bytes(0)
    while len(data) < len(written) and select.select([descriptor], [], [], 10)[0]:
        data += os.read(descriptor, 4096)[begin:]
    return data == written

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
print([os.read(by_lines, 100) for _ in range(3)], whole(full, filled[0], 0), whole(packets, filled[1], 1), flush=True)
signal.pause()
"""
"""Has lines that keys ended; a full terminal, of which its first descriptor only reads; and one that gives packets."""

HUNG_UP = """
import signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: open(sys.argv[1] + "/hung-up", "w").close())
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""
"""Does not end when it is told to hang up."""

JOB = """
import os
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    os._exit(0)
os.setpgid(0, 0)
""" + HUNG_UP.replace('"ready"', "os.getpid()")
"""Leads a session, as a shell does, whose job does not end when it is told to hang up."""

RESTORING = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import anyio
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.model import CriuOptions, RestoreRequest

async def main():
    _, images, work, pid, ticks = sys.argv
    asked = RestoreRequest(
        "thaw-1", images, work, CriuOptions(shell_job=True), (int(pid),), int(ticks), 60_000_000_000
    )
    restored = await CriuSwrk().restore(asked, lambda _: None)
    print(restored.tasks[0].pid, os.tcgetpgrp(0), flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""
"""Leads the session of a terminal, brings a tree back and leaves it stopped."""


def nothing(_: object) -> None:
    """Take progress that nobody looks at."""


def is_there(path: str) -> bool:
    """Whether there is such a file."""
    return Path(path).exists()


@contextlib.contextmanager
def nothing_to_read() -> Iterator[None]:
    """Have no terminal as standard input."""
    before, nowhere = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(nowhere)


async def frozen(criu, target) -> Path:
    """Dump a program, end it, and give its images."""
    held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    target.reap()
    return target.at / "images"


async def test_a_terminal_in_the_tree_comes_back_under_its_number(criu, other_program) -> None:
    """If somebody has that by then nothing is begun, and it comes back when that one is closed."""
    target, said = other_program(OF_ITS_OWN)
    images = await frozen(criu, target)
    assert not is_there(said)
    taken = [os.openpty()]
    while not is_there(said):
        taken.append(os.openpty())
    with pytest.raises(GateRefused, check=that(comes_from="terminals.check_numbers", names=said)):
        await criu.restore(target.restore((target.root.pid,)), nothing)
    for each in [side for pair in taken for side in pair]:
        os.close(each)
    check_numbers(images)
    target.restored = (await criu.restore(target.restore((target.root.pid,)), nothing)).tasks
    assert is_there(said)


def lowest_number() -> int:
    """Return the number that the next terminal gets."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        return int(struct.unpack("i", fcntl.ioctl(master, TIOCGPTN, bytes(4)))[0])
    finally:
        os.close(master)


def test_a_number_that_is_far_from_all_others(folder) -> None:
    """CRIU gives up before it comes to it: so those between are taken, until it is there."""
    number = 150
    sides = [encode([(1, number << 1 | master), (2, 1), (9, []), (12, [(1, number)])]) for master in (0, 1)]
    (folder / "tty-info.img").write_bytes(
        TERMINALS_MAGIC + b"".join(len(each).to_bytes(4, "little") + each for each in sides)
    )
    (folder / "files.img").write_bytes(FILES_MAGIC)
    with within_reach(folder):
        block_until(lambda: number - REACH < lowest_number() <= number, "it is near")
    block_until(lambda: lowest_number() < REACH, "all are let go")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        with within_reach(folder):  # what is left of them is not for this
            os.close(os.open(os.devnull, os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def holding(other_program):
    """A program in whose terminal something waits; give it, and a function that asks how much does."""
    target, _ = other_program(HOLDING)
    said = target.at / "said"

    def waits() -> str:
        before = said.read_text()
        os.kill(target.root.pid, signal.SIGUSR1)
        block_until(lambda: len(said.read_text()) > len(before), "it has told")
        return said.read_text()[len(before) :].strip()

    block_until(lambda: waits() == AS_IT_WAS, "the kernel has moved what was written")
    return target, waits


AS_IT_WAS = "[14, 3] True True"
"""With what was echoed, and each line's end as two bytes."""

JOINED = "[14, 8] True True"
"""The line that was begun ends now: nothing is put before it in a terminal that is read from."""


async def test_a_dump_that_fails_gives_back_what_waits(criu, holding, monkeypatch) -> None:
    """CRIU has taken it out by then. The tree runs by the time, and it is given back once."""
    target, waits = holding

    def failing(images: Path, log: Path, root: TaskIdentity, *, held: bool) -> None:
        assert (images / CRIUS).exists()
        if held:
            raise CriuFailed("as if")
        os.kill(root.pid, signal.SIGUSR2)
        block_until(lambda: list(children_of(root.pid)), "there is a process that was not frozen")
        give_back(images, log, root, held=held)
        give_back(images, log, root, held=held)

    monkeypatch.setattr(driver_module, "give_back", failing)
    with pytest.raises(CriuFailed, check=that(names="if")):
        await criu.dump(target.dump(), nothing)
    assert waits() == JOINED


async def test_a_sweep_gives_back_what_waits(criu, holding, monkeypatch) -> None:
    """Whoever dumped it was killed just when CRIU had taken it out."""
    target, waits = holding

    def killed(*_: object, **__: object) -> None:
        raise CriuFailed("as if")

    with monkeypatch.context() as patched:
        patched.setattr(driver_module, "give_back", killed)
        with pytest.raises(CriuFailed, check=that(names="if")):
            await criu.dump(target.dump(), nothing)
    assert waits() == "[0, 0] False False"
    sweep = SweepRequest("freeze-1", str(target.at / "work"))
    for _ in range(2):
        await criu.sweep(sweep)
        assert waits() == JOINED


@pytest.mark.parametrize("copied", [False, True])
async def test_what_is_hard_to_put_back(criu, other_program, copied) -> None:
    """A tree that runs on has it, and so has one that was frozen."""
    target, _ = other_program(HARD)
    if copied:
        await (await criu.dump(target.dump(), nothing)).resume(PATIENCE_NS)
    else:
        await frozen(criu, target)
        restored = await criu.restore(target.restore((target.root.pid,)), nothing)
        target.restored = restored.tasks
        os.kill(target.root.pid, signal.SIGCONT)
    said = target.folder / "said"
    os.kill(target.root.pid, signal.SIGUSR1)
    block_until(lambda: said.read_text().count("\n") > 1, "it has told")
    assert said.read_text().splitlines()[1:] == [r"[b'one', b'two\n', b''] True True"]


async def test_a_sweep_after_an_older_version(criu, holding) -> None:
    """It wrote down a tree only whose peers it had silenced, and no images."""
    target, waits = holding
    await (await criu.dump(target.dump(), nothing)).resume(PATIENCE_NS)
    for tasks in ([], [attrs.asdict(target.root)]):
        record = target.at / "work" / NAME
        content = {**json.loads(record.read_bytes()), "tasks": tasks}
        content.pop("images", None)
        content.pop("silenced", None)
        record.write_text(json.dumps(content), encoding="utf-8")
        read = read_run(record.parent)
        assert (read.images, read.silenced) == ("", bool(tasks))
        assert await criu.sweep(SweepRequest("freeze-1", str(record.parent))) == ()
    assert waits() == AS_IT_WAS


async def test_two_terminals_from_outside_are_one_too_many(criu, other_program) -> None:
    """The tree runs on."""
    first, second = os.openpty(), os.openpty()
    target, _ = other_program(OF_ITS_OWN, stdin=first[1], stderr=second[1])
    target.options = CriuOptions(shell_job=True)
    with pytest.raises((TargetUnfit, CriuFailed), check=that(comes_from="driver._dump")):
        await criu.dump(target.dump(), nothing)
    assert lives(target.root)
    for each in (*first, *second):
        os.close(each)


async def test_without_a_terminal_nothing_is_begun(criu, other_program) -> None:
    """There is none to lend: standard input is something else."""
    target, _ = other_program(HUNG_UP)
    target.options = CriuOptions(shell_job=True)
    await frozen(criu, target)
    with nothing_to_read():
        asked = target.restore((target.root.pid,))
        with pytest.raises(UnsafeRequest, check=that(comes_from="driver._lent")):
            await criu.restore(asked, nothing)
    assert not is_there(f"{asked.work}/criu.out")  # no CRIU was started


@pytest.fixture
def restoring():
    """Yield a function that has another process restore, in a terminal of its own; it is killed afterwards."""
    with contextlib.ExitStack() as left:

        def start(asked: RestoreRequest) -> subprocess.Popen:
            ours, its = os.openpty()
            left.callback(os.close, ours)
            words = [asked.images, asked.work, str(asked.pids[0]), str(asked.started_after)]
            command = [sys.executable, "-c", RESTORING, *words]
            process = subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, start_new_session=True)
            os.close(its)
            left.enter_context(process)
            left.callback(process.kill)
            return process

        yield start


async def test_who_restores_is_killed_before_the_tree_was_let_run(criu, processes, other_program, restoring) -> None:
    """The kernel tells the tree to hang up; what does not end of that is known, and ended by a sweep."""
    target, said = other_program(JOB)
    target.root = identify_task(int(said))
    target.options = CriuOptions(shell_job=True)
    await frozen(criu, target)
    asked = target.restore((target.root.pid,), await processes.ticks())
    by = restoring(asked)
    assert by.stdout.readline().split() == [b"%d" % target.root.pid] * 2  # which is in front
    root = identify_task(target.root.pid)
    target.restored = (root,)
    assert read_stat(root.pid).state == "T"
    assert read_stat(root.pid).parent_pid == by.pid
    assert not (target.folder / "hung-up").exists()
    by.kill()
    block_until((target.folder / "hung-up").exists, "it is told to hang up")
    assert await criu.sweep(SweepRequest("thaw-1", asked.work, asked.pids, asked.started_after)) == (root,)
    assert not lives(root)
