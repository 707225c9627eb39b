"""Folders of throw-away clusters: what a dead owner left goes, and nothing else is touched, ever."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.cloud.drivers.local import throwaway
from iriscw.cloud.drivers.local.folder import Folder, WorkdirLocked
from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalOptions, open_platform
from iriscw.cloud.drivers.local.pods import LocalPodDriver
from iriscw.cloud.drivers.local.pools import LocalNodePoolDriver
from iriscw.cloud.drivers.local.throwaway import (
    OWNER_FILE,
    PLATFORM_FOLDER,
    Abandoned,
    Owner,
    ThrowawayFolder,
    end_all,
    remove_abandoned,
)
from iriscw.cloud.model import Capacity, PodPhase
from iriscw.files import write_atomic
from iriscw.processes.identity import ProcessIdentity
from iriscw.processes.sweep import marked_processes, processes_told_of
from iriscw.testing.conformance.cloud import CloudUnderTest
from raised import that

NODE = Capacity(cpu_milli=1000, memory_bytes=1 << 30)
SLEEPER = (sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of our own: nothing of this machine's is looked at."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ours() -> Owner:
    """Who would own a folder that is made now."""
    made = ThrowawayFolder.make()
    content = json.loads((made.path / OWNER_FILE).read_text())
    made.remove()
    return Owner(ProcessIdentity(**content["process"]), content["host"], content["pid_namespace"])


def dead() -> Owner:
    """The same, but the process number belongs to another process by now."""
    owner = ours()
    return attrs.evolve(owner, process=attrs.evolve(owner.process, start_ticks=owner.process.start_ticks - 1))


def left_by(owner: Owner, name: str = "iriscw-left") -> Path:
    """A folder with something in it, as that owner left it."""
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "admin-token").write_text("t")
    write_atomic(folder / OWNER_FILE, json.dumps(attrs.asdict(owner)).encode())
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def share(folder: Path) -> None:
    folder.chmod(0o1777)


def test_a_folder_is_private_and_goes_whole() -> None:
    """Mode 0700, its owner in it; nothing of it is left."""
    made = ThrowawayFolder.make()
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((made.path / OWNER_FILE).stat().st_mode) == 0o600
    (made.path / "a" / "b").mkdir(parents=True)
    made.remove()
    assert not made.path.exists()


def test_a_folder_that_cannot_be_owned_is_not_left(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """A full disk while it is made: the error, and no folder."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(throwaway, "write_atomic", full)
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)):
        ThrowawayFolder.make()
    assert names_in(temporary) == []


async def test_what_lives_stays() -> None:
    """A folder whose owner runs is none of ours to remove."""
    made = ThrowawayFolder.make()
    assert await remove_abandoned([made.path]) == ()
    assert (made.path / OWNER_FILE).exists()
    made.remove()


async def test_what_a_killed_process_left_goes(temporary: Path) -> None:
    """A real owner, killed: found where temporary files are, with nobody naming it."""
    code = (
        f"import tempfile; tempfile.tempdir = {str(temporary)!r}\n"
        "from iriscw.cloud.drivers.local.throwaway import ThrowawayFolder\n"
        "import signal; print(ThrowawayFolder.make().path, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:  # noqa: ASYNC220
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert await remove_abandoned() == ()
        owner.kill()
    [removed] = await remove_abandoned()
    assert (removed.folder, removed.owner.pid) == (folder, owner.pid)
    assert names_in(temporary) == []


async def test_a_number_that_was_given_again_is_another_process() -> None:
    """Start time and boot count, not the number alone."""
    first, second = (
        left_by(dead()),
        left_by(
            attrs.evolve(ours(), process=attrs.evolve(ours().process, boot_id="an-earlier-one")), "iriscw-rebooted"
        ),
    )
    assert [each.folder for each in await remove_abandoned()] == [first, second]
    assert not first.exists()
    assert not second.exists()


async def test_a_folder_elsewhere_is_found_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context file remembers where it was."""
    owner = dead()
    folder = left_by(owner)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert await remove_abandoned() == ()
    assert await remove_abandoned([folder, folder]) == (Abandoned(folder, owner.process),)


async def test_another_parent_is_looked_through_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime directory, where tokens do not come to a disk."""
    owner = dead()
    folder = left_by(owner)
    parent = folder.parent
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    made = ThrowawayFolder.make(parent)
    assert made.path.parent == parent
    assert await remove_abandoned(parent=parent) == (Abandoned(folder, owner.process),)
    assert names_in(parent) == [made.path.name]
    made.remove()


@pytest.mark.parametrize("other", ["host", "pid_namespace"])
async def test_where_nobody_can_tell_nothing_is_done(other: str) -> None:
    """A shared folder: the owner may live on another machine, or in another container."""
    folder = left_by(attrs.evolve(dead(), **{other: "another"}))
    assert await remove_abandoned() == ()
    assert folder.exists()


def _open(folder: Path) -> None:
    folder.chmod(0o755)


def _of_another_user(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, -1)


def _owner_of_another_user(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(folder / OWNER_FILE, 12345, -1)


def _without_owner(folder: Path) -> None:
    (folder / OWNER_FILE).unlink()


def _broken_owner(folder: Path) -> None:
    (folder / OWNER_FILE).write_text('{"process": {"pid": 1}}')


def _linked_owner(folder: Path) -> None:
    (folder / OWNER_FILE).rename(folder / "elsewhere.json")
    (folder / OWNER_FILE).symlink_to("elsewhere.json")


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("target"))
    folder.symlink_to("target")


def _in_an_open_parent(folder: Path) -> None:
    folder.parent.chmod(0o777)


@pytest.mark.parametrize(
    "change",
    [
        _open,
        _of_another_user,
        _owner_of_another_user,
        _without_owner,
        _broken_owner,
        _linked_owner,
        _linked,
        _in_an_open_parent,
    ],
)
async def test_what_is_not_certainly_ours_stays(change) -> None:
    """Others can enter it, own it, or could have put it there: whatever it says, it is not touched."""
    folder = left_by(dead())
    change(folder)
    assert await remove_abandoned([folder]) == ()
    assert (folder / "secrets" / "admin-token").read_text() == "t"


async def test_a_shared_parent_with_the_sticky_bit_will_do(temporary: Path) -> None:
    """As /tmp has it: nobody renames what is another's."""
    folder = left_by(dead())
    share(temporary)
    assert len(await remove_abandoned()) == 1
    assert not folder.exists()


async def test_who_holds_the_lock_is_not_disturbed() -> None:
    """Somebody cleans up already, or a child of the owner still lives."""
    folder = left_by(dead())
    with (folder / OWNER_FILE).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert await remove_abandoned() == ()
        assert folder.exists()
    assert len(await remove_abandoned()) == 1


async def test_nobody_removes_what_it_lives_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster inside of an attempt of a cluster that was killed: the attempt ends with its lease, not by itself."""
    folder = left_by(dead())
    monkeypatch.setenv("IRIS_WORKDIR", str(folder / "cache" / "work"))
    assert await remove_abandoned() == ()
    assert folder.exists()


async def _with_a_pod(root: Path) -> str:
    """Run a pod, and leave the platform as a controller does that was killed; give the pod's uid."""
    async with open_platform(LocalOptions(root, NODE, argv=SLEEPER, boot_delay_s=0)) as platform:
        pools, pods = LocalNodePoolDriver(platform), LocalPodDriver(platform)
        cloud = CloudUnderTest(pools, pods, platform.options.cluster, NODE, Capacity(9000, 1))
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        assert pod.phase is PodPhase.RUNNING
    return pod.uid


async def test_what_still_runs_is_ended_first() -> None:
    """Pods through their supervisors; what only an attempt's marker names, by that. Strangers live on."""
    folder = left_by(dead())
    uid = await _with_a_pod(folder / PLATFORM_FOLDER)
    told = {"IRIS_WORKDIR": str(folder / "cache" / "a1" / "work"), "IRIS_ATTEMPT_UID": "a1"}
    stray = subprocess.Popen(SLEEPER, env=told, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    stranger = subprocess.Popen(SLEEPER, env={"IRIS_WORKDIR": f"{folder}-2"}, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        assert len(marked_processes({POD_MARKER: uid})) == 2
        assert len(await remove_abandoned()) == 1
        assert not folder.exists()
        assert marked_processes({POD_MARKER: uid}) == ()
        assert processes_told_of("IRIS_WORKDIR", folder) == ()
        assert stray.wait(timeout=20) == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for process in (stray, stranger):
            process.kill()
            process.wait()


async def test_a_cluster_that_was_taken_over_stays() -> None:
    """A controller that was started on the folder of a dead one owns it, whatever the owner's file says."""
    folder = left_by(dead())
    root = folder / PLATFORM_FOLDER
    uid = await _with_a_pod(root)
    with Folder(root).locked():
        assert await remove_abandoned() == ()
        with pytest.raises(WorkdirLocked):
            await end_all(root)
        assert len(marked_processes({POD_MARKER: uid})) == 2
    assert len(await remove_abandoned()) == 1


async def test_what_cannot_be_removed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A record that cannot be read: the folder stays, the log names it, and the next one is looked at all the same."""
    folder, other = left_by(dead()), left_by(dead(), "iriscw-other")
    broken = folder / PLATFORM_FOLDER / "pools" / "p" / "pool.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    with anyio.fail_after(30):
        assert [each.folder for each in await remove_abandoned()] == [other]
    assert folder.exists()
    assert "WorkdirCorrupt" in caplog.text
    assert str(folder) in caplog.text


def _process(**changes: object) -> bytes:
    content = attrs.asdict(dead())
    content["process"].update(changes)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"[" * 4096,
        lambda: b"x" * 5000,
        lambda: b"[]",
        lambda: _process(pid="1\0"),
        lambda: _process(pid="../self"),
        lambda: _process(pid=10**30),
        lambda: _process(pid=[1]),
        lambda: json.dumps({**attrs.asdict(dead()), "host": 5}).encode(),
    ],
)
async def test_a_damaged_file_stops_nobody(content, caplog: pytest.LogCaptureFixture) -> None:
    """That folder stays, with a line in the log; the next one goes."""
    damaged, other = left_by(dead()), left_by(dead(), "iriscw-other")
    (damaged / OWNER_FILE).write_bytes(content())
    assert [each.folder for each in await remove_abandoned()] == [other]
    assert (damaged / "secrets" / "admin-token").exists()
    assert str(damaged) in caplog.text


async def test_an_error_that_nobody_thought_of_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Cleaning up is no reason not to begin."""
    folder = left_by(dead())

    def broken(_: Path) -> None:
        raise RecursionError("deep")

    monkeypatch.setattr(throwaway, "_dead_owner_of", broken)
    assert await remove_abandoned() == ()
    assert f"stays at {folder}: RecursionError: deep" in caplog.text


async def test_what_was_closed_goes_as_well() -> None:
    """A task left a folder that is closed to its owner."""
    folder = left_by(dead())
    closed = folder / "attempts" / "work" / "cache"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    closed.chmod(0)
    assert len(await remove_abandoned()) == 1
    assert not folder.exists()


async def test_tokens_go_even_if_something_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who left it is remembered, for the next one that tries."""
    folder = left_by(dead())
    (folder / "attempts").mkdir()
    (folder / "attempts" / "stuck").write_text("x")
    unlink = os.unlink

    def stuck(name: str, *, dir_fd: int) -> None:
        if name == "stuck":
            raise PermissionError(1, "immutable", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", stuck)
    assert await remove_abandoned() == ()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    assert names_in(folder) == ["attempts", OWNER_FILE]
    assert "immutable" in caplog.text
    assert len(await remove_abandoned()) == 1


@pytest.mark.parametrize("names", [(), (".iriscw-7-0-owner.json",)])
async def test_a_folder_that_was_never_owned_goes(temporary: Path, names: tuple[str, ...]) -> None:
    """Its maker was killed before it had said who it is: there is nothing else in it."""
    folder = temporary / "iriscw-made"
    folder.mkdir(mode=0o700)
    for name in names:
        (folder / name).write_text("")
    assert await remove_abandoned() == ()
    assert not folder.exists()


async def test_whoever_makes_a_folder_meanwhile_makes_another(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """It was taken for one that was never owned."""
    taken = []

    def write(path: Path, data: bytes) -> None:
        if not taken:
            taken.append(path.parent)
            path.parent.rmdir()
        write_atomic(path, data)

    monkeypatch.setattr(throwaway, "write_atomic", write)
    made = ThrowawayFolder.make()
    assert made.path not in taken
    assert names_in(temporary) == [made.path.name]
    made.remove()


def test_nobody_tries_for_ever(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """Something else is wrong with a place where files vanish."""

    def write(path: Path, data: bytes) -> None:
        raise FileNotFoundError(2, "vanished", str(path))

    monkeypatch.setattr(throwaway, "write_atomic", write)
    with pytest.raises(FileNotFoundError, check=that(errno=errno.ENOENT)):
        ThrowawayFolder.make()
    assert names_in(temporary) == []
