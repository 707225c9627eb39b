# ruff: noqa: ASYNC220
# A test's own loop may block: nobody else waits for it.
"""Tables of nftables that a killed CRIU leaves: only that of our own run is known as ours, and it goes."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import attrs
import pytest

from iriscw.freeze.criu_protobuf import encode
from iriscw.freeze.drivers.criu import network
from iriscw.freeze.drivers.criu.network import is_table_of, run_id, unlock
from iriscw.freeze.drivers.criu.record import read_run
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.model import SweepRequest, TaskIdentity, TreeLeft
from raised import that

PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000
OURS = "066a940d-29f4-41da-a45f-311f5b30f423"
LOG = f"""(00.000000) CRIU run id = 27513a0c-cb91-4e98-bbf2-6684e4682076
(00.000000) CRIU run id = {OURS}
(00.000041) Version: 4.2.1 (gitid 0)
"""


def test_the_last_id_in_a_log_is_that_of_the_run():
    """A CRIU that serves requests draws one for itself first."""
    assert run_id(LOG) == OURS
    assert run_id("nothing of the kind") == ""
    assert run_id("CRIU run id = 066a940d") == ""


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (f"CRIU-{OURS[:21]}", True),
        (f"CRIU-{OURS}", True),
        (f"CRIU-{OURS[:8]}", False),
        (f"CRIU-{'0' * 21}", False),
        ("CRIU-", False),
        ("CRIU-4711", False),
        (OURS, False),
        ("filter", False),
    ],
)
def test_whose_a_table_is(name, ours):
    """A long enough beginning of the id, as CRIU cuts it off; a number of a process proves nothing."""
    assert is_table_of(name, OURS) is ours


def test_the_kernels_answers_are_read():
    """A refusal is an error by its number, but for the one that was expected."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def refusal(number):
        its.send(network._HEADER.pack(20, 2, 0, 0, 0) + (-number).to_bytes(4, sys.byteorder, signed=True))

    with ours, its:
        refusal(0)
        assert [kind for kind, _ in network._answers(ours)] == [2]
        refusal(errno.ENOENT)
        assert [kind for kind, _ in network._answers(ours, gone=errno.ENOENT)] == [2]
        refusal(errno.EPERM)
        with pytest.raises(PermissionError, check=that(comes_from="network._answers")):
            network._answers(ours)


def test_nothing_is_done_for_a_tree_that_has_ended(tmp_path, monkeypatch):
    """Its peers are to stay silent until it is thawed; and without a log there was no CRIU that did anything."""
    monkeypatch.setattr(network, "_remove", lambda run: (run,))
    (tmp_path / "dump.log").write_text(LOG)
    here = identify_task(os.getpid())
    gone = TaskIdentity(here.pid, here.start_ticks - 1, here.boot_id)
    assert unlock(tmp_path / "dump.log", here) == (OURS,)
    assert unlock(tmp_path / "dump.log", gone) == ()
    assert unlock(tmp_path / "no.log", here) == ()


def inventory(run=OURS, method=1):
    """Write what CRIU says of its own run in its images."""
    message = encode([(1, 2), (11, method), *([(13, run)] if run else [])])
    return network.INVENTORY_MAGIC + len(message).to_bytes(4, "little") + message


@pytest.mark.parametrize(
    ("content", "run"),
    [
        (inventory(), OURS),
        (inventory(method=2), network.NONE),
        (inventory(""), ""),
        (inventory("../../etc"), ""),
        (inventory()[:-1], ""),
        (b"x" + inventory()[1:], ""),
        (network.INVENTORY_MAGIC + b"\x03\0\0\0\xff\xff\xff", ""),
        (b"", ""),
    ],
    ids=["kept", "nobody silenced", "no id", "no real id", "cut off", "another image", "no message", "empty"],
)
def test_images_say_which_run_made_them(tmp_path, content, run):
    """Or that no rules were made; whatever else they are, nothing is looked for by it."""
    (tmp_path / network.INVENTORY).write_bytes(content)
    assert network.run_of(tmp_path / network.INVENTORY) == run
    assert network.run_of(tmp_path / "not there") == ""


@pytest.mark.parametrize(
    ("images", "log", "removed"),
    [(inventory(), "", [OURS]), (inventory(method=2), LOG, []), (None, LOG, [OURS]), (None, "", [])],
    ids=["by its images", "none were made", "by its log", "nothing is known"],
)
def test_the_rules_of_removed_images_go(tmp_path, monkeypatch, images, log, removed):
    """Images that were never finished have a log that says the same."""
    found = []
    monkeypatch.setattr(network, "_remove", lambda run: (found.append(run), ())[1])
    if images is not None:
        (tmp_path / network.INVENTORY).write_bytes(images)
    (tmp_path / network.DUMP_LOG).write_text(log)
    network.forget(tmp_path, tmp_path)
    assert found == removed


def test_rules_that_cannot_be_removed_are_told(tmp_path, monkeypatch, caplog):
    """That keeps nobody from removing the images."""

    def refuse(run):
        raise PermissionError(errno.EPERM, "nftables: Operation not permitted")

    monkeypatch.setattr(network, "_remove", refuse)
    (tmp_path / network.INVENTORY).write_bytes(inventory())
    network.forget(tmp_path, tmp_path)
    assert "may be left in nftables" in caplog.text


# With a real CRIU


def tables():
    """List what nftables has here."""
    with contextlib.closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)) as channel:
        channel.bind((0, 0))
        return list(network._tables(channel))


@contextlib.contextmanager
def somebody_elses():
    """Make the table of another CRIU, and remove it afterwards; give its name."""
    name = f"CRIU-{uuid.uuid4()}"[:26]
    value = name.encode() + b"\0"
    body = network._ATTRIBUTE.pack(4 + len(value), 1) + value + b"\0" * (-len(value) % 4)
    with contextlib.closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)) as channel:
        channel.bind((0, 0))
        begin, end = (network._message(kind, 0, resource=10) for kind in (16, 17))
        channel.send(begin + network._message(10 << 8, 0x404, family=1, body=body) + end)
        network._answers(channel)
        try:
            yield name
        finally:
            network._delete(channel, name)


def table_of(work):
    """Return the table of the run with this folder, if there is one."""
    run = run_id((Path(work) / "dump.log").read_text())
    return [name for name in tables() if is_table_of(name, run)]


@pytest.fixture
async def silenced(criu, program):
    """Yield a program with a connection, which may be frozen, and that connection."""
    if "network_lock_nftables" not in (await criu.ability()).features:
        pytest.skip("the kernel or this CRIU has no nftables, which keep the peer silent")
    target = program("tcp")
    target.options = attrs.evolve(target.options, tcp_established=True)
    port = int((Path(target.folder) / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        channel.sendall(b"abc")
        assert channel.recv(10) == b"3\n"
        yield target, channel


def closed(channel):
    """Wait until the peer hears that its connection is gone."""
    with contextlib.suppress(ConnectionError):
        channel.sendall(b"d")
        return channel.recv(10) == b""
    return True


@pytest.mark.slow
async def test_a_held_tree_whose_criu_was_killed_is_heard_again(criu, silenced) -> None:
    """Its rules go when the tree is let go on, and the peer no longer waits for what never comes."""
    target, channel = silenced
    request = target.dump()
    held = await criu.dump(request, lambda progress: None)
    assert len(table_of(request.work)) == 1
    os.kill(read_run(Path(request.work)).criu.pid, signal.SIGKILL)
    assert await held._run.ended(PATIENCE_NS)
    with pytest.raises(TreeLeft, check=that(comes_from="held.CriuHeldTree.end", names="somebody")):
        await held.end(PATIENCE_NS)
    assert len(table_of(request.work)) == 1
    await held.resume(PATIENCE_NS)
    assert table_of(request.work) == []
    assert closed(channel)


@pytest.mark.slow
async def test_the_rules_of_a_frozen_tree_go_with_its_images(criu, silenced) -> None:
    """They stay as long as it may be thawed; with them goes that table and no other."""
    target, _ = silenced
    request = target.dump()
    held = await criu.dump(request, lambda progress: None)
    await held.end(PATIENCE_NS)
    assert len(table_of(request.work)) == 1
    with somebody_elses() as other:
        network.forget(Path(request.images), Path(request.work) / "not there")
        assert table_of(request.work) == []
        assert other in tables()


FREEZER = """
import os, signal, sys, anyio
from pathlib import Path
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.criu.record import read_run
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.model import CriuOptions, DumpRequest
async def main(pid, images, work):
    options = CriuOptions(tcp_established=True)
    request = DumpRequest("freeze-1", identify_task(int(pid)), images, work, options, 60_000_000_000)
    held = await CriuSwrk().dump(request, lambda progress: None)
    os.kill(read_run(Path(work)).criu.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.slow
async def test_a_sweep_removes_the_rules_of_a_tree_that_runs(criu, silenced) -> None:
    """CRIU and who freezes were killed together: the next life removes exactly that table."""
    target, channel = silenced
    request = target.dump()
    argv = [sys.executable, "-c", FREEZER, str(target.root.pid), request.images, request.work]
    with subprocess.Popen(argv) as freezing:
        freezing.wait(PATIENCE_S)
    assert len(table_of(request.work)) == 1
    with somebody_elses() as other:
        assert await criu.sweep(SweepRequest("freeze-1", request.work)) == ()
        assert table_of(request.work) == []
        assert other in tables()
    assert closed(channel)
