# ruff: noqa: ASYNC220, ASYNC221, ASYNC240
# A test's own loop may block: nobody else waits for it.
"""Trees whose numbers are taken: brought back in a PID namespace of their own, frozen there, and ended with it."""

import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for frozen_states, number_taker

from frozen_states import EXPECTED
from number_taker import taken

from iriscw.freeze.drivers.criu import driver as driver_module
from iriscw.freeze.drivers.criu.record import read_run
from iriscw.freeze.drivers.identities import identify_task, lives, open_task
from iriscw.freeze.drivers.namespace import space
from iriscw.freeze.drivers.namespace.first import NAME
from iriscw.freeze.drivers.processes.reading import ancestors
from iriscw.freeze.model import CriuFailed, CriuOptions, SweepRequest, UnsafeRequest
from iriscw.freeze.traits import Obstacle
from iriscw.processes.identity import read_stat
from raised import that

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000


def nothing(progress) -> None:
    """Take progress."""


async def ended(condition) -> None:
    """Wait until something is so that nobody tells of."""
    with anyio.fail_after(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)


async def frozen(criu, processes, target):
    """Freeze a tree and end it; give what it was."""
    tree = await processes.tree(target.root)
    held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    target.reap()
    await ended(lambda: _free(processes, [task.identity.pid for task in tree.tasks]))
    return tree


async def _free(processes, numbers) -> bool:
    return not await processes.taken(numbers)


def request(target, tree, ticks=0, **changes):
    """Ask for a tree in a namespace of its own."""
    numbers = tuple(task.number for task in tree.tasks)
    return attrs.evolve(target.restore(numbers, ticks), **{"new_pid_namespace": True, **changes})


async def thawed(criu, processes, target, tree):
    """Bring a tree back in a namespace of its own, and let it run; give the first process of that."""
    report = await criu.restore(request(target, tree, await processes.ticks()), nothing)
    target.restored, target.root = report.tasks, report.tasks[0]
    assert all(task.stopped for task in (await processes.tree(target.root)).tasks)
    await processes.proceed(report.tasks)
    return space.of(target.root)


async def test_a_tree_whose_numbers_are_taken_comes_back_and_is_frozen_again(criu, processes, program) -> None:
    """It goes on with its numbers, which nobody else sees; likewise a second time; and at last outside again."""
    target = program("memory", "threads", "family:4")
    before = await target.ask()
    tree = await frozen(criu, processes, target)
    numbers = [task.identity.pid for task in tree.tasks]

    with taken(numbers[0]):
        with pytest.raises(CriuFailed, check=that(comes_from="driver._restored")):
            await criu.restore(request(target, tree, new_pid_namespace=False), nothing)
        first = await thawed(criu, processes, target, tree)
        again = await processes.tree(target.root)
        assert again.hindrances == ()
        assert [space.number_inside(task) for task in target.restored] == numbers
        assert sorted(task.number for task in again.tasks) == sorted(numbers)
        assert target.root.pid not in numbers
        assert ancestors(target.root)[0] == first
        assert read_stat(first.pid).name == NAME
        proc = Path("/proc", str(target.root.pid), "root", "proc")  # as the tree sees it
        assert (proc / "1" / "comm").read_text() == f"{NAME}\n"
        assert sorted(int(each.name) for each in proc.glob("[0-9]*")) == sorted([1, *numbers])
        state = await target.ask()
        assert state == {name: EXPECTED[name](before[name]) for name in before}

        held = await criu.dump(target.dump(), nothing)
        await held.resume(PATIENCE_NS)
        assert (await target.ask())["memory"]["count"] == state["memory"]["count"] + 1

        tree = await frozen(criu, processes, target)
        await ended(lambda: space.ended(first, 0))
        second = await thawed(criu, processes, target, tree)
        assert (await target.ask())["memory"]["count"] == state["memory"]["count"] + 2

        tree = await frozen(criu, processes, target)
        await ended(lambda: space.ended(second, 0))

    await ended(lambda: _free(processes, numbers))
    report = await criu.restore(request(target, tree, new_pid_namespace=False), nothing)
    target.restored, target.root = report.tasks, report.tasks[0]
    assert [task.pid for task in report.tasks] == numbers
    assert space.of(target.root) is None
    await processes.proceed(report.tasks)
    assert (await target.ask())["memory"]["count"] == state["memory"]["count"] + 3


async def test_who_kills_the_first_process_ends_the_tree(criu, processes, program) -> None:
    """The kernel does it, and what is left is nothing."""
    target = program("memory", "family:2")
    first = await thawed(criu, processes, target, await frozen(criu, processes, target))
    assert await processes.living(target.restored) == target.restored
    os.kill(first.pid, signal.SIGKILL)
    assert await space.ended(first, PATIENCE_NS)
    assert await processes.living(target.restored) == ()


@pytest.mark.parametrize("whole", [False, True])
async def test_a_namespace_ends_with_who_made_it_until_the_tree_is_whole(criu, folder, whole) -> None:
    """Before that all in there is killed; after that it ends when the last one in there has, and kills nobody."""
    made = await space.make(folder, ())
    argv = [sys.executable, "-I", "-S", "-c", "import os; os.read(0, 1)"]
    with space.inside(made.first, lambda: subprocess.Popen(argv, stdin=subprocess.PIPE)) as program:
        assert space.number_inside(identify_task(program.pid)) not in (program.pid, 0)
        if whole:
            made.let_go()
            assert lives(made.first)
            program.stdin.close()
        else:
            made.close()
        assert program.wait(PATIENCE_S) == (0 if whole else -signal.SIGKILL)
    assert await space.ended(made.first, PATIENCE_NS)


async def test_a_first_process_without_descriptors_kills_nobody(criu, folder) -> None:
    """It has what it needs before the tree is whole, and ends with it."""
    made = await space.make(folder, ())
    argv = [sys.executable, "-I", "-S", "-c", "import os; os.read(0, 1)"]
    with space.inside(made.first, lambda: subprocess.Popen(argv, stdin=subprocess.PIPE)) as program:
        resource.prlimit(made.first.pid, resource.RLIMIT_NOFILE, (3, 3))
        made.let_go()
        await ended(lambda: _has_heard(made.first))
        assert lives(made.first)
        program.stdin.close()
        assert program.wait(PATIENCE_S) == 0
    assert await space.ended(made.first, PATIENCE_NS)


async def _has_heard(first) -> bool:
    """Whether it has let go of the other end, which it does once it belongs to the tree."""
    assert lives(first)
    return Path(f"/proc/{first.pid}/fd/0").readlink() == Path("/dev/null")


COVERED = """
import ctypes, os, stat, sys, anyio
from pathlib import Path
from iriscw.freeze.drivers.namespace import space
PRIVATE, BIND, READ_ONLY, REMOUNT = 0x44000, 0x1000, 1, 0x20
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments):
        sys.exit(f"{name}: {os.strerror(ctypes.get_errno())}")
call("unshare", 0x20000)
call("mount", None, b"/", None, PRIVATE, None)
call("mount", b"/dev/null", b"/proc/meminfo", None, BIND, None)
call("mount", b"/proc/sys", b"/proc/sys", None, BIND, None)
call("mount", None, b"/proc/sys", None, BIND | REMOUNT | READ_ONLY, None)
def look():
    made = anyio.run(space.make, Path(sys.argv[1]), ())
    proc = Path("/proc", str(made.first.pid), "root", "proc")
    print(stat.S_ISCHR((proc / "meminfo").stat().st_mode), bool(os.statvfs(proc / "sys").f_flag & os.ST_RDONLY),
          (proc / "1" / "comm").read_text().strip(), Path("/proc/self/mountinfo").read_text().count(" - proc "))
    made.close()
look()
"""


async def test_what_is_hidden_of_proc_outside_is_hidden_inside(criu, folder) -> None:
    """As a container runtime does it: a file that is none, settings that cannot be written. None of it leaks out."""
    done = subprocess.run(
        [sys.executable, "-c", COVERED, str(folder)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    mounts = Path("/proc/self/mountinfo").read_text().count(" - proc ") + 1  # that of its own settings
    assert done.stdout.split() == ["True", "True", NAME, str(mounts)]


THAWER = """
import os, signal, sys, anyio
from iriscw.freeze.drivers.criu import driver
from iriscw.freeze.model import CriuOptions, RestoreRequest
step, images, work, *pids = sys.argv[1:]
write_run = driver.write_run
def write(folder, run):
    write_run(folder, run)
    if bool(run.tasks) == (step == "made"):
        os.kill(os.getpid(), signal.SIGKILL)
if step != "returned":
    driver.write_run = write
numbers = tuple(map(int, pids))
request = RestoreRequest("thaw-1", images, work, CriuOptions(), numbers, 0, 60_000_000_000, new_pid_namespace=True)
anyio.run(driver.CriuSwrk().restore, request, lambda progress: None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("step", ["asked", "made", "returned"])
async def test_the_death_of_who_thaws(criu, processes, program, step) -> None:
    """The namespace ends by itself before the tree is whole; then by a sweep, which ends nobody else."""
    target = program("memory", "threads")
    asked = request(target, await frozen(criu, processes, target))
    argv = [sys.executable, "-c", THAWER, step, asked.images, asked.work, *map(str, asked.pids)]
    with subprocess.Popen(argv) as thawing:
        thawing.wait(PATIENCE_S)
    assert thawing.returncode == -signal.SIGKILL
    run = read_run(Path(asked.work))
    sweep = SweepRequest("thaw-1", asked.work)
    if step == "returned":
        assert await processes.living(run.tasks) == run.tasks
        assert lives(run.first)
        assert await criu.sweep(sweep) == run.tasks
    assert await space.ended(run.first, PATIENCE_NS)
    assert await processes.living((run.criu, *run.tasks)) == ()
    assert await criu.sweep(sweep) == ()


async def test_a_cancelled_restore_leaves_nothing(criu, processes, program, monkeypatch) -> None:
    """Cancelled when all tasks exist and none has run: they are gone, with their namespace, and no record is left."""
    target = program("memory", "threads")
    asked = request(target, await frozen(criu, processes, target))
    write_run = driver_module.write_run
    written = []

    with anyio.CancelScope() as scope:

        def write(work, run) -> None:
            write_run(work, run)
            written.append(run)
            if run.tasks:
                anyio.from_thread.run_sync(scope.cancel)

        monkeypatch.setattr(driver_module, "write_run", write)
        await criu.restore(asked, nothing)
        pytest.fail("it was not cancelled")
    run = written[-1]
    assert len(run.tasks) == 1
    assert not any(map(lives, (run.first, run.criu, *run.tasks)))
    assert read_run(Path(asked.work)) is None


@pytest.mark.parametrize("step", ["asked", "made", "whole"])
async def test_a_first_process_that_is_killed_while_its_tree_is_made(criu, processes, program, monkeypatch, step):
    """The kernel ends CRIU and all that it made; that is a failed thaw, of which nothing is left."""
    target = program("memory", "family:2")
    asked = request(target, await frozen(criu, processes, target))
    write_run, let_go, written = driver_module.write_run, space.OwnNamespace.let_go, []

    def write(work, run) -> None:
        write_run(work, run)
        written.append(run)
        if bool(run.tasks) == (step == "made") and step != "whole":
            os.kill(run.first.pid, signal.SIGKILL)

    def go(made) -> None:
        with os.fdopen(open_task(made.first), "rb") as ending:
            os.kill(made.first.pid, signal.SIGKILL)
            select.select([ending], [], [], PATIENCE_S)
        let_go(made)

    monkeypatch.setattr(driver_module, "write_run", write)
    if step == "whole":
        monkeypatch.setattr(space.OwnNamespace, "let_go", go)
    # The kernel ends the rest after the first one: what goes on meanwhile may be the first to notice.
    noticed = {"asked": "driver._restored", "whole": "space.OwnNamespace.let_go"}
    with pytest.raises(CriuFailed, check=that(comes_from=noticed[step]) if step in noticed else None):
        await criu.restore(asked, nothing)
    run = written[-1]
    assert not any(map(lives, (run.first, run.criu, *run.tasks)))
    assert read_run(Path(asked.work)) is None


async def test_what_does_not_go_into_a_namespace(criu, processes, program) -> None:
    """Pages that come later, and a terminal: that is said before anything is begun."""
    target = program("memory")
    tree = await processes.tree(target.root)
    target.folders()
    (target.at / "images" / "core-1.img").touch()
    for changes in ({"lazy": True}, {"options": CriuOptions(shell_job=True)}):
        with pytest.raises(UnsafeRequest, check=that(comes_from="driver.CriuSwrk.restore")):
            await criu.restore(request(target, tree, **changes), nothing)


NAMED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(int(sys.argv[1])):
    sys.exit(os.strerror(ctypes.get_errno()))
pid = os.fork()
if pid:
    print(pid, flush=True)
    os.waitpid(pid, 0)
else:
    libc.prctl(15, sys.argv[2].encode(), 0, 0, 0)
    print("ready", flush=True)
    os.read(0, 1)
"""

NEW_NUMBERS, NEW_MOUNTS, NEW_USERS = 0x20000000, 0x20000, 0x10000000


@pytest.mark.parametrize(
    ("new", "name", "ours"),
    [
        (NEW_NUMBERS | NEW_MOUNTS, NAME, True),
        (NEW_NUMBERS | NEW_MOUNTS, "init", False),
        (NEW_NUMBERS | NEW_MOUNTS | NEW_USERS, NAME, False),
    ],
)
async def test_a_name_alone_proves_nothing(processes, new, name, ours) -> None:
    """CRIU is run in nobody's mount namespace who may have made it without being root of this machine."""
    argv = [sys.executable, "-I", "-S", "-c", NAMED, str(new), name]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said = {process.stdout.readline(), process.stdout.readline()}
        if said == {b""}:
            pytest.skip("this user may not make such namespaces")
        first = identify_task(int((said - {b"ready\n"}).pop()))
        assert space.of(first) == (first if ours else None)
        assert space.of(identify_task(os.getpid())) is None
        found = (await processes.tree(first)).hindrances
        assert (Obstacle.ELSEWHERE in [each.obstacle for each in found]) is not ours
