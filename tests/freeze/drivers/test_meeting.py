"""Whom a thaw would meet is found among real processes, without CRIU."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys

import attrs
import pytest

from iriscw.freeze.criu_images import FILES_MAGIC
from iriscw.freeze.criu_protobuf import encode
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.processes.meeting import heirs, meet, somebody_has
from iriscw.freeze.drivers.processes.reading import read_tree
from iriscw.freeze.model import CriuAbility, CriuOptions, FrozenTree, ImageHost
from iriscw.freeze.traits import Holder, Obstacle

FORKING = """
import os, signal, sys
def led(*calls):
    pid = os.fork()
    if pid:
        return pid
    for call in calls:
        call()
    signal.pause()
    os._exit(0)
print(flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Target:
    """A program that does what it is told."""

    def __init__(self, code, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.process.stdout.readline()
        self.pid = self.process.pid
        self.others = []

    def told(self, line):
        """Return what it answers."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def frozen(self):
        """Give it as it would stand in a manifest, and who it is."""
        tree = read_tree(identify_task(self.pid), closely=True)
        made = FrozenTree(
            ImageHost("b", "x86_64", 4096, "6", "n"), CriuAbility("criu", "4.2"), CriuOptions(), tree.tasks
        )
        return made, tree.identities

    def end(self):
        """Kill it alone."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def begun():
    """Yield a function that starts such a program; what it has forked and told us of is ended afterwards."""
    made = []

    def begin(code, *arguments):
        made.append(Target(code, *arguments))
        return made[-1]

    yield begin
    for each in made:
        each.end()
        each.process.stdin.close()
        each.process.stdout.close()
        for pid in each.others:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param("os.setsid", id="a fork in a session of its own"),
        pytest.param("lambda: os.execvp('sleep', ['sleep', '1000'])", id="another program in its session"),
        pytest.param("lambda: os.setpgid(0, 0)", id="a fork in a process group of its own"),
    ],
)
def test_who_came_of_what_was_thawed_is_found(begun, calls):
    """Although what was thawed has ended: by its session, or by where its program and stack are."""
    target = begun(FORKING)
    frozen, returned = target.frozen()
    assert heirs(frozen, returned) == (returned[0],)
    target.others.append(target.told(f"led({calls})"))
    heir = identify_task(target.others[0])
    target.end()
    assert heirs(frozen, returned) == (heir,)
    assert heirs(frozen, ()) == ()
    assert heirs(frozen, (attrs.evolve(returned[0], boot_id="another"),)) == ()


def test_relatives_and_strangers_are_no_heirs(begun):
    """Another run of the program, and what was forked by a parent that was there before the thaw."""
    parent = begun(FORKING)
    parent.others.append(parent.told("led(os.setsid)"))
    tree = read_tree(identify_task(parent.others[0]), closely=True)
    frozen = attrs.evolve(parent.frozen()[0], tasks=tree.tasks)
    came_back = attrs.evolve(tree.identities[0], start_ticks=identify_task(parent.pid).start_ticks + 1)
    begun(FORKING)
    parent.others.append(parent.told("led(os.setsid)"))
    os.kill(parent.others[0], signal.SIGKILL)
    parent.told("os.wait()[0]")
    del parent.others[0]
    assert heirs(frozen, (came_back,)) == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "collide"),
    [
        ("flock(f, fcntl.LOCK_EX)", (fcntl.flock, fcntl.LOCK_EX), True),
        ("flock(f, fcntl.LOCK_SH)", (fcntl.flock, fcntl.LOCK_SH), False),
        ("flock(f, fcntl.LOCK_SH)", (fcntl.flock, fcntl.LOCK_EX), True),
        ("flock(f, fcntl.LOCK_EX)", (fcntl.lockf, fcntl.LOCK_EX), False),
        ("lockf(f, fcntl.LOCK_EX, 10, 0)", (fcntl.lockf, fcntl.LOCK_EX, 10, 10), False),
        ("lockf(f, fcntl.LOCK_EX, 10, 0)", (fcntl.lockf, fcntl.LOCK_EX, 0, 9), True),
    ],
)
def test_locks_that_somebody_else_has_by_now(begun, tmp_path, ours, theirs, collide):
    """Those of one kind that overlap and do not let each other in, on the same file."""
    path = tmp_path / "locked"
    path.write_bytes(b"")
    target = begun(f"import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.{ours}; print(flush=True); input()", path)
    frozen, _ = target.frozen()
    target.end()
    with path.open("r+b") as file:
        assert meet(frozen, tmp_path, ()).locks == ()
        theirs[0](file, *theirs[1:])
        held = meet(frozen, tmp_path, ()).locks
        assert [(each.what, each.pid) for each in held] == ([(str(path), os.getpid())] if collide else [])
        path.rename(tmp_path / "moved")
        assert meet(frozen, tmp_path, ()).locks == ()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_sockets_that_somebody_else_has_by_now(begun, tmp_path, kind):
    """One that lives is found with who has it, and hears nothing of that; the file that a dead one left is nobody's."""
    path = tmp_path / "socket"
    entry = encode([(1, 5), (2, 1), (16, encode([(2, 1), (3, kind), (4, 10), (11, bytes(path) + b"\0")]))])
    (tmp_path / "files.img").write_bytes(FILES_MAGIC + len(entry).to_bytes(4, "little") + entry)
    frozen, _ = begun(FORKING).frozen()
    assert not somebody_has(bytes(path))
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        assert somebody_has(bytes(path))
        if kind != socket.SOCK_DGRAM:
            server.listen()
        found = meet(frozen, tmp_path, ()).names
        assert [(each.what, each.pid) for each in found] == [(str(path), os.getpid())]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(1) if kind == socket.SOCK_DGRAM else server.accept()
    assert path.exists()
    assert meet(frozen, tmp_path, ()).names == ()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_ports_that_somebody_else_has_by_now(begun, tmp_path, family, host, kind):
    """By this address or by all; not another address, not a port that is shared, not in a network of its own."""
    words = struct.unpack(f"={4 if family == socket.AF_INET6 else 1}I", socket.inet_pton(family, host))
    protocol, state = (6, 10) if kind == socket.SOCK_STREAM else (17, 7)
    frozen = attrs.evolve(begun(FORKING).frozen()[0], namespaces=(("net", 1),))

    def found(address, *more, by=frozen):
        inner = [(5, protocol), (6, state), (7, port), *((11, word) for word in address), *more]
        entry = encode([(1, 4), (2, 1), (4, encode(inner))])
        (tmp_path / "files.img").write_bytes(FILES_MAGIC + len(entry).to_bytes(4, "little") + entry)
        return [(each.what, each.pid) for each in meet(by, tmp_path, ()).ports]

    with socket.socket(family, kind) as server:
        server.bind((host, 0))
        port = server.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            server.listen()
        ours = [(f"{'TCP' if kind == socket.SOCK_STREAM else 'UDP'} port {port}", os.getpid())]
        assert found(words) == ours
        assert found([0] * len(words)) == ours
        assert found([*words[:-1], words[-1] ^ 2 << 24]) == []
        assert found(words, (14, encode([(17, 1)]))) == []
        assert found(words, by=attrs.evolve(frozen, namespaces=())) == []
    assert found(words) == []


def test_files_of_proc_that_nobody_has_after_a_thaw(begun):
    """One of the tree itself is fine; one of a thread or process that has ended, or is of somebody else, is not."""
    target = begun(FORKING)
    root = identify_task(target.pid)

    def numbered():
        return [each for each in read_tree(root).hindrances if each.obstacle is Obstacle.NUMBERED]

    target.told("os.open('/proc/self/status', 0)")
    target.told("os.open('/proc/self', 0)")
    assert numbered() == []
    held = target.told(f"os.open('/proc/{os.getpid()}/status', 0)")
    assert f"/proc/{os.getpid()}/status" in numbered()[0].text
    target.told(f"os.close({held}) or 0")
    child = target.told("led()")
    target.told(f"os.open('/proc/{child}', 0)")
    assert numbered() == []
    os.kill(child, signal.SIGKILL)
    target.told("os.wait()[0]")
    assert f"/proc/{child}" in numbered()[0].text


def test_a_holder_is_named():
    """As far as it is known."""
    assert Holder("/x", 7, "name").who == "process 7 (name)"
    assert Holder("/x", 7, "").who == "process 7"
    assert "not seen" in Holder("/x", 0, "").who
