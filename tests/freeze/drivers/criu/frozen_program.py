"""A program that is frozen and thawed by tests: it holds what it is told to, and says whether it is all still there.

usage: frozen_program.py FOLDER FEATURE[:SIZE]...

It connects to FOLDER/ready when it is, and answers on FOLDER/ask, one connection for each question: with JSON.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path

SIZE = 1 << 20
FAMILY = 49
IO_URING_SETUP = 425


class Memory:
    """A megabyte of noise, and a counter."""

    def __init__(self, folder):
        self.noise = os.urandom(SIZE)
        self.count = 0

    def state(self):
        self.count += 1
        return {"count": self.count, "noise": hash(self.noise)}


class Ballast:
    """So many megabytes of noise."""

    def __init__(self, folder, mebibytes=1):
        self.noise = [os.urandom(SIZE) for _ in range(int(mebibytes))]

    def state(self):
        return {"noise": hash(tuple(self.noise))}


class Large:
    """Sixty-four megabytes, of which no page is like another one."""

    PAGES = 16384

    def __init__(self, folder):
        self.noise = mmap.mmap(-1, self.PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        noise = os.urandom(mmap.PAGESIZE - 8)
        for number in range(self.PAGES):
            self.noise.write(number.to_bytes(8, "little") + noise)
        self.digest = hashlib.sha256(self.noise).hexdigest()

    def state(self):
        return {"intact": hashlib.sha256(self.noise).hexdigest() == self.digest}


class Huge(Large):
    """Half a gigabyte of them."""

    PAGES = 131072


class Shifting:
    """Memory that it gives up, moves and unmaps when it is asked, by itself and in a child, and then looks through."""

    PAGES = 1024

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None)
        for name in ("mmap", "mremap"):
            getattr(self.libc, name).restype = ctypes.c_void_p
        self.size = self.PAGES * mmap.PAGESIZE
        self.areas = [self.area(number) for number in range(5)]
        self.empty = self.mapped()
        self.asked = False

    def mapped(self):
        address = self.libc.mmap(None, ctypes.c_size_t(self.size), 3, 0x22, -1, ctypes.c_long(0))
        return ctypes.c_void_p(address).value

    def area(self, seed):
        address = self.mapped()
        for number in range(self.PAGES):
            ctypes.memmove(address + number * mmap.PAGESIZE, self.page(seed, number), mmap.PAGESIZE)
        return address

    def page(self, seed, number):
        return (seed * self.PAGES + number + 1).to_bytes(8, "little") * (mmap.PAGESIZE // 8)

    def holds(self, address, seed, first=0, last=PAGES):
        """Look at pages, the last one first: pages come the other way round."""
        return all(
            ctypes.string_at(address + number * mmap.PAGESIZE, mmap.PAGESIZE) == self.page(seed, number)
            for number in reversed(range(first, last))
        )

    def is_empty(self, address, pages):
        return not any(ctypes.string_at(address + number * mmap.PAGESIZE, 1)[0] for number in range(pages))

    def changed(self):
        half, quarter = self.size // 2, self.size // 4
        given_up, moved, cut, shared, _ = self.areas
        self.libc.madvise(ctypes.c_void_p(given_up), ctypes.c_size_t(half), 4)
        target = self.mapped()
        self.areas[1] = self.libc.mremap(
            ctypes.c_void_p(moved), ctypes.c_size_t(self.size), ctypes.c_size_t(self.size), 3, ctypes.c_void_p(target)
        )
        self.libc.munmap(ctypes.c_void_p(cut + quarter), ctypes.c_size_t(half))
        child = os.fork()
        if child == 0:
            grandchild = os.fork()
            holds = self.holds(shared, 3) and self.holds(self.areas[1], 1) and self.is_empty(given_up, self.PAGES // 2)
            if grandchild == 0:
                os._exit(not holds)
            os._exit(not holds or os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        ctypes.memset(shared, 0, self.size)  # the child's is its own
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def state(self):
        code = 0 if self.asked else self.changed()
        self.asked = True
        quarter = self.PAGES // 4
        return {
            "child": code,
            "given up": self.is_empty(self.areas[0], self.PAGES // 2),
            "kept": self.holds(self.areas[0], 0, self.PAGES // 2),
            "moved": self.holds(self.areas[1], 1),
            "cut": self.holds(self.areas[2], 2, 0, quarter) and self.holds(self.areas[2], 2, 3 * quarter),
            "written": self.is_empty(self.areas[3], self.PAGES),
            "untouched": self.holds(self.areas[4], 4),
            "empty": self.is_empty(self.empty, self.PAGES),
        }


class Threads:
    """Four threads, each of which answers with how often it was asked."""

    def __init__(self, folder):
        self.asked = [threading.Semaphore(0) for _ in range(4)]
        self.done = threading.Semaphore(0)
        self.counts = [0] * 4
        for number in range(4):
            threading.Thread(target=self.run, args=(number,), daemon=True).start()

    def run(self, number):
        while True:
            self.asked[number].acquire()
            self.counts[number] += 1
            self.done.release()

    def state(self):
        for each in self.asked:
            each.release()
        for _ in self.asked:
            self.done.acquire()
        return {"counts": list(self.counts), "threads": threading.active_count()}


class Files:
    """A file that grows, one that was removed and is still open, and a position in a third."""

    def __init__(self, folder):
        self.grows = (folder / "grows").open("a+")
        self.removed = (folder / "removed").open("w+b")
        self.removed.write(b"still there")
        self.removed.flush()
        (folder / "removed").unlink()
        (folder / "read").write_bytes(bytes(range(100)))
        self.read = os.open(folder / "read", os.O_RDONLY)

    def state(self):
        self.grows.write("x")
        self.grows.flush()
        self.removed.seek(0)
        read = os.read(self.read, 1)
        return {"size": self.grows.tell(), "removed": self.removed.read().decode(), "read": read[0]}


class Unix:
    """A pair of sockets with something on its way, and a socket that listens."""

    def __init__(self, folder):
        self.ours, self.its = socket.socketpair()
        self.sent = 0

    def state(self):
        said = self.its.recv(100).decode() if self.sent else ""
        self.sent += 1
        self.ours.send(b"on its way %d" % self.sent)
        return {"said": said}


class Locks:
    """A file that is locked as a whole, and a part of one."""

    def __init__(self, folder):
        self.whole = (folder / "whole").open("w")
        fcntl.flock(self.whole, fcntl.LOCK_EX)
        self.part = (folder / "part").open("w")
        fcntl.lockf(self.part, fcntl.LOCK_EX, 10, 5)

    def state(self):
        return {"inode": os.fstat(self.whole.fileno()).st_ino == Path(self.whole.name).stat().st_ino}


class Epoll:
    """An epoll over a pipe and an event, with one of them ready."""

    def __init__(self, folder):
        self.reading, self.writing = os.pipe()
        self.event = os.eventfd(3)
        self.epoll = select.epoll()
        self.epoll.register(self.reading, select.EPOLLIN)
        self.epoll.register(self.event, select.EPOLLIN)
        os.write(self.writing, b"abc")

    def state(self):
        ready = sorted(each for each, _ in self.epoll.poll(0))
        return {
            "ready": ready == sorted([self.reading, self.event]),
            "pipe": bool(select.select([self.reading], [], [], 0)[0]),
        }


class Memfd:
    """Memory behind a descriptor, mapped and shared."""

    def __init__(self, folder):
        self.file = os.memfd_create("state")
        os.ftruncate(self.file, SIZE)
        self.map = mmap.mmap(self.file, SIZE)
        self.map[: SIZE // 2] = os.urandom(SIZE // 2)

    def state(self):
        self.map[-1] = (self.map[-1] + 1) % 256
        return {"hash": hash(bytes(self.map[:-1])), "count": os.pread(self.file, 1, SIZE - 1)[0]}


class Family:
    """Fifty processes: one above, the rest below it, three deep, each with a number and a socket to the one above."""

    def __init__(self, folder, size=FAMILY):
        self.sockets = []
        for number in range(int(size)):
            ours, its = socket.socketpair()
            if os.fork() == 0:
                if number % 3 == 0 and os.fork() != 0:
                    signal.pause()  # in between: its child answers
                self.answer(its, number)
            its.close()
            self.sockets.append(ours)

    def answer(self, channel, number):
        count = 0
        while channel.recv(1):
            count += 1
            channel.send(json.dumps([number, count]).encode())
        os._exit(0)

    def state(self):
        for each in self.sockets:
            each.send(b"?")
        return {"answers": [json.loads(each.recv(100)) for each in self.sockets]}


class Tcp:
    """A connection to whoever connects to its port."""

    def __init__(self, folder):
        self.listening = socket.create_server(("127.0.0.1", 0))
        (folder / "port.new").write_text(str(self.listening.getsockname()[1]))
        (folder / "port.new").rename(folder / "port")
        self.count = 0
        self.closed = ""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        channel, _ = self.listening.accept()
        try:
            while said := channel.recv(100):
                self.count += len(said)
                channel.sendall(b"%d\n" % self.count)
            self.closed = "EOF"
        except OSError as error:
            self.closed = errno.errorcode[error.errno]

    def state(self):
        return {"count": self.count, "closed": self.closed}


class Uring:
    """An io_uring."""

    def __init__(self, folder):
        parameters = ctypes.create_string_buffer(120)
        if ctypes.CDLL(None).syscall(IO_URING_SETUP, 4, parameters) < 0:
            (folder / "refused").touch()

    def state(self):
        return {}


class Zombie:
    """A child that has ended, whose end nobody has asked for yet."""

    def __init__(self, folder):
        self.child = os.fork()
        if self.child == 0:
            os._exit(7)
        os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT)

    def state(self):
        found = os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return {"child": (found.si_pid == self.child, found.si_status)}


class Dialling:
    """A Unix socket that is connected to somebody else's, who does not accept."""

    def __init__(self, folder):
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.connect(str(folder / "elsewhere"))

    def state(self):
        return {}


class Sessions:
    """Children in sessions and groups that they do not lead."""

    SUBREAPER = 36

    def __init__(self, folder, how):
        getattr(self, how)()

    def adopt(self):
        ctypes.CDLL(None).prctl(self.SUBREAPER, 1, 0, 0, 0)

    @staticmethod
    def child(does=None):
        """Fork a child that does this and then waits for ever."""
        pid = os.fork()
        if pid == 0:
            if does is not None:
                does()
            while True:
                signal.pause()
        return pid

    def leave(self):
        """Lead a session, leave a child in it, and end."""
        os.setsid()
        self.child()
        os._exit(0)

    def daemon(self):
        """Have a daemon without its session's leader, whose parent adopts it."""
        os.waitpid(self.child(self.leave), 0)

    def adopted(self):
        """The root adopts a daemon whose leader is gone."""
        self.adopt()
        self.daemon()

    def zombie(self):
        """The leader is a zombie."""
        self.adopt()
        os.waitid(os.P_PID, self.child(self.leave), os.WEXITED | os.WNOWAIT)

    def told(self, does):
        """Fork a child that does this, says that it has, and waits for ever."""
        reading, writing = os.pipe()
        self.child(lambda: (does(), os.write(writing, b"!")))
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)

    def living(self):
        """The leader lives, and is no longer above its member."""

        def leads():
            os.setsid()
            os.waitpid(self.child(lambda: self.child() and os._exit(0)), 0)

        self.adopt()
        self.told(leads)

    def nested(self):
        """Not the root adopts it, but its child."""
        self.told(lambda: (self.adopt(), self.daemon()))

    def above(self):
        """A child, and a child of a child, whose parents began sessions of their own only later."""

        def inner():
            self.child()
            os.setsid()

        def middle():
            self.child()
            os.setsid()
            self.told(inner)

        self.told(middle)

    def group(self):
        """A process group whose leader is gone."""

        def middle():
            leader = self.child()
            os.setpgid(leader, leader)
            os.setpgid(self.child(), leader)
            os.kill(leader, signal.SIGKILL)
            os.waitpid(leader, 0)

        self.told(middle)

    def state(self):
        return {}


KINDS = (
    Memory,
    Ballast,
    Large,
    Huge,
    Shifting,
    Threads,
    Files,
    Unix,
    Locks,
    Epoll,
    Memfd,
    Family,
    Tcp,
    Uring,
    Dialling,
    Zombie,
    Sessions,
)
FEATURES = {each.__name__.lower(): each for each in KINDS}


def main(folder, names):
    """Hold what is told, and answer."""
    holding = {}
    for name, _, size in (each.partition(":") for each in names):
        holding[name] = FEATURES[name](folder, *([size] if size else []))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "ask"))
    listening.listen()
    with socket.socket(socket.AF_UNIX) as ready:
        ready.connect(str(folder / "ready"))
    while True:
        asking, _ = listening.accept()
        with asking:
            asking.sendall(json.dumps({name: each.state() for name, each in holding.items()}).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
