"""Real trees, frozen by a real CRIU and brought back: what they held is there, and they go on."""

import contextlib
import os
import socket
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for frozen_states

from frozen_states import EXPECTED

from iriscw.freeze.drivers.criu import driver
from iriscw.freeze.model import CriuFailed, CriuOptions, TargetUnfit
from raised import that

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000

FEATURES = ("memory", "threads", "files", "unix", "locks", "epoll", "memfd", "family", "zombie")


def nothing(progress) -> None:
    """Take progress."""


async def free(processes, pids) -> None:
    """Wait until nobody has these numbers: whoever adopted the processes reaps them, at its leisure."""
    with anyio.fail_after(PATIENCE_S):
        while await processes.taken(pids):  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)


async def frozen_and_thawed(criu, processes, target) -> None:
    """Freeze a program whole, end it, bring it back, let it run."""
    tree = await processes.tree(target.root)
    held = await criu.dump(target.dump(), nothing)
    assert held.tasks == tree.identities
    assert held.report.pages_written > 0
    await held.end(PATIENCE_NS)
    assert held.report.frozen_us > 0
    assert await processes.living(tree.identities) == ()
    target.reap()
    pids = tuple(task.pid for task in tree.identities)
    await free(processes, pids)
    ticks = await processes.ticks()
    report = await criu.restore(target.restore(pids, ticks), nothing)
    target.restored = report.tasks
    assert sorted(task.pid for task in report.tasks) == sorted(pids)
    assert report.tasks[0].pid == target.root.pid
    assert all(task.start_ticks >= ticks for task in report.tasks)
    assert report.pages_restored > 0
    assert all(task.stopped for task in (await processes.tree(report.tasks[0])).tasks)
    await processes.proceed(report.tasks)


@pytest.mark.parametrize("feature", FEATURES)
async def test_what_a_tree_held_is_there_afterwards(criu, processes, program, feature) -> None:
    """Memory, threads, files, sockets, locks, epoll, memfd, fifty processes, a zombie: all goes on where it was."""
    target = program(feature)
    before = (await target.ask())[feature]
    await frozen_and_thawed(criu, processes, target)
    assert (await target.ask())[feature] == EXPECTED[feature](before)
    if feature == "family":
        assert len(target.restored) > 50


@pytest.mark.parametrize("how", ["above", "group"])
async def test_sessions_and_groups_come_back(criu, processes, program, how) -> None:
    """A member of a session that somebody above it leads, or of a group whose leader is gone, is one again."""
    target = program("memory", f"sessions:{how}")
    before = {pid: (os.getsid(pid), os.getpgid(pid)) for pid in await numbers_of(processes, target.root)}
    await frozen_and_thawed(criu, processes, target)
    assert {pid: (os.getsid(pid), os.getpgid(pid)) for pid in before} == before
    assert {*await numbers_of(processes, target.restored[0])} == {*before}
    assert len(before) > 2


async def numbers_of(processes, root) -> list[int]:
    """Return the numbers of all tasks of a tree."""
    return [task.pid for task in (await processes.tree(root)).identities]


@pytest.mark.parametrize("how", ["adopted", "zombie", "living", "nested"])
async def test_a_daemon_that_somebody_of_the_tree_adopted_is_refused(criu, processes, program, how) -> None:
    """CRIU would freeze it, and never thaw it, or leave it stopped with somebody else for a parent."""
    target = program("memory", f"sessions:{how}")
    before = await processes.tree(target.root)
    with pytest.raises(TargetUnfit, check=that(comes_from="whole.check_whole")):
        await criu.dump(target.dump(), nothing)
    after = await processes.tree(target.root)
    assert after.identities == before.identities
    assert not any(task.stopped or task.traced_by for task in after.tasks)
    assert (await target.ask())["memory"]["count"] == 1


async def test_what_does_not_come_back_whole_fails_and_leaves_nothing(criu, processes, program, monkeypatch) -> None:
    """A process that CRIU has made and left to somebody else is not part of a tree, and does not stay."""
    target = program("memory", "sessions:adopted")
    tree = await processes.tree(target.root)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "check_whole", lambda images, **words: None)
        held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    target.reap()
    pids = tuple(task.pid for task in tree.identities)
    await free(processes, pids)
    with pytest.raises(CriuFailed, check=that(comes_from="driver._restored")):
        await criu.restore(target.restore(pids, await processes.ticks()), nothing)
    await free(processes, pids)


async def test_a_process_that_is_ended_before_it_was_let_run_fails_the_thaw(
    criu, processes, program, monkeypatch
) -> None:
    """The others are not told apart by their places, and nothing of them stays."""
    target = program("memory", "sessions:group")
    held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    target.reap()
    pids = tuple(task.pid for task in held.tasks)
    await free(processes, pids)
    real = driver.lives
    monkeypatch.setattr(driver, "lives", lambda task: task.pid != pids[1] and real(task))
    with pytest.raises(CriuFailed, check=that(comes_from="driver._restored")):
        await criu.restore(target.restore(pids, await processes.ticks()), nothing)
    await free(processes, pids)


async def test_it_is_frozen_and_thawed_again(criu, processes, program) -> None:
    """A tree that was brought back is one like any other."""
    target = program("memory", "threads")
    await target.ask()
    await frozen_and_thawed(criu, processes, target)
    target.root = target.restored[0]
    target.reap = lambda: None
    tree = await processes.tree(target.root)
    held = await criu.dump(target.dump(), nothing)
    await held.end(PATIENCE_NS)
    pids = tuple(task.pid for task in tree.identities)
    await free(processes, pids)
    report = await criu.restore(target.restore(pids, 0), nothing)
    target.restored = report.tasks
    await processes.proceed(report.tasks)
    assert (await target.ask())["memory"]["count"] == 2


def talk(channel: socket.socket, said: bytes) -> bytes:
    """Say something and hear what is answered."""
    channel.sendall(said)
    return channel.recv(100)


@pytest.mark.parametrize("fresh", [False, True], ids=["outside", "in a namespace"])
async def test_a_connection_goes_on_after_a_thaw(criu, processes, program, fresh) -> None:
    """With leave, the peer of an established connection notices nothing but the time, though it speaks meanwhile."""
    target = program("tcp")
    target.options = CriuOptions(tcp_established=True)
    if "network_lock_nftables" not in (await criu.ability()).features:
        pytest.skip("the kernel or this CRIU has no nftables, which keep the peer silent")
    port = int((Path(target.folder) / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        assert await anyio.to_thread.run_sync(talk, channel, b"abc") == b"3\n"
        tree = await processes.tree(target.root)
        held = await criu.dump(target.dump(), nothing)
        await held.end(PATIENCE_NS)
        target.reap()
        channel.sendall(b"de")  # nobody is there to hear it: it is sent again until somebody is
        pids = tuple(task.pid for task in tree.identities)
        report = await criu.restore(attrs.evolve(target.restore(pids, 0), new_pid_namespace=fresh), nothing)
        target.restored = report.tasks
        await processes.proceed(report.tasks)
        assert await anyio.to_thread.run_sync(channel.recv, 100) == b"5\n"
        assert await anyio.to_thread.run_sync(talk, channel, b"f") == b"6\n"


async def test_a_connection_is_given_up(criu, processes, program) -> None:
    """With close, the peer hears of the end when the tree ends, and who waited for it finds it shut after the thaw."""
    target = program("tcp")
    target.options = CriuOptions(tcp_close=True)
    port = int((Path(target.folder) / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        assert await anyio.to_thread.run_sync(talk, channel, b"abc") == b"3\n"
        tree = await processes.tree(target.root)
        held = await criu.dump(target.dump(), nothing)
        await held.end(PATIENCE_NS)
        target.reap()
        with contextlib.suppress(ConnectionError):
            assert await anyio.to_thread.run_sync(channel.recv, 100) == b""
    pids = tuple(task.pid for task in tree.identities)
    await free(processes, pids)
    report = await criu.restore(target.restore(pids, 0), nothing)
    target.restored = report.tasks
    await processes.proceed(report.tasks)
    with anyio.fail_after(PATIENCE_S):
        while (found := await target.ask())["tcp"]["closed"] == "":  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)
    assert found["tcp"] == {"count": 3, "closed": "EOF"}


async def test_a_connection_goes_on_after_a_dump_that_was_undone(criu, processes, program) -> None:
    """The network is let go as well."""
    target = program("tcp")
    target.options = attrs.evolve(target.options, tcp_established=True)
    port = int((Path(target.folder) / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        assert await anyio.to_thread.run_sync(talk, channel, b"abc") == b"3\n"
        held = await criu.dump(target.dump(), nothing)
        await held.resume(PATIENCE_NS)
        assert await anyio.to_thread.run_sync(talk, channel, b"f") == b"4\n"
