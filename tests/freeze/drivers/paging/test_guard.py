"""Nothing ends a guard before its tree: no full disk, no full table of descriptors, and no note that cannot be read."""

import errno
import mmap
import os
import select
import signal
import subprocess
import sys
import threading

import anyio
import attrs
import pytest

from iriscw.freeze.drivers.paging import ending, guard, notes, starting
from iriscw.freeze.drivers.paging.notes import COMPLETE, FAILED, PagerNote, PagingEnd, read_end, read_pager, write_pager
from iriscw.freeze.model import MAX_TASKS, PagingFailed
from iriscw.processes.identity import ProcessGone, identify, is_alive, open_pidfd
from raised import that

PATIENCE_S = 60.0

PAGER = """
import os, resource, select, signal, sys
from pathlib import Path
from iriscw.freeze.drivers.paging import guard
from iriscw.freeze.drivers.paging.notes import PagerNote, prepare_complete, write_pager
from iriscw.processes.identity import identify
work, victim, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
watching = guard.start(work)
write_pager(work, PagerNote(identify(os.getpid()), watching.identity, (identify(victim),)))
prepare_complete(work)
if how == "whole":
    watching.has_all()
if how == "renewed":
    os.kill(watching.identity.pid, signal.SIGKILL)
    select.select([watching.ended], [], [])
    before = len(os.listdir("/proc/self/fd"))
    watching = watching.renewed()
    assert len(os.listdir("/proc/self/fd")) == before
    write_pager(work, PagerNote(identify(os.getpid()), watching.identity, (identify(victim),)))
try:
    while how == "full":
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
"""It holds what it has, and is killed."""


SLOW_PAGER = """
import os, sys
from pathlib import Path
from iriscw.freeze.drivers.paging import guard
from iriscw.freeze.drivers.paging.notes import PagerNote, write_pager
from iriscw.processes.identity import identify
work, tasks = Path(sys.argv[1]), (identify(int(sys.argv[2])),)
write_pager(work, PagerNote(identify(os.getpid()), None, tasks))
watching = guard.start(work)
os.write(1, b"cloned\\n")
os.read(0, 1)
os.write(1, b"written\\n")
write_pager(work, PagerNote(identify(os.getpid()), watching.identity, tasks))
os.read(0, 1)
"""
"""It takes its time to say who guards it."""


@pytest.fixture
def victim():
    """A process that is somebody's tree."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait()


def has_ended(identity) -> bool:
    """Wait for the end of a process."""
    try:
        descriptor = open_pidfd(identity)
    except ProcessGone:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE_S * 1000))
    finally:
        os.close(descriptor)


def killed_pager(work, victim, how: str) -> PagerNote:
    """Have a pager with a guard be killed, and wait for the end of that; give what it wrote down."""
    argv = [sys.executable, "-c", PAGER, str(work), str(victim.pid), how]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done = subprocess.run(argv, timeout=PATIENCE_S, check=False, **silent)
    assert done.returncode == -signal.SIGKILL
    record = read_pager(work)
    try:
        assert has_ended(record.guard)
    finally:
        if is_alive(record.guard):
            os.kill(record.guard.pid, signal.SIGKILL)
    return record


def test_a_guard_kills_though_the_pager_took_all_descriptors(tmp_path, victim) -> None:
    """Some are left to it, and it loads nothing any more."""
    record = killed_pager(tmp_path, victim, "full")
    assert not is_alive(record.tasks[0])
    assert read_end(tmp_path).kind == FAILED


def test_a_guard_that_was_killed_is_followed_by_another(tmp_path, victim) -> None:
    """So the pager may be killed after it, and no page is missed; no descriptor is left over."""
    record = killed_pager(tmp_path, victim, "renewed")
    assert not is_alive(record.tasks[0])
    assert read_end(tmp_path).kind == FAILED


def test_a_whole_tree_lives_though_its_pager_is_killed_before_it_wrote_that_down(tmp_path, victim) -> None:
    """The guard knows, and writes it down."""
    record = killed_pager(tmp_path, victim, "whole")
    assert is_alive(record.tasks[0])
    assert read_end(tmp_path) == PagingEnd(COMPLETE)


def test_a_guard_speaks_when_it_can_kill_and_is_known(tmp_path, victim) -> None:
    """Until its pager has written down who guards it says nothing, though it has loaded all by then."""
    argv = [sys.executable, "-c", SLOW_PAGER, str(tmp_path), str(victim.pid)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as pager:
        try:
            assert pager.stdout.readline() == b"cloned\n"
            assert read_pager(tmp_path).guard is None
            pager.stdin.write(b"!")
            pager.stdin.flush()
            assert pager.stdout.readline() == b"written\n"
            assert pager.stdout.readline() == guard.GUARDED
            watching = read_pager(tmp_path).guard
        finally:
            pager.kill()
    assert has_ended(watching)
    assert not is_alive(read_pager(tmp_path).tasks[0])


SPEAKER = "import os, sys; os.write(1, sys.argv[1].encode()); os.read(0, 1)"


@pytest.mark.parametrize("when", ["before", "meanwhile", "said"])
def test_a_guard_that_was_killed_is_not_waited_for(tmp_path, when) -> None:
    """A thaw ends at once, though its pager lives; one whose guard has spoken before goes on."""

    async def waited(pager) -> None:
        with anyio.fail_after(PATIENCE_S):
            await pager.guarded()

    program = [sys.executable, "-I", "-S", "-c", SPEAKER]
    said = guard.GUARDED.decode() if when == "said" else ""
    with (
        subprocess.Popen([*program, ""], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as guarding,
        subprocess.Popen([*program, said], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as paging,
    ):
        write_pager(tmp_path, PagerNote(identify(paging.pid), identify(guarding.pid)))
        pager = starting.StartedPager(paging, tmp_path)
        killing = threading.Timer(0.1 if when == "meanwhile" else 0, guarding.kill)
        killing.start()
        if when != "meanwhile":
            guarding.wait(PATIENCE_S)
        if when == "said":
            select.select([paging.stdout], [], [], PATIENCE_S)
            anyio.run(waited, pager)
        else:
            with pytest.raises(PagingFailed, check=that(comes_from="starting.StartedPager._guard_says")):
                anyio.run(waited, pager)
        killing.join()
        paging.stdin.close()
        paging.wait(PATIENCE_S)
        pager.close()


def test_who_starts_at_once_loads_little() -> None:
    """What a pager needs before CRIU may be asked is a part of what its guard does."""
    code = "import iriscw.freeze.drivers.paging.pager, sys; print(*(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True, text=True)
    assert not {"anyio", "asyncio", "iriscw.freeze.model"} & set(done.stdout.split())


def test_a_guard_has_descriptors_for_the_largest_tree() -> None:
    """Each process is opened twice, and a few are its own."""
    assert guard.SPARE_DESCRIPTORS > 3 * MAX_TASKS


def full(*_, **__) -> None:
    """Write to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unreadable(*_, **__) -> bytes:
    """Open a file where no descriptor is left."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_tree_is_killed_though_that_cannot_be_written_down(tmp_path, victim, monkeypatch) -> None:
    """It is killed first."""
    identity = identify(victim.pid)
    write_pager(tmp_path, PagerNote(identity, identity, (identity,)))
    monkeypatch.setattr(notes, "write_atomic", full)
    assert guard.end_tree(tmp_path)
    assert not is_alive(identity)


def test_a_tree_of_which_somebody_lives_has_not_ended(tmp_path, victim, monkeypatch) -> None:
    """That is not the end of a guard, and is written down by nobody."""
    monkeypatch.setattr(ending, "end_all", lambda tasks: False)
    write_pager(tmp_path, PagerNote(identify(victim.pid), identify(victim.pid), (identify(victim.pid),)))
    assert not guard.end_tree(tmp_path)
    assert read_end(tmp_path) is None


def test_a_pager_that_fails_ends_its_tree_though_its_guard_seems_to_live(tmp_path, victim) -> None:
    """A guard that was killed seems to until it has ended, and does nothing any more."""
    ours, tree = identify(os.getpid()), identify(victim.pid)
    write_pager(tmp_path, PagerNote(ours, ours, (tree,)))
    guard.Guard(ours, mmap.mmap(-1, 1), tmp_path).take_over()
    assert not is_alive(tree)


def test_a_pager_whose_tree_is_whole_ends_nothing(tmp_path, victim) -> None:
    """It has nothing to take over."""
    ours = identify(os.getpid())
    write_pager(tmp_path, PagerNote(ours, ours, (identify(victim.pid),)))
    watching = guard.Guard(ours, mmap.mmap(-1, 1), tmp_path)
    watching.has_all()
    watching.take_over()
    assert is_alive(identify(victim.pid))


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_pager_cannot_end_is_left_to_a_guard_that_lives(tmp_path, victim, monkeypatch, guarded) -> None:
    """Without one it tries again until it can."""
    ours, tried = identify(os.getpid()), []

    def end_all(tasks):
        tried.append(tasks)
        if len(tried) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return True

    monkeypatch.setattr(guard, "AGAIN_S", 0)
    monkeypatch.setattr(ending, "end_all", end_all)
    write_pager(tmp_path, PagerNote(ours, ours, (identify(victim.pid),)))
    guardian = ours if guarded else attrs.evolve(ours, start_ticks=ours.start_ticks + 1)
    guard.Guard(guardian, mmap.mmap(-1, 1), tmp_path).take_over()
    assert len(tried) == (1 if guarded else 3)


def test_what_fails_is_tried_until_it_is_done(monkeypatch) -> None:
    """Whatever is raised: who ended here would close the last descriptors."""
    answers = [OSError(errno.EMFILE, "no more"), RuntimeError("no thread"), KeyboardInterrupt(), MemoryError(), False]

    def step() -> bool:
        if not answers:
            return True
        answer = answers.pop()
        if answer is not False:
            raise answer
        return answer

    monkeypatch.setattr(guard, "AGAIN_S", 0)
    guard.insist(step)
    assert answers == []


def test_that_all_pages_came_needs_no_room(tmp_path, monkeypatch) -> None:
    """It was written ahead; and what was said first stands."""
    notes.prepare_complete(tmp_path)
    monkeypatch.setattr(notes, "write_atomic", full)
    for _ in range(2):
        notes.write_complete(tmp_path)
        assert read_end(tmp_path) == PagingEnd(COMPLETE)


def test_a_note_that_cannot_be_read_is_not_one_that_is_missing(tmp_path, monkeypatch) -> None:
    """Who waits for pages hears that it cannot be told, not that they are lost."""
    assert (read_end(tmp_path), read_pager(tmp_path)) == (None, None)
    done = subprocess.Popen(["/bin/sleep", "600"])
    ended = identify(done.pid)
    done.kill()
    done.wait()
    write_pager(tmp_path, PagerNote(ended, ended))
    notes.prepare_complete(tmp_path)
    notes.write_complete(tmp_path)
    real = notes.read_bounded
    for unread in (notes.RECORD, notes.END):
        monkeypatch.setattr(
            notes,
            "read_bounded",
            lambda path, most, name=unread: (unreadable if path.name == name else real)(path, most),
        )
        with pytest.raises(OSError, check=that(errno=errno.EMFILE)):
            anyio.run(starting.all_there, tmp_path, 60_000_000_000)
    monkeypatch.setattr(notes, "read_bounded", real)
    anyio.run(starting.all_there, tmp_path, 60_000_000_000)
