"""Real processes are ended with all that they fork, and nobody else is."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
import pytest

from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.paging.notes import PAGER_NAME
from iriscw.freeze.drivers.processes import driver as driver_module, outside, reading
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.drivers.processes.outside import programs
from iriscw.freeze.drivers.processes.reading import ancestors, descendants, read_tree, with_all_below
from iriscw.freeze.model import GuardUntold, TargetGone, TargetUnfit, TaskIdentity
from iriscw.freeze.traits import Obstacle
from iriscw.processes.identity import ProcessGone, read_stat
from raised import that

pytestmark = pytest.mark.anyio

PATIENCE_NS = 60_000_000_000

FORKING = """
import os, signal, sys
most = int(sys.argv[1])
made = 0
print(flush=True)
while made < most:
    made += 1
    if os.fork() == 0:
        os.fork()
        signal.pause()
    if made == 20:
        print(flush=True)
signal.pause()
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def forking():
    """Start a process that forks up to so many pairs, one below the other; all of it is ended afterwards."""
    started = []

    def start(most):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", FORKING, str(most)], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()


async def test_what_is_forked_in_the_moment_of_the_end_ends_too(forking) -> None:
    """A tree of which only the root is known forks as fast as it can: nothing of it is left."""
    process = forking(60)
    process.stdout.readline()
    root = identify_task(process.pid)
    stranger = forking(1)
    with select.epoll() as ended:
        assert await KernelProcesses().end([root], PATIENCE_NS) == ()
        # All of it has the pipe open; when the last one has ended the pipe is closed.
        ended.register(process.stdout, select.EPOLLIN | select.EPOLLHUP)
        assert [kind & select.EPOLLHUP for _, kind in ended.poll(60)] == [select.EPOLLHUP]
    assert lives(identify_task(stranger.pid))


async def test_a_number_that_means_somebody_else_leads_nowhere(forking) -> None:
    """Neither who has it now nor what is below is touched."""
    process = forking(20)
    process.stdout.readline()
    root = identify_task(process.pid)
    other = TaskIdentity(root.pid, root.start_ticks - 1, root.boot_id)
    assert with_all_below([other]) == ()
    earlier = descendants(root.pid)
    before = with_all_below([root])  # it grows, and nothing of it ends
    assert {*earlier} <= {*before}
    assert len(earlier) >= 20
    assert before[0] == root
    assert await KernelProcesses().end([other], PATIENCE_NS) == ()
    assert all(lives(task) for task in before)


ORPHANED = """
import os, signal
if os.fork() == 0:
    if os.fork() == 0:
        os.setpgid(0, 0)
        print(os.getpid(), flush=True)
        signal.pause()
    os._exit(0)
os.wait()
print(flush=True)
signal.pause()
"""
"""Forks a process whose parent ends at once, and which is in a process group of its own."""


@pytest.fixture
def orphaned():
    """A process that leads its session, and one that came of it, though nothing leads to that; both are ended."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ORPHANED], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    lines = [process.stdout.readline(), process.stdout.readline()]
    orphan = identify_task(int("".join(lines)))
    yield process, orphan
    for pid in (process.pid, orphan.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("leader", ["lives", "is a zombie", "is gone"])
async def test_what_came_of_a_thaw_is_ended_though_nothing_leads_to_it(orphaned, leader) -> None:
    """It is in the session of the first process, which may have ended; it is left alone where nobody thawed that."""
    process, orphan = orphaned
    root = identify_task(process.pid)
    assert orphan not in with_all_below([root])
    if leader != "lives":
        process.kill()
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if leader == "is gone":
        await anyio.to_thread.run_sync(process.wait)
    another = TaskIdentity(root.pid, root.start_ticks + 10**6, root.boot_id)
    assert with_all_below([another], heirs=[another]) == ()
    assert await KernelProcesses().end([root], PATIENCE_NS) == ()
    assert lives(orphan)
    assert await KernelProcesses().end([root], PATIENCE_NS, heirs=True) == ()
    assert not lives(orphan)


async def test_a_stopped_process_is_ended_as_well(forking) -> None:
    """It need not run to be killed."""
    process = forking(0)
    root = identify_task(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    await anyio.to_thread.run_sync(os.waitpid, process.pid, os.WUNTRACED)
    assert await KernelProcesses().end([root], PATIENCE_NS) == ()
    assert not lives(root)


STARTING = """
import os, sys
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
"""


async def test_pages_that_are_missing_are_looked_for_where_somebody_brings_pages(forking, monkeypatch) -> None:
    """The look at the memory of a huge process takes long: without a pager on this machine there is none."""
    looked = []

    def waits(pid: int) -> bool:
        looked.append(pid)
        return len(looked) == 2

    def others(real=reading._names):
        return (name for name in real() if name != PAGER_NAME)

    root = identify_task(forking(1).pid)
    monkeypatch.setattr(reading, "_waits_for_pages", waits)
    monkeypatch.setattr(reading, "_names", others)
    assert not any(each.obstacle is Obstacle.PAGES for each in read_tree(root).hindrances)
    assert looked == []
    monkeypatch.setattr(reading, "_names", lambda: (*others(), PAGER_NAME))
    while len(looked) < 2:  # it forks meanwhile
        looked.clear()
        tree = read_tree(root)
    found = [each.pid for each in tree.hindrances if each.obstacle is Obstacle.PAGES]
    assert found == [looked[1]]


THREADS = """
import os, signal, threading, time
def fork():
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(1, b"!")
        signal.pause()
    forked.set()
    time.sleep(3600)
for _ in range(3):
    forked = threading.Event()
    threading.Thread(target=fork, daemon=True).start()
    forked.wait()
signal.pause()
"""


@pytest.fixture
def threaded():
    """A process with three threads, each of which has a child that has a child."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", THREADS], stdout=subprocess.PIPE, start_new_session=True
    )
    for _ in range(3):
        assert process.stdout.read(1) == b"!"
    yield identify_task(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def forbidden(*_):
    raise AssertionError("all processes of the machine were looked at")


@pytest.mark.parametrize("lists", [True, False])
def test_a_tree_is_read_with_the_children_of_all_its_threads(threaded, monkeypatch, lists) -> None:
    """What the kernel lists is what a look at the whole machine finds, parents first; it is used where it is there."""
    assert reading._lists_children()
    expected = {each.pid: each.parent_pid for each in reading.below(threaded.pid)}
    assert len(expected) == 7
    monkeypatch.setattr(reading, "_lists_children", lambda: lists)
    if lists:
        monkeypatch.setattr(reading, "all_stats", forbidden)
    tree = read_tree(threaded)
    assert {task.identity.pid: task.parent_pid for task in tree.tasks} == expected
    assert reading.held_tree(threaded) == tree.identities
    known = [threaded.pid]
    for task in tree.tasks[1:]:
        assert task.parent_pid in known
        known.append(task.identity.pid)


RING = """
import ctypes, signal
ring = ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120))
print(ring, flush=True)
signal.pause()
"""


def test_threads_of_the_kernel_are_no_programs(monkeypatch) -> None:
    """A machine with many processors has thousands. Where their parent's number means a program, all are looked at."""
    before = numbers()
    found = programs()
    assert os.getpid() in found
    kernels = before & numbers() - found  # who came or went meanwhile says nothing
    assert (2 in kernels) == (Path("/proc/2/comm").exists() and Path("/proc/2/comm").read_text() == "kthreadd\n")
    for told in ({"comm": "bash\n"}, {"comm": "kthreadd\n", "cmdline": "kthreadd"}, {}):
        # A program may have that number, and that name as well; or nobody has it.
        monkeypatch.setattr(outside, "read_process_file", told_by(told))
        assert programs() >= kernels & {2, 3}


def numbers() -> set[int]:
    """Return those of all processes."""
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def told_by(files: dict[str, str]):
    """Return a reader of ``/proc`` that knows these files of a process."""

    def read(pid: int, name: str) -> str:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    return read


async def test_the_members_of_a_tree_are_told_with_who_is_stopped(threaded) -> None:
    """Nothing else of them is read; a root that has ended is told as elsewhere."""
    processes = KernelProcesses()
    tree = reading.held_tree(threaded)
    stopped = tree[-1]
    os.kill(stopped.pid, signal.SIGSTOP)
    with anyio.fail_after(PATIENCE_NS / 1e9):
        while read_stat(stopped.pid).state != "T":  # noqa: ASYNC110 - nobody but its parent is told
            await anyio.sleep(0.001)
    assert await processes.members(threaded) == {task: task == stopped for task in tree}
    with pytest.raises(TargetGone):
        await processes.members(attrs.evolve(threaded, start_ticks=threaded.start_ticks + 1))


def test_an_io_uring_is_told_with_the_way_out() -> None:
    """Who holds one, and how a task, another program and uvicorn are started without."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", RING], stdout=subprocess.PIPE) as process:
        ring = int(process.stdout.readline())
        try:
            if ring < 0:
                pytest.skip("this kernel gives no io_uring")
            found = read_tree(identify_task(process.pid)).hindrances
        finally:
            process.kill()
    (text,) = [each.text for each in found if each.obstacle is Obstacle.IO_URING]
    assert text.startswith(f"process {process.pid} (")
    ways = "freezable=True", "iriscw freezable -- COMMAND", "--loop asyncio", f"descriptor {ring}"
    assert [each for each in ways if each not in text] == []


def test_who_has_ended_is_not_looked_for(forking, monkeypatch) -> None:
    """Below a process that is gone, or a zombie, is nobody: the rest of the machine is not read to find that out."""
    process = forking(1)
    root = identify_task(process.pid)
    assert root in with_all_below([root])
    monkeypatch.setattr(reading, "all_stats", forbidden)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_stat(process.pid).ended
    assert with_all_below([root]) == ()
    process.wait()
    assert with_all_below([root]) == ()


def test_the_way_up_is_walked_again_when_somebody_on_it_has_ended(threaded, monkeypatch) -> None:
    """A parent that is gone in the moment in which it is read hides nobody who is above."""
    leaf = reading.held_tree(threaded)[-1]
    expected = ancestors(leaf)
    assert threaded in expected
    gone = []

    def read(pid):
        if pid == threaded.pid and not gone:
            gone.append(pid)
            raise ProcessGone("it has just ended")
        return read_stat(pid)

    monkeypatch.setattr(reading, "read_stat", read)
    assert ancestors(leaf) == expected
    assert gone == [threaded.pid]


@pytest.fixture
def starting(tmp_path):
    """A process whose child opens a pipe that nobody writes to, before it becomes a program: both wait until then."""
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", STARTING, str(tmp_path / "pipe")], start_new_session=True
    )
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_NS / 1e9)


async def test_who_waits_in_the_kernel_is_not_waited_for_as_others_are(starting, monkeypatch) -> None:
    """A parent that stands where no signal reaches it is ended with its child, and holds up nobody until then."""
    monkeypatch.setattr(driver_module, "STOP_PATIENCE_S", 3600.0)
    with anyio.fail_after(PATIENCE_NS / 1e9):
        while read_stat(starting.pid).state != "D" or not descendants(starting.pid):  # noqa: ASYNC110 - no event
            await anyio.sleep(0.001)
        family = with_all_below([identify_task(starting.pid)])
        assert len(family) == 2
        assert await KernelProcesses().end(family[:1], PATIENCE_NS) == ()
    assert not any(map(lives, family))


async def test_who_vouches_already_is_not_told_again(monkeypatch, tmp_path):
    """Taken up after a crash: what it guards has run since, and a disk that is full by now is no reason to end it."""
    root = identify_task(os.getpid())

    def full(*_about):
        raise OSError(28, "no room")

    monkeypatch.setattr(driver_module, "write_thawed", full)
    with pytest.raises(GuardUntold, check=that(cause=OSError)):
        await KernelProcesses().vouched((root,), str(tmp_path), PATIENCE_NS)
    monkeypatch.setattr(driver_module, "_vouches", lambda *_about: True)
    await KernelProcesses().vouched((root,), str(tmp_path), PATIENCE_NS)


LEAVING = """
import os, signal
if os.fork() == 0:
    print(flush=True)
    signal.pause()
os._exit(0)
"""


async def test_a_number_that_names_a_session_is_taken() -> None:
    """Its first process has ended and is reaped; one that it left behind keeps the number from coming back."""
    with subprocess.Popen(  # noqa: ASYNC220 - a test's own loop may block
        [sys.executable, "-I", "-S", "-c", LEAVING], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            process.stdout.readline()
            await anyio.to_thread.run_sync(process.wait)
            assert not os.path.exists(f"/proc/{process.pid}")  # noqa: ASYNC240, PTH110 - the kernel's, at once
            assert await KernelProcesses().taken([process.pid]) == (process.pid,)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.read()  # it has ended when nobody has the pipe open
        with anyio.fail_after(PATIENCE_NS / 1e9):
            while await KernelProcesses().taken([process.pid]):  # noqa: ASYNC110 - whoever adopted it reaps it
                await anyio.sleep(0.01)


HEADLESS = """
import ctypes, threading, signal
threading.Thread(target=signal.sigwait, args=({signal.SIGTERM},)).start()
print(flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""


async def test_a_process_without_its_first_thread_has_not_ended() -> None:
    """CRIU cannot freeze it, and that is said: it is not a zombie."""
    with subprocess.Popen(  # noqa: ASYNC220 - a test's own loop may block
        [sys.executable, "-I", "-S", "-c", HEADLESS], stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()
            with anyio.fail_after(PATIENCE_NS / 1e9):
                while not read_stat(process.pid).ended:  # noqa: ASYNC110 - nobody is told of a thread's end
                    await anyio.sleep(0.001)
            with pytest.raises(TargetUnfit, check=that(comes_from="driver.KernelProcesses.identify", names="1")):
                await KernelProcesses().identify(process.pid)
        finally:
            process.kill()
        await anyio.to_thread.run_sync(process.wait)
        with pytest.raises(TargetGone):
            await KernelProcesses().identify(process.pid)


@pytest.fixture
def stopped():
    """Three processes that are stopped; they are ended afterwards."""
    processes = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(3)]
    for each in processes:
        os.kill(each.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, each.pid, os.WSTOPPED | os.WNOWAIT)
    yield [identify_task(each.pid) for each in processes]
    for each in processes:
        each.kill()
        each.wait()


@pytest.mark.parametrize("below", [False, True])
async def test_children_are_let_run_before_their_parents(below, stopped, monkeypatch):
    """A parent that ran first would hear that its children were stopped: job control tells its user so."""
    root, middle, leaf = stopped
    ran, forgot = [], []
    run, forget = driver_module.open_task, driver_module.forget_continued
    monkeypatch.setattr(driver_module, "open_task", lambda task: ran.append(task) or run(task))
    monkeypatch.setattr(driver_module, "forget_continued", lambda task: forgot.append(task) or forget(task))
    await KernelProcesses().proceed(stopped, below=below)
    assert ran == ([leaf, middle] if below else [leaf, middle, root])
    assert forgot == ([leaf, middle, root] if below else [])
    assert [read_stat(task.pid).state == "T" for task in stopped] == [below, False, False]
