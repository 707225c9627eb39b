"""What a tree shares with a process outside of it is found, whatever it is; what does no harm is left alone."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.processes.reading import read_tree
from iriscw.freeze.traits import Obstacle

SHARING = """
import ctypes, fcntl, mmap, os, select, signal, socket, sys, tempfile
folder = sys.argv[1]
def opened(flags):
    return os.open(folder + "/file", flags | os.O_CREAT)
def sealed():
    found = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(found, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    return found
MAKERS = {
    "memory": lambda: mmap.mmap(-1, 4096),
    "memory that is only read": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ),
    "private memory": lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE),
    "memfd": lambda: os.memfd_create("x"),
    "sealed memfd": sealed,
    "removed file": lambda: tempfile.TemporaryFile(),
    "eventfd": lambda: os.eventfd(0),
    "epoll": lambda: select.epoll(),
    "timer": lambda: ctypes.CDLL(None).timerfd_create(1, 0),
    "inotify": lambda: ctypes.CDLL(None).inotify_init(),
    "signalfd": lambda: ctypes.CDLL(None).signalfd(-1, ctypes.create_string_buffer(8), 0),
    "position": lambda: opened(os.O_WRONLY),
    "appended file": lambda: opened(os.O_WRONLY | os.O_APPEND),
    "read file": lambda: opened(os.O_RDONLY),
    "device": lambda: os.open("/dev/null", os.O_RDWR),
    "listening socket": lambda: socket.create_server(("127.0.0.1", 0)),
    "bound socket": lambda: [each.bind(("127.0.0.1", 0)) or each for each in [socket.socket(type=socket.SOCK_DGRAM)]],
    "socket pair": socket.socketpair,
    "both ends of a pipe": os.pipe,
    "terminal": os.openpty,
    "other side of a terminal": os.openpty,
    "master of a terminal": lambda: (lambda pair: os.close(pair[1]) or pair[0])(os.openpty()),
    "nothing": lambda: None,
}
made = MAKERS[sys.argv[2]]()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
pid = os.fork()
if sys.argv[2] == "other side of a terminal":
    os.close(made[0 if pid else 1])
    if pid:
        os.kill(pid, signal.SIGUSR1)
    else:
        signal.sigwait([signal.SIGUSR1])
own = opened(os.O_WRONLY), os.eventfd(0), select.epoll(), os.memfd_create("y"), os.openpty()
if pid == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def shared(tmp_path):
    """Yield a function that starts a process and its child, which share something: what is found with the child."""
    started = []

    def found(kind):
        with (tmp_path / "said").open("ab") as said:
            argv = [sys.executable, "-I", "-S", "-c", SHARING, str(tmp_path), kind]
            reading, writing = os.pipe()
            process = subprocess.Popen(argv, stdout=writing, stderr=said, start_new_session=True)
        started.append(process)
        os.close(writing)
        with os.fdopen(reading) as lines:
            child = int(lines.readline())
            hindrances = read_tree(identify_task(child)).hindrances
        return process.pid, child, [each for each in hindrances if each.obstacle in (Obstacle.SHARED, Obstacle.PIPE)]

    yield found
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


OUTPUT = 1
"""The pipe over which the child says who it is: the test has its other end, and its parent has it too."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "obstacle", "what"),
    [
        ("memory", Obstacle.SHARED, "shared memory (mapped)"),
        ("memfd", Obstacle.SHARED, "a memfd"),
        ("removed file", Obstacle.SHARED, "the file /"),
        ("eventfd", Obstacle.SHARED, "an eventfd"),
        ("epoll", Obstacle.SHARED, "an epoll"),
        ("timer", Obstacle.SHARED, "a timer"),
        ("inotify", Obstacle.SHARED, "an inotify"),
        ("position", Obstacle.SHARED, "the position in "),
        ("listening socket", Obstacle.SHARED, "a socket"),
        ("bound socket", Obstacle.SHARED, "a socket"),
        ("socket pair", Obstacle.SHARED, "a socket"),
        ("both ends of a pipe", Obstacle.PIPE, "a pipe"),
        ("terminal", Obstacle.SHARED, "the "),
        ("other side of a terminal", Obstacle.SHARED, "the terminal /dev/pts/"),
        ("master of a terminal", Obstacle.SHARED, "the master of /dev/pts/"),
    ],
)
def test_what_would_be_cut_is_told(shared, kind, obstacle, what) -> None:
    """With what it is, whose it is, who else has it, and the way out."""
    outside, child, found = shared(kind)
    told = [each for each in found if f"descriptor {OUTPUT})" not in each.text]
    assert {each.obstacle for each in told} == {obstacle}
    for each in told:
        assert each.pid == child
        assert each.text.startswith(f"process {child} (")
        assert f"shares {what}" in each.text
        assert f"with process {outside} (" in each.text
        assert "freeze a process above both, or " in each.text


ELSEWHERE = """
import fcntl, os, signal, sys
masters = [os.open(sys.argv[1] + "/ptmx", os.O_RDWR | os.O_NOCTTY) for _ in range(int(sys.argv[2]) + 1)]
for each in masters[:-1]:
    os.close(each)
fcntl.ioctl(masters[-1], 0x40045431, bytes(4))  # unlocks it
print("ready", flush=True)
signal.pause()
"""
"""Has the master of a terminal of another file system, with a number."""


def test_a_terminal_elsewhere(tmp_path) -> None:
    """It is shared by who has it open, and not by who has another one with its number."""
    place = tmp_path / "terminals"
    place.mkdir()
    command = ["mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0600", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system of its own")
    ours = os.openpty()
    number = os.ttyname(ours[1]).rpartition("/")[2]
    argv = [sys.executable, "-I", "-S", "-c", ELSEWHERE, str(place), number]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"ready\n"

        def told():
            return [each.text for each in read_tree(identify_task(process.pid)).hindrances if "terminal" in each.text]

        assert told() == []
        its = os.open(place / number, os.O_RDWR | os.O_NOCTTY)
        (text,) = told()
        os.close(its)
        assert f"shares the terminal {place / number} " in text
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for each in ours:
            os.close(each)
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize(
    "kind",
    [
        "nothing",
        "memory that is only read",
        "private memory",
        "sealed memfd",
        "signalfd",
        "appended file",
        "read file",
        "device",
    ],
)
def test_what_does_no_harm_is_left_alone(shared, kind) -> None:
    """Nor is anything of one's own, of which the other has one that is called the same."""
    _, _, found = shared(kind)
    assert [each.text for each in found if f"descriptor {OUTPUT})" not in each.text] == []
