"""Attempts as processes that another worker of the machine takes over: whose they are, and what nobody else touches.

No CRIU is needed: an attempt whose supervisor was killed leaves what a frozen one does.
"""

import os
import shutil
import signal
import time
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.processes.ends import EndKind
from iriscw.processes.grants import GrantRefused, GrantStanding, owner_of, standing_of
from iriscw.processes.identity import send_signal
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.status import write_thawed
from iriscw.task.environment import CONTEXT_FILE, PRIVATE_FOLDER, decode_facts
from iriscw.testing.conformance.task_runtime import facts
from iriscw.worker.assembly import end_earlier_lives
from iriscw.worker.inotify import FileWatch
from iriscw.worker.ports import AttemptSpec, ResumeRefused, Whereabouts, WorkerTrouble
from iriscw.worker.runtimes.inline import InlineRuntime
from iriscw.worker.runtimes.process import ProcessRuntime
from raised import that

PATIENCE_S = 60.0
WHERE = Whereabouts("b", "controller:1", "10.0.0.2")


@pytest.fixture
def workers(tmp_path: Path):
    """A function that makes the runtime of a worker with a lease; the same name gives the same worker again."""
    leases = []

    def make(name: str, life: str = "1", *, over: bool = False) -> ProcessRuntime:
        folder = tmp_path / name / life
        folder.mkdir(parents=True, exist_ok=True)
        lease = LeaseFile(folder / "lease")
        leases.append(lease)
        lease.hold(time.monotonic_ns() if over else NEVER_NS)
        lease.write()
        return ProcessRuntime(folder / "attempts", one_log=True, lease=lease, owner=f"{name}/{life}")

    yield make
    for lease in leases:
        lease.close()


async def frozen(runtime: ProcessRuntime, uid: str = "a1") -> Path:
    """Start an attempt and leave of it what a freeze does."""
    running = await runtime.start(AttemptSpec(facts(uid), argv=("sleep", "600")))
    send_signal(running.supervised.supervisor, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        assert (await running.wait()).kind is EndKind.LOST
    return running.folder.path


async def test_another_worker_takes_it_over_where_it_is(workers) -> None:
    """Its folder stays, its context says where it is now, and each process of either worker knows whose it is."""
    old, new = workers("a"), workers("b")
    folder = await frozen(old)
    running = await new.permit("a1", folder, "g1", WHERE)
    again = await new.permit("a1", folder, "g1", WHERE)  # as after a crash
    assert running.folder.path == again.folder.path == folder
    assert (standing_of(folder, "g1"), owner_of(folder)) == (GrantStanding.OFFERED, "b/1")
    found = decode_facts((folder / "work" / PRIVATE_FOLDER / CONTEXT_FILE).read_bytes())
    assert (found.worker_id, found.controller_address, found.advertise_host) == ("b", "controller:1", "10.0.0.2")
    assert found == attrs.evolve(
        facts("a1"), worker_id="b", controller_address="controller:1", advertise_host="10.0.0.2", moved=True
    )
    assert await workers("a").adopt() == ()
    (adopted,) = await workers("b").adopt()
    assert adopted.folder.path == folder
    await adopted.remove()
    assert not folder.exists()
    assert await workers("b").adopt() == ()
    assert not [*(new.root.parent / "moved").iterdir()]


async def test_what_is_let_go_is_nobodys(workers) -> None:
    """Neither who had it nor its next process ends or removes it; the next one may have it, and the first again."""
    old, new = workers("a"), workers("b")
    folder = await frozen(old)
    await old.let_go("a1")
    await old.let_go("a1")
    assert await workers("a").adopt() == ()
    assert old.strangers() == [folder]
    await new.permit("a1", folder, "g1", WHERE)
    (folder / "grant.json").rename(folder / "grant.json.taken")  # it was thawed, and is frozen once more
    await new.let_go("a1")
    assert await workers("b").adopt() == ()
    await old.permit("a1", folder, "g2", WHERE)
    (adopted,) = await workers("a").adopt()
    assert adopted.folder.path == folder


async def test_who_comes_back_late_touches_nothing(workers) -> None:
    """A worker that was stopped meanwhile ends and removes what it had; what another one has by then lives on."""
    old = workers("a")
    running = await old.start(AttemptSpec(facts("a1"), argv=("sleep", "600")))
    folder = running.folder.path
    send_signal(running.supervised.supervisor, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        await anyio.wait_readable(pidfd := os.pidfd_open(running.supervised.supervisor.pid))
        os.close(pidfd)
        await workers("b").permit("a1", folder, "g1", WHERE)
        marked = {"IRIS_ATTEMPT_UID": "a1", "IRIS_WORKDIR": str(folder / "work")}
        async with await anyio.open_process(["sleep", "600"], env=marked) as back:  # as the one that was thawed
            assert (await running.wait()).kind is EndKind.LOST
            assert (await running.stop(0)).kind is EndKind.LOST
            await running.remove()
            assert (back.returncode, folder.exists()) == (None, True)
            (mine,) = await workers("b").adopt()
            await mine.stop(0)
            assert await back.wait() == -signal.SIGKILL
    await mine.remove()
    assert not folder.exists()


async def test_a_leave_is_one_workers(workers) -> None:
    """While one has it nobody else gets it; once it is taken back it is not given again."""
    folder = await frozen(workers("a"))
    new, third = workers("b"), workers("c")
    await new.permit("a1", folder, "g1", WHERE)
    with pytest.raises(GrantRefused, check=that(comes_from="grants.offer")):
        await third.permit("a1", folder, "g2", WHERE)
    assert await third.adopt() == ()
    assert not [*(third.root.parent / "moved").iterdir()]
    assert await new.revoke("a1", "g1") is None
    assert await new.revoke("a1", "g1") is None
    with pytest.raises(GrantRefused, check=that(comes_from="grants.offer")):
        await new.permit("a1", folder, "g1", WHERE)
    await third.permit("a1", folder, "g3", WHERE)
    assert owner_of(folder) == "c/1"


async def test_what_runs_is_not_taken_away(workers) -> None:
    """A grant for an attempt that was never frozen is refused, and changes nothing for who has it."""
    old = workers("a")
    running = await old.start(AttemptSpec(facts("a1"), argv=("sleep", "600")))
    with pytest.raises(ResumeRefused, check=that(comes_from="process.ProcessRuntime._check")):
        await workers("b").permit("a1", running.folder.path, "g1", WHERE)
    assert owner_of(running.folder.path) is None
    assert (await running.stop(0)).kind is EndKind.STOPPED


async def test_a_worker_whose_lease_is_over_leaves_nothing_on_offer(workers) -> None:
    """What it had let go on may be elsewhere by now: its next process takes that back first."""
    folder = await frozen(workers("a"))
    await workers("b").permit("a1", folder, "g1", WHERE)
    await workers("b", over=True).adopt()
    assert standing_of(folder, "g1") is GrantStanding.WITHDRAWN


async def test_it_is_waited_for(workers) -> None:
    """Until its supervisor has the grant and has said who it is: here a stand-in says so in its place."""
    folder = await frozen(workers("a"))
    new = workers("b")
    watch = FileWatch()
    new = attrs.evolve(new, watch=watch)
    await new.permit("a1", folder, "g1", WHERE)
    other = await workers("a").start(AttemptSpec(facts("a2"), argv=("sleep", "600")))
    found = []

    async def wait() -> None:
        found.append(await new.thawed("a1", "g1"))
        tasks.cancel_scope.cancel()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.serve)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            (folder / "grant.json").rename(folder / "grant.json.taken")
            write_thawed(folder, [other.supervised.supervisor], [other.supervised.supervisor.pid])
            identity = (other.folder.path / "identity.json").read_bytes()
            (folder / "new").write_bytes(identity)
            (folder / "new").rename(folder / "identity.json")
    assert found[0].supervised.supervisor == other.supervised.supervisor
    late = await new.revoke("a1", "g1")
    assert late is not None
    await other.stop(0)
    watch.close()


async def test_what_is_no_attempt_is_refused(workers, tmp_path: Path) -> None:
    """Another folder, one that never began, a link, and a worker that could not answer for it."""
    folder = await frozen(workers("a"))
    new = workers("b")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "a1").symlink_to(folder)
    (tmp_path / "empty" / "a1").mkdir(parents=True)
    for uid, path in (
        ("a2", folder),
        ("a1", tmp_path / "empty" / "a1"),
        ("a1", tmp_path / "link" / "a1"),
        ("a1", tmp_path / "no" / "a1"),
        ("a1", Path("a1")),
    ):
        with pytest.raises(ResumeRefused):
            await new.permit(uid, path, "g1", WHERE)
    with pytest.raises(ResumeRefused, check=that(comes_from="process.ProcessRuntime.permit")):
        await attrs.evolve(new, lease=None).permit("a1", folder, "g1", WHERE)
    with pytest.raises(ResumeRefused, check=that(comes_from="not_suspendable.Unmoved.permit")):
        await InlineRuntime(tmp_path / "inline").permit("a1", folder, "g1", WHERE)
    assert owner_of(folder) is None
    with pytest.raises(ResumeRefused, check=that(comes_from="process.ProcessRuntime.thawed")):
        await new.thawed("a9", "g1")
    assert await new.revoke("a9", "g1") is None


async def test_the_next_incarnation_of_a_worker_leaves_what_others_have(workers, tmp_path: Path) -> None:
    """It ends what its own last life had, wherever that began, and nothing of anybody else's."""
    old, new = workers("a"), workers("b")
    mine, moved = await frozen(old, "a1"), await frozen(old, "a2")
    theirs = await frozen(new, "b1")
    await new.permit("a2", moved, "g1", WHERE)
    await old.permit("b1", theirs, "g2", WHERE)
    await end_earlier_lives(tmp_path / "a" / "2")
    assert not mine.exists()
    assert not theirs.exists(), "it had been taken over by the life that was ended"
    assert moved.exists()
    (adopted,) = await new.adopt()
    assert adopted.folder.path == moved
    await adopted.remove()
    await end_earlier_lives(tmp_path / "a" / "2")
    assert not (tmp_path / "a" / "1").exists()


async def test_what_a_program_puts_into_its_folder_keeps_no_worker_from_beginning(workers) -> None:
    """A link or a folder where a grant would be: it is nobody's but its starter's."""
    old = workers("a")
    for uid, spoil in (
        ("a1", lambda path: path.symlink_to("/etc/passwd")),
        ("a2", lambda path: path.mkdir()),
        ("a3", os.mkfifo),
    ):
        spoil(await frozen(old, uid) / "grant.json")
    assert [each.uid for each in await workers("a").adopt()] == ["a1", "a2", "a3"]


async def waiting_for(new: ProcessRuntime, watch: FileWatch, folder: Path, act) -> None:
    """Have a worker wait for an attempt while something is done, which ends when the grant is on offer in a folder."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.serve)
            tasks.start_soon(new.thawed, "a1", "g1")
            await anyio.wait_all_tasks_blocked()
            await act()
            while await anyio.to_thread.run_sync(standing_of, folder, "g1") is not GrantStanding.OFFERED:  # noqa: ASYNC110  # a file has no event
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_a_folder_that_is_yet_to_come_gets_its_grant_when_it_does(workers, tmp_path: Path) -> None:
    """As on another machine: its place is made, it is looked for there, and another one in its stead gets it anew."""
    folder = await frozen(workers("a"))
    (tmp_path / "kept").mkdir()
    folder.rename(tmp_path / "kept" / "a1")
    folder.parent.rmdir()
    watch = FileWatch()
    new = attrs.evolve(workers("b"), watch=watch)
    await new.permit("a1", folder, "g1", WHERE)
    await new.permit("a1", folder, "g1", WHERE)
    assert folder.parent.is_dir()
    assert not folder.exists()
    assert await workers("b").adopt() == ()

    async def comes() -> None:
        (tmp_path / "kept" / "a1").rename(folder)

    await waiting_for(new, watch, folder, comes)
    found = decode_facts((folder / "work" / PRIVATE_FOLDER / CONTEXT_FILE).read_bytes())
    assert (found.worker_id, found.moved) == ("b", True)
    assert owner_of(folder) == "b/1"

    async def another_comes() -> None:
        shutil.copytree(folder, tmp_path / "kept" / "a1")
        (tmp_path / "kept" / "a1" / "grant.json").unlink()
        folder.rename(tmp_path / "kept" / "old")
        (tmp_path / "kept" / "a1").rename(folder)

    await waiting_for(new, watch, folder, another_comes)
    assert await new.revoke("a1", "g1") is None
    assert standing_of(folder, "g1") is GrantStanding.WITHDRAWN
    watch.close()


async def test_what_was_taken_back_is_never_offered(workers, tmp_path: Path) -> None:
    """The folder comes after the grant was taken back: nothing is put into it, and its place goes with the last."""
    folder = await frozen(workers("a"))
    folder.rename(tmp_path / "kept")
    watch = FileWatch()
    new = attrs.evolve(workers("b"), watch=watch)
    await new.permit("a1", folder, "g1", WHERE)
    permitted = new._permitted["a1"]
    assert await new.revoke("a1", "g1") is None
    (tmp_path / "kept").rename(folder)
    new._offer(permitted)
    assert standing_of(folder, "g1") is GrantStanding.NONE
    folder.rename(tmp_path / "kept")
    await new.let_go("a1")
    assert not folder.parent.exists()
    assert not [*(new.root.parent / "moved").iterdir()]
    watch.close()


@pytest.mark.parametrize("spoilt", ["attempt.json", "grant.json.taken"])
async def test_what_its_program_removes_does_not_hide_that_a_grant_was_taken(workers, spoilt: str) -> None:
    """It runs: whoever took it for one that never began would let it go on elsewhere, too."""
    folder = await frozen(workers("a"))
    new = workers("b")
    await new.permit("a1", folder, "g1", WHERE)
    (folder / "grant.json").rename(folder / "grant.json.taken")
    (folder / spoilt).unlink()
    assert await new.revoke("a1", "g1") is not None


async def test_a_folder_that_cannot_be_looked_at_is_not_one_that_is_not_there(workers) -> None:
    """The worker says so, and tries again, until it can tell; another folder in its place never had the grant."""
    folder = await frozen(workers("a"))
    new = workers("b")
    await new.permit("a1", folder, "g1", WHERE)
    folder.parent.rename(aside := folder.parent.with_name("aside"))
    folder.parent.symlink_to(folder.parent.name)  # a loop
    with pytest.raises(WorkerTrouble, check=that(comes_from="process.ProcessRuntime.revoke")):
        await new.revoke("a1", "g1")
    folder.parent.unlink()
    shutil.copytree(aside / "a1", folder, ignore=shutil.ignore_patterns("grant.json"))
    assert await new.revoke("a1", "g1") is None


@pytest.mark.parametrize("by_another", [False, True])
async def test_who_leaves_a_place_does_not_take_it_from_who_is_waited_for_there(
    workers, tmp_path: Path, by_another: bool
) -> None:
    """Two attempts are yet to come; one is given back, here or by a worker beside this one; the other still comes."""
    old = workers("a")
    folder, other = await frozen(old, "a1"), await frozen(old, "a2")
    shutil.move(folder.parent, tmp_path / "kept")
    watch = FileWatch()
    new = attrs.evolve(workers("b"), watch=watch)
    leaver = workers("c") if by_another else new
    await new.permit("a1", folder, "g1", WHERE)
    await leaver.permit("a2", other, "g2", WHERE)

    async def one_leaves_and_one_comes() -> None:
        assert await leaver.revoke("a2", "g2") is None
        await leaver.let_go("a2")
        while not folder.parent.exists():  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)
        await anyio.wait_all_tasks_blocked()
        (tmp_path / "kept" / "a1").rename(folder)

    await waiting_for(new, watch, folder, one_leaves_and_one_comes)
    watch.close()
