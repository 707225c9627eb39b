# ruff: noqa: ASYNC220, ASYNC222, ASYNC240
# A test's own loop may block: nobody else waits for it.
"""What goes wrong with a real CRIU: each time an error that says what, and nothing left in between."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.freeze.drivers.criu import driver as driver_module
from iriscw.freeze.drivers.criu.record import read_run
from iriscw.freeze.drivers.identities import lives
from iriscw.freeze.model import (
    CriuFailed,
    CriuOptions,
    CriuOverdue,
    DumpRequest,
    NoRoom,
    SweepRequest,
    TargetGone,
    TargetUnfit,
    TaskIdentity,
    TreeLeft,
)
from iriscw.processes.identity import read_stat
from raised import that

pytestmark = pytest.mark.slow

ROOT = TaskIdentity(2, 3, "boot")
PATIENCE_S = 60.0
LARGE_BYTES = 256 << 20
PATIENCE_NS = 60_000_000_000


def nothing(progress) -> None:
    """Take progress."""


async def goes_on(target) -> bool:
    """Whether a program answers, and is traced by nobody."""
    count = (await target.ask())["memory"]["count"]
    return (await target.ask())["memory"]["count"] == count + 1


async def ended_and_free(processes, held, target) -> tuple[int, ...]:
    """End a held tree and wait until its numbers are free; give them."""
    pids = tuple(task.pid for task in held.tasks)
    await held.end(PATIENCE_NS)
    target.reap()
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)
    return pids


async def test_a_held_tree_makes_no_progress_and_runs_on_when_it_is_let_go(criu, processes, program) -> None:
    """Held, all of it is traced; resumed, it answers. Resuming twice is once; then it cannot be ended any more."""
    target = program("memory")
    held = await criu.dump(target.dump(), nothing)
    assert (await processes.tree(target.root)).tasks[0].traced_by
    await held.resume(PATIENCE_NS)
    await held.resume(PATIENCE_NS)
    assert await goes_on(target)
    with pytest.raises(TreeLeft, check=that(comes_from="held.CriuHeldTree.end")):
        await held.end(PATIENCE_NS)
    assert lives(target.root)


async def test_a_tree_that_was_ended_cannot_be_resumed(criu, program) -> None:
    """Ending twice is once."""
    target = program("memory")
    held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    await held.end(PATIENCE_NS)
    with pytest.raises(TreeLeft, check=that(comes_from="held.CriuHeldTree.resume")):
        await held.resume(PATIENCE_NS)


async def test_a_stopped_process_stays_stopped(criu, processes, program) -> None:
    """Who was stopped before a dump is stopped after it was undone."""
    target = program("memory")
    os.kill(target.root.pid, signal.SIGSTOP)
    os.waitpid(target.root.pid, os.WUNTRACED)
    held = await criu.dump(target.dump(), nothing)
    await held.resume(PATIENCE_NS)
    with anyio.fail_after(PATIENCE_S):  # whom CRIU lets go of wakes up for a moment, to find that it is stopped
        while not (await processes.tree(target.root)).tasks[0].stopped:  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.001)
    await processes.proceed([target.root])
    assert await goes_on(target)


async def test_criu_killed_while_it_holds_lets_the_tree_run(criu, program) -> None:
    """Then the tree has run on since its images were made: it is not killed, it is reported."""
    target = program("memory")
    request = target.dump()
    held = await criu.dump(request, nothing)
    run = read_run(Path(request.work))
    os.kill(run.criu.pid, signal.SIGKILL)
    assert await held._run.ended(PATIENCE_NS)
    with pytest.raises(TreeLeft, check=that(comes_from="held.CriuHeldTree.end", names="somebody")):
        await held.end(PATIENCE_NS)
    await held.resume(PATIENCE_NS)
    assert await goes_on(target)


FREEZER = """
import json, sys, anyio
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.model import CriuOptions, DumpRequest
async def main(pid, images, work):
    request = DumpRequest("freeze-1", identify_task(int(pid)), images, work, CriuOptions(), 60_000_000_000)
    held = await CriuSwrk().dump(request, lambda progress: None)
    print("held", flush=True)
    await anyio.sleep_forever()
anyio.run(main, *sys.argv[1:])
"""


async def test_criu_killed_before_it_hears_that_it_is_to_end_the_tree(criu, program) -> None:
    """It was told, and is killed before it reads that: the tree runs on, that is said at once, and it is not killed."""
    target = program("memory", "threads")
    before = await target.ask()
    held = await criu.dump(target.dump(), nothing)
    held._run.signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:

        async def ending() -> None:
            with pytest.raises(TreeLeft, check=that(comes_from="held.CriuHeldTree.end")):
                await held.end(3600 * 10**9)

        tasks.start_soon(ending)
        with anyio.fail_after(PATIENCE_S):
            while held._decided != "end":  # noqa: ASYNC110 - nobody is told
                await anyio.sleep(0.001)
        held._run.signal(signal.SIGKILL)
    await held.resume(PATIENCE_NS)
    after = await target.ask()
    assert after["memory"] == {**before["memory"], "count": before["memory"]["count"] + 1}


async def test_the_death_of_who_freezes_lets_the_tree_run(criu, processes, program) -> None:
    """CRIU hears that nobody holds its leash, and undoes what it did. A sweep finds nothing to kill."""
    target = program("memory")
    request = target.dump()
    argv = [sys.executable, "-c", FREEZER, str(target.root.pid), request.images, request.work]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as freezing:
        assert freezing.stdout.readline() == b"held\n"
        freezing.kill()
    assert await goes_on(target)
    sweep = SweepRequest("freeze-1", request.work)
    assert await criu.sweep(sweep) == ()
    assert not lives(read_run(Path(request.work)).criu)
    assert await goes_on(target)


@pytest.mark.parametrize(
    ("feature", "options", "said"),
    [
        ("tcp", CriuOptions(), that(names="TCP")),
        ("uring", CriuOptions(), that(comes_from="driver._dump")),
        ("locks", CriuOptions(file_locks=False), that(comes_from="driver._dump")),
    ],
)
async def test_what_cannot_be_dumped_is_named_and_runs_on(criu, processes, program, feature, options, said) -> None:
    """A connection without leave, an io_uring, locks without leave: the tree is unfit, and was not harmed."""
    target = program("memory", feature)
    target.options = options
    if feature == "uring" and (target.folder / "refused").exists():
        pytest.skip("this kernel gives no io_uring")
    if feature == "tcp":
        port = int((target.folder / "port").read_text())
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
            channel.sendall(b"x")
            assert channel.recv(10) == b"1\n"
            found = [each.obstacle.value for each in (await processes.tree(target.root)).hindrances]
            with pytest.raises(TargetUnfit, check=said):
                await criu.dump(target.dump(), nothing)
            assert await goes_on(target)
    else:
        found = [each.obstacle.value for each in (await processes.tree(target.root)).hindrances]
        with pytest.raises(TargetUnfit, check=said):
            await criu.dump(target.dump(), nothing)
        assert await goes_on(target)
    assert found == {"tcp": ["tcp"], "uring": ["io_uring"], "locks": []}[feature]


async def test_a_connection_that_nobody_has_accepted_is_named(criu, program, folder) -> None:
    """CRIU dumps it and never restores it: it is refused while the tree is still held, and the tree runs on."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "elsewhere"))
        listening.listen()
        target = program("memory", "dialling")
        with pytest.raises(TargetUnfit, check=that(comes_from="whole.check_whole")):
            await criu.dump(target.dump(), nothing)
        assert await goes_on(target)


LISTENS = """
import socket, sys, time
server, inside = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1] + "/server")
server.listen(5)
inside.connect(sys.argv[1] + "/server")
print("ready", flush=True)
time.sleep(1 << 20)
"""


async def test_a_client_outside_that_was_not_accepted_is_named(criu, other_program) -> None:
    """Its connection would be lost, and it would not know why. One inside of the tree comes back."""
    target, _ = other_program(LISTENS)
    held = await criu.dump(target.dump(), nothing)
    await held.resume(PATIENCE_NS)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(target.folder / "server"))
        with pytest.raises(TargetUnfit, check=that(comes_from="whole.check_whole", names="server")):
            await criu.dump(target.dump(), nothing)
        assert lives(target.root)


async def test_a_terminal_is_named(criu, processes, program) -> None:
    """A program whose output is a terminal is told how to do without."""
    above, below = pty.openpty()
    try:
        target = program("memory", stdout=below)
        found = (await processes.tree(target.root)).hindrances
        assert [each.obstacle.value for each in found] == ["terminal", "leader"]
        with pytest.raises(TargetUnfit, check=that(comes_from="driver._dump")):
            await criu.dump(target.dump(), nothing)
        assert await goes_on(target)
    finally:
        os.close(above)
        os.close(below)


async def test_a_full_disk_is_named_and_the_tree_runs_on(criu, program, small_disk) -> None:
    """A megabyte does not fit into half of one."""
    target = program("memory")
    (small_disk / "images").mkdir()
    request = attrs.evolve(target.dump(), images=str(small_disk / "images"))
    with pytest.raises(NoRoom, check=that(comes_from="driver._dump")):
        await criu.dump(request, nothing)
    assert await goes_on(target)


async def test_a_dump_that_is_cancelled_is_undone_by_criu_itself(criu, other_program, monkeypatch) -> None:
    """It writes no more and ends: one that is killed may leave a task with the instructions that it put there."""
    runs = []
    real = driver_module.start
    monkeypatch.setattr(driver_module, "start", lambda *given, **named: runs.append(real(*given, **named)) or runs[-1])
    monkeypatch.setattr(driver_module, "PROGRESS_S", 0.01)
    target, _ = other_program(
        f"import time; held = b'x' * {LARGE_BYTES}; print('ready', flush=True); time.sleep(1 << 20)"
    )

    with anyio.CancelScope() as scope:
        await criu.dump(target.dump(), lambda progress: scope.cancel() if progress.done_bytes else None)
    assert scope.cancelled_caught
    assert runs[0]._process.returncode > 0
    assert sum(each.stat().st_size for each in (target.at / "images").glob("pages-*.img")) < LARGE_BYTES
    assert lives(target.root)
    assert read_stat(target.root.pid).state in "RS"


async def test_a_number_that_is_taken_is_named_and_nobody_is_touched(criu, processes, program) -> None:
    """A thaw beside the original, which ran on, fails, and the original does not notice."""
    target = program("memory")
    held = await criu.dump(target.dump(), nothing)
    await held.resume(PATIENCE_NS)
    assert await processes.taken([target.root.pid]) == (target.root.pid,)
    with pytest.raises(CriuFailed, check=that(comes_from="driver._restored")):
        await criu.restore(target.restore((target.root.pid,), await processes.ticks()), nothing)
    assert await goes_on(target)


async def test_a_process_that_is_another_one_by_now_is_left_alone(criu, program) -> None:
    """The number alone names nobody."""
    target = program("memory")
    root = target.root
    request = attrs.evolve(target.dump(), root=TaskIdentity(root.pid, root.start_ticks - 1, root.boot_id))
    with pytest.raises(TargetGone):
        await criu.dump(request, nothing)
    assert list(Path(request.images).iterdir()) == []
    assert await goes_on(target)


async def test_images_that_are_cut_off_are_given_up_at_the_deadline(criu, processes, program) -> None:
    """CRIU would hang for ever with a task that spins: both are killed."""
    target = program("memory")
    held = await criu.dump(target.dump(), nothing)
    pids = await ended_and_free(processes, held, target)
    pages = max((target.at / "images").glob("pages-*.img"), key=lambda path: path.stat().st_size)
    os.truncate(pages, pages.stat().st_size // 2)
    with pytest.raises((CriuOverdue, CriuFailed)):
        await criu.restore(target.restore(pids, 0, within_ns=2_000_000_000), nothing)
    assert await processes.living([target.root]) == ()
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # whoever adopted them reaps them
            await anyio.sleep(0.01)


async def test_a_cancelled_restore_leaves_nothing(criu, processes, program, monkeypatch) -> None:
    """Cancelled when all tasks exist and none has run: nothing of them is left."""
    target = program("memory", "threads")
    held = await criu.dump(target.dump(), nothing)
    pids = await ended_and_free(processes, held, target)
    write_run = driver_module.write_run
    written = []

    with anyio.CancelScope() as scope:

        def write(work, run) -> None:
            write_run(work, run)
            written.append(run)
            if run.tasks:
                anyio.from_thread.run_sync(scope.cancel)

        monkeypatch.setattr(driver_module, "write_run", write)
        await criu.restore(target.restore(pids), nothing)
        pytest.fail("it was not cancelled")
    assert scope.cancelled_caught
    run = written[-1]
    assert [task.pid for task in run.tasks] == list(pids)
    assert await processes.living(run.tasks) == ()
    assert not lives(run.criu)
    # A sweep has nothing to look for: it would guess by numbers, which somebody else may have by then.
    assert read_run(next(iter(sorted(target.at.glob("work-*"))))) is None


THAWER = """
import os, signal, sys, anyio
from pathlib import Path
from iriscw.freeze.drivers.criu import driver
from iriscw.freeze.model import CriuOptions, RestoreRequest
step, images, work, *pids = sys.argv[1:]
write_run = driver.write_run
def write(folder, run):
    if bool(run.tasks) == (step == "made"):
        if step == "made":
            write_run(folder, run)
        os.kill(os.getpid(), signal.SIGKILL)
    write_run(folder, run)
def unnamed(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.kill(os.getpid(), signal.SIGKILL)
if step == "unnamed":
    driver.descendants = unnamed
elif step != "returned":
    driver.write_run = write
request = RestoreRequest("thaw-1", images, work, CriuOptions(), tuple(map(int, pids)), 0, 60_000_000_000)
anyio.run(driver.CriuSwrk().restore, request, lambda progress: None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("step", ["asked", "made", "returned"])
async def test_a_sweep_ends_what_the_death_of_who_thaws_left(criu, processes, program, step) -> None:
    """Killed before CRIU was asked, when all tasks exist, and when the restore was over: nothing is left of it."""
    target = program("memory", "threads")
    held = await criu.dump(target.dump(), nothing)
    pids = await ended_and_free(processes, held, target)
    request = target.restore(pids)
    ticks = await processes.ticks()
    argv = [sys.executable, "-c", THAWER, step, request.images, request.work, *map(str, pids)]
    with subprocess.Popen(argv) as thawing:
        thawing.wait(PATIENCE_S)
    assert thawing.returncode == -signal.SIGKILL
    swept = await criu.sweep(SweepRequest("thaw-1", request.work, pids, ticks))
    if step == "returned":
        assert [task.pid for task in swept] == list(pids)
    run = read_run(Path(request.work))
    assert (run is None) == (step == "asked")
    if run is not None:
        assert not lives(run.criu)
        assert await processes.living(run.tasks) == ()
    assert await criu.sweep(SweepRequest("thaw-1", request.work, pids, ticks)) == ()
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # whoever adopted them reaps them
            await anyio.sleep(0.01)


async def test_a_sweep_ends_tasks_whose_criu_was_killed_before_it_could_name_them(criu, processes, program) -> None:
    """CRIU and who thaws are killed when all tasks exist and none is written down: they are known by CRIU's log."""
    target = program("memory", "threads")
    tree = await processes.tree(target.root)
    held = await criu.dump(target.dump(), nothing)
    await ended_and_free(processes, held, target)
    pids = tuple(task.pid for task in tree.identities)
    request, ticks = target.restore(pids), await processes.ticks()
    argv = [sys.executable, "-c", THAWER, "unnamed", request.images, request.work, *map(str, pids)]
    with subprocess.Popen(argv) as thawing:
        thawing.wait(PATIENCE_S)
    assert thawing.returncode == -signal.SIGKILL
    assert len(await processes.taken(pids)) == len(pids)
    swept = await criu.sweep(SweepRequest("thaw-1", request.work, pids, ticks))
    assert {task.pid for task in swept} >= {*pids}
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # whoever adopted them reaps them
            await anyio.sleep(0.01)


async def test_a_stranger_with_a_number_of_the_tree_is_left_alone(criu, processes, program) -> None:
    """It is as old as a task would be and was adopted, too, and that proves nothing: it is reported and goes on."""
    target = program("memory")
    held = await criu.dump(target.dump(), nothing)
    pids = await ended_and_free(processes, held, target)
    ticks = await processes.ticks()
    request = target.restore(pids)
    report = await criu.restore(request, nothing)
    target.restored = report.tasks
    record = Path(request.work) / "criu-run.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "tasks": []}))
    later = report.tasks[0].start_ticks + 1
    assert await criu.sweep(SweepRequest("thaw-1", request.work, pids, later)) == ()
    with pytest.raises(TreeLeft, check=that(names=pids[0])):
        await criu.sweep(SweepRequest("thaw-1", request.work, pids, ticks))
    assert await processes.living(report.tasks) == report.tasks


async def test_criu_killed_while_it_restores_leaves_nothing(criu, processes, program, monkeypatch) -> None:
    """Its tasks were adopted by then, and none was written down: they are ended all the same."""
    target = program("memory", "threads")
    held = await criu.dump(target.dump(), nothing)
    pids = await ended_and_free(processes, held, target)

    def killed(pid):
        if not orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            orphans.extend(number for number in pids if not read_stat(number).ended)
        return ()

    orphans = []
    monkeypatch.setattr(driver_module, "held_below", killed)
    with pytest.raises(CriuFailed):
        await criu.restore(target.restore(pids, await processes.ticks()), nothing)
    assert orphans == [*pids]
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # whoever adopted them reaps them
            await anyio.sleep(0.01)


async def test_a_long_dump_is_looked_at_less_and_less_often(tmp_path, monkeypatch) -> None:
    """What is written is told at once, and then after pauses that grow up to a bound."""
    pauses, told = [], []

    async def sleep(pause_s) -> None:
        pauses.append(pause_s)
        (tmp_path / "pages-1.img").write_bytes(bytes(len(pauses)))

    def report(progress) -> None:
        told.append(progress.done_bytes)
        if len(told) == 20:
            enough.set()

    monkeypatch.setattr(driver_module.anyio, "sleep", sleep)
    request = DumpRequest("freeze-1", ROOT, str(tmp_path), str(tmp_path), CriuOptions(), PATIENCE_NS)
    enough = anyio.Event()
    async with driver_module.bounded_progress(request, report):
        await enough.wait()
    assert told[:20] == [*range(1, 21)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (driver_module.PROGRESS_S, driver_module.PROGRESS_MOST_S)
