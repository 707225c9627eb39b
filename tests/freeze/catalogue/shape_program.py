"""A program of one shape: it holds what its name says, counts, and writes down what it holds.

usage: shape_program.py SHAPE FOLDER [ARGUMENT]...

FOLDER/said is JSON: how often it went round, and what it holds, which does not change as long as nothing is wrong.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import tty

PAUSE_S = 0.01
PAGE = mmap.PAGESIZE
SHAPES = {}
KEPT = []
"""What stays open although nobody looks at it any more."""

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = libc.shmat.restype = ctypes.c_void_p


def shape(function):
    """Have a function be a shape: it makes what it is named after, and gives what tells what is held."""
    SHAPES[function.__name__.removeprefix("shape_")] = function
    return function


def called(number, what):
    """Return what a function of the C library gave, if it did not fail."""
    if number == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return number


def syscall(number, *arguments):
    """Make a system call that the C library has no function for."""
    return called(libc.syscall(number, *arguments), f"system call {number}")


def prctl(*arguments):
    """Call prctl with what is left out as zero."""
    return called(libc.prctl(*(ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0, 0)[:5])), "prctl")


def child(does):
    """Start a child that does something for ever; it ends by itself no sooner than its parent does."""
    pid = os.fork()
    if pid == 0:
        try:
            while True:
                does()
                time.sleep(PAUSE_S)
        finally:
            os._exit(1)
    return pid


def nothing():
    """Do nothing."""


def digest(data):
    """Return a short name for bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


# -- processes and threads


@shape
def shape_plain(folder):
    noise = os.urandom(1 << 20)
    return lambda: digest(noise)


@shape
def shape_threads(folder, number):
    counts = [0] * int(number)

    def count(at):
        while True:
            counts[at] += 1
            time.sleep(0.2)

    for at in range(int(number)):
        threading.Thread(target=count, args=(at,), daemon=True).start()

    def state():
        seen = [*counts]
        if all(seen):  # each has counted since the last time that all had
            counts[:] = [0] * len(counts)
        return len(seen)

    return state


@shape
def shape_children(folder, number):
    for _ in range(int(number)):
        subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    return lambda: None


@shape
def shape_zombies(folder):
    pids = []
    for code in (0, 7):
        pid = os.fork()
        if pid == 0:
            os._exit(code)
        pids.append(pid)
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def state():
        return [os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status for pid in pids]

    return state


@shape
def shape_adopting(folder):
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, struct.pack("i", child(nothing)))
        os._exit(0)
    os.wait()
    orphan = struct.unpack("i", os.read(read, 4))[0]

    def state():
        adopts = ctypes.c_int()
        called(libc.prctl(37, ctypes.byref(adopts), 0, 0, 0), "prctl")
        with open(f"/proc/{orphan}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1]) == os.getpid(), adopts.value

    return state


@shape
def shape_adopting_a_daemon(folder):
    """What it has adopted is of a session whose first process has ended."""
    prctl(36, 1)
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(write, struct.pack("i", child(nothing)))
        os._exit(0)
    os.wait()
    os.read(read, 4)
    return


@shape
def shape_groups(folder):
    """A child leads a session, another a group, a third is in the group of the second."""
    read, write = os.pipe()

    def session():
        if os.getsid(0) != os.getpid():
            os.setsid()
            os.write(write, b"x")

    first = child(session)
    second = child(nothing)
    os.setpgid(second, second)
    third = child(nothing)
    os.setpgid(third, second)
    os.read(read, 1)
    return lambda: [(os.getsid(pid), os.getpgid(pid)) for pid in (first, second, third)]


@shape
def shape_job_control(folder):
    """Its child is waited for as a shell does, which sees when it stops and when it goes on."""
    pid = child(nothing)
    seen = []

    def state():
        done, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if done:
            seen.append(status)
        return seen

    return state


@shape
def shape_stopped_child(folder):
    pid = child(nothing)
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)

    def state():
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    return state


@shape
def shape_vforking(folder):
    """Its first thread waits in vfork for a child; another one counts on."""

    def wait():
        function = ctypes.CFUNCTYPE(ctypes.c_int)(libc.pause)
        stack = ctypes.create_string_buffer(1 << 20)
        # CLONE_VFORK | CLONE_VM | SIGCHLD
        libc.clone(function, ctypes.c_void_p(ctypes.addressof(stack) + (1 << 20) - 64), 0x4000 | 0x100 | 17, None)

    threading.Thread(target=wait, daemon=True).start()
    while not open(f"/proc/{os.getpid()}/task/{threading.enumerate()[-1].native_id}/children").read():
        time.sleep(PAUSE_S)
    return


@shape
def shape_death_signal(folder):
    prctl(1, signal.SIGTERM)
    return death_signal


def death_signal():
    """Return the signal that is sent to this process when its parent ends."""
    number = ctypes.c_int()
    called(libc.prctl(2, ctypes.byref(number), 0, 0, 0), "prctl")
    return number.value


@shape
def shape_death_signal_of_child(folder):
    read, write = os.pipe()

    def does():
        prctl(1, signal.SIGTERM)
        os.write(write, bytes([death_signal()]))

    child(does)
    return lambda: os.read(read, 1)[0]


@shape
def shape_dead_first_thread(folder):
    """Its first thread has ended; another one counts."""
    return  # see main


# -- memory


@shape
def shape_shared_memory(folder, children, mebibytes):
    """Children share memory that has no name, each looks at all of it and counts in it."""
    size = int(mebibytes) << 20
    memory = mmap.mmap(-1, size + PAGE)
    block = os.urandom(1 << 20)
    for at in range(int(mebibytes)):
        memory[at << 20 : (at + 1) << 20] = block
    counters = []
    for at in range(int(children)):
        where = size + 8 * at

        def count(where=where):
            seen = 0 if any(memory[each] != block[0] for each in range(0, size, 1 << 20)) else 1
            memory[where : where + 8] = struct.pack("q", struct.unpack("q", memory[where : where + 8])[0] + seen)

        counters.append(where)
        child(count)

    def state():
        now = [struct.unpack("q", memory[where : where + 8])[0] for where in counters]
        if all(now):
            for where in counters:
                memory[where : where + 8] = bytes(8)
        return digest(memory[:size])

    return state


@shape
def shape_memfd(folder):
    sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.write(sealed, b"sealed")
    fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    shared = os.memfd_create("shared")
    os.ftruncate(shared, 1 << 20)
    memory = mmap.mmap(shared, 1 << 20)
    memory[:5] = b"bytes"
    return lambda: (fcntl.fcntl(sealed, fcntl.F_GET_SEALS), os.pread(sealed, 9, 0).decode(), digest(memory[:]))


@shape
def shape_unmapped_memfd(folder):
    descriptor = os.memfd_create("unmapped")
    for at in range(32):
        os.pwrite(descriptor, bytes([at]) * (1 << 20), at << 20)
    return lambda: digest(os.pread(descriptor, 32 << 20, 0))


@shape
def shape_huge_memfd(folder):
    descriptor = os.memfd_create("huge", os.MFD_HUGETLB)
    os.ftruncate(descriptor, 2 << 20)
    return lambda: os.fstat(descriptor).st_size


@shape
def shape_secret_memory(folder):
    descriptor = syscall(447, 0)
    os.ftruncate(descriptor, PAGE)
    return lambda: os.fstat(descriptor).st_size


@shape
def shape_huge_pages(folder):
    size = 2 << 20
    where = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22 | 0x40000, -1, 0)  # MAP_PRIVATE|MAP_ANONYMOUS|MAP_HUGETLB
    if ctypes.c_long(where).value == -1:
        sys.stdout.write("no huge pages\n")
        sys.exit(75)
    ctypes.memset(where, 7, size)
    return lambda: digest(ctypes.string_at(where, size))


@shape
def shape_transparent_huge_pages(folder):
    memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    memory[:] = os.urandom(1 << 20) * 16
    return lambda: digest(memory[:])


@shape
def shape_advice(folder):
    """Memory that is locked, that a child would not get, and that cannot be written."""
    locked = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    where = ctypes.addressof(ctypes.c_char.from_buffer(locked))
    called(libc.mlock(ctypes.c_void_p(where), PAGE), "mlock")
    alone = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    alone.madvise(mmap.MADV_DONTFORK)
    wiped = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    wiped.madvise(18)  # MADV_WIPEONFORK
    names = {ctypes.addressof(ctypes.c_char.from_buffer(each)): each for each in (locked, alone, wiped)}

    def state():
        found, at = {}, None
        with open("/proc/self/smaps") as lines:
            for line in lines:
                words = line.split()
                if "-" in words[0] and not words[0].endswith(":"):
                    at = int(words[0].partition("-")[0], 16)
                elif words[0] == "VmFlags:" and at in names:
                    found[[*names].index(at)] = sorted({*words[1:]} & {"lo", "dc", "wf"})
        return found

    return state


@shape
def shape_mapped_file(folder):
    with open(f"{folder}/mapped", "w+b") as file:
        file.truncate(1 << 20)
        shared = mmap.mmap(file.fileno(), 1 << 20)
        private = mmap.mmap(file.fileno(), 1 << 20, flags=mmap.MAP_PRIVATE)
    shared[:6], private[9:16] = b"shared", b"private"
    return lambda: (digest(shared[:]), digest(private[:]))


@shape
def shape_mapped_removed_file(folder):
    with open(f"{folder}/gone", "w+b") as file:
        file.truncate(8 << 20)
        memory = mmap.mmap(file.fileno(), 8 << 20)
    os.unlink(f"{folder}/gone")
    memory[:4] = b"gone"
    return lambda: digest(memory[:])


@shape
def shape_memory_policy(folder):
    mask = ctypes.c_ulong(1)
    syscall(238, 2, ctypes.byref(mask), 64)  # set_mempolicy(MPOL_BIND, {0})

    def state():
        mode, nodes = ctypes.c_int(), (ctypes.c_ulong * 16)()
        syscall(239, ctypes.byref(mode), nodes, 1024, None, 0)
        return mode.value, list(nodes)

    return state


@shape
def shape_system_v(folder):
    """Shared memory, a semaphore and a queue of messages of System V."""
    memory = called(libc.shmget(0, 1 << 16, 0o1600), "shmget")
    where = libc.shmat(memory, None, 0)
    ctypes.memmove(where, b"system v", 8)
    semaphores = called(libc.semget(0, 1, 0o1600), "semget")
    called(libc.semctl(semaphores, 0, 16, 5), "semctl")
    queue = called(libc.msgget(0, 0o1600), "msgget")
    called(libc.msgsnd(queue, struct.pack("q8s", 1, b"a letter"), 8, 0), "msgsnd")
    return lambda: (ctypes.string_at(where, 8).decode(), libc.semctl(semaphores, 0, 12), queue)


@shape
def shape_system_v_removed(folder):
    """As PostgreSQL does: attached, and removed by name."""
    memory = called(libc.shmget(0, 1 << 16, 0o1600), "shmget")
    where = libc.shmat(memory, None, 0)
    ctypes.memmove(where, b"system v", 8)
    called(libc.shmctl(memory, 0, None), "shmctl")
    return lambda: ctypes.string_at(where, 8).decode()


# -- files


@shape
def shape_removed_file(folder):
    file = open(f"{folder}/gone", "w+b")
    file.write(b"content")
    file.flush()
    os.unlink(f"{folder}/gone")
    return lambda: os.pread(file.fileno(), 99, 0).decode()


@shape
def shape_linked_removed_file(folder):
    file = open(f"{folder}/gone", "w+b")
    file.write(b"content")
    file.flush()
    os.link(f"{folder}/gone", f"{folder}/other")
    os.unlink(f"{folder}/gone")
    return lambda: (os.pread(file.fileno(), 99, 0).decode(), os.path.exists(f"{folder}/other"))


@shape
def shape_growing(folder, mode):
    """A file that is open in some way; others write to it as well."""
    with open(f"{folder}/log", "w") as log:
        log.write("x" * 100)
    file = open(f"{folder}/log", mode)
    if "+" in mode or mode == "w":
        file.write("own")
        file.flush()
    where = file.tell()
    return lambda: (file.tell() - where, fcntl.fcntl(file.fileno(), fcntl.F_GETFL))


@shape
def shape_positions(folder):
    """One open file that three descriptors and a child share, and another of the same name."""
    with open(f"{folder}/file", "wb") as file:
        file.write(b"x" * 100)
    first = os.open(f"{folder}/file", os.O_RDWR)
    second, third = os.dup(first), os.dup(first)
    os.lseek(first, 42, os.SEEK_SET)
    other = os.open(f"{folder}/file", os.O_RDONLY | os.O_CLOEXEC)
    os.lseek(other, 7, os.SEEK_SET)
    read, write = os.pipe()
    child(lambda: os.write(write, bytes([os.lseek(third, 0, os.SEEK_CUR)])))

    def state():
        places = [os.lseek(each, 0, os.SEEK_CUR) for each in (first, second, third, other)]
        return places, os.read(read, 1)[0], fcntl.fcntl(other, fcntl.F_GETFD)

    return state


@shape
def shape_sparse_file(folder):
    file = open(f"{folder}/sparse", "w+b")
    file.truncate(1 << 36)
    os.pwrite(file.fileno(), b"far", 1 << 35)
    return lambda: (os.fstat(file.fileno()).st_size, os.pread(file.fileno(), 3, 1 << 35).decode())


@shape
def shape_removed_sparse_file(folder):
    state = shape_sparse_file(folder)
    os.unlink(f"{folder}/sparse")
    return state


@shape
def shape_removed_folder(folder):
    os.mkdir(f"{folder}/gone")
    os.chdir(f"{folder}/gone")
    os.rmdir(f"{folder}/gone")
    return lambda: os.stat(".").st_nlink


@shape
def shape_folder_open(folder):
    os.mkdir(f"{folder}/folder")
    open(f"{folder}/folder/a", "w").close()
    descriptor = os.open(f"{folder}/folder", os.O_RDONLY | os.O_DIRECTORY)
    path = os.open(f"{folder}/folder/a", os.O_PATH)
    return lambda: (os.listdir(descriptor), os.fstat(path).st_size)


@shape
def shape_fifo(folder):
    os.mkfifo(f"{folder}/fifo")
    both = os.open(f"{folder}/fifo", os.O_RDWR)
    os.write(both, b"waiting")

    def state():
        seen = os.read(both, 99)
        os.write(both, seen)
        return seen.decode()

    return state


@shape
def shape_fifo_outside(folder):
    """Opens the end that writes; another process, outside, has the one that reads."""
    descriptor = os.open(f"{folder}/fifo", os.O_WRONLY)

    def state():
        os.write(descriptor, b"x")

    return state


@shape
def shape_locks(folder):
    files = [open(f"{folder}/lock-{each}", "w+b") for each in range(3)]
    KEPT.extend(files)
    fcntl.flock(files[0], fcntl.LOCK_EX)
    fcntl.lockf(files[1], fcntl.LOCK_EX, 10, 5)
    owned(files[2])
    return lambda: still_owned(f"{folder}/lock-2")


def owned(file):
    """Lock some bytes for the open file (OFD)."""
    fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 9, 0))  # F_OFD_SETLK


def still_owned(name):
    """Say which lock keeps somebody else from these bytes: the kernel's list names nobody as its owner."""
    with open(name, "r+b") as other:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 100, 0)
        return struct.unpack("hhqqi4x", fcntl.fcntl(other, 36, wanted))[:4]  # F_OFD_GETLK


@shape
def shape_locks_on_mapped_file(folder, kind):
    """SQLite in WAL mode does this, and LMDB."""
    file = open(f"{folder}/lock", "w+b")
    KEPT.append(file)
    file.truncate(PAGE)
    memory = mmap.mmap(file.fileno(), PAGE)
    memory[:2] = b"me"
    if kind == "fcntl":
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 5)
        fcntl.lockf(file, fcntl.LOCK_SH, 2, 20)
    elif kind == "flock":
        fcntl.flock(file, fcntl.LOCK_EX)
    else:
        owned(file)
        return lambda: (memory[:2].decode(), still_owned(f"{folder}/lock"))
    return memory[:2].decode


@shape
def shape_lock_of_child(folder):
    """A child has locked a file that its parent has mapped."""
    file = open(f"{folder}/lock", "w+b")
    KEPT.append(file)
    file.truncate(PAGE)
    memory = mmap.mmap(file.fileno(), PAGE)

    def does():
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 5)
        memory[0] = 1

    child(does)
    while not memory[0]:
        time.sleep(PAUSE_S)
    return lambda: memory[0]


@shape
def shape_lease(folder):
    file = open(f"{folder}/leased", "w+b")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return lambda: fcntl.fcntl(file, fcntl.F_GETLEASE)


# -- pipes, sockets, and what else has a descriptor


@shape
def shape_pipes(folder):
    """Pipes inside of the tree, one with bytes on their way, one as large as can be."""
    first, second = os.pipe(), os.pipe()
    size = fcntl.fcntl(second[1], 1031, 1 << 20)  # F_SETPIPE_SZ
    os.write(second[1], b"x" * 200_000)
    child(lambda: os.write(first[1], b"c"))

    def state():
        assert os.read(first[0], 1) == b"c"
        left = struct.unpack("i", fcntl.ioctl(second[0], 0x541B, bytes(4)))[0]  # FIONREAD
        return size == fcntl.fcntl(second[0], 1032), left

    return state


@shape
def shape_pipe_without_writer(folder):
    """One end of a pipe whose other end nobody has."""
    read, write = os.pipe()
    os.write(write, b"last words")
    os.close(write)
    other_read, other_write = os.pipe()
    os.close(other_read)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def state():
        left = struct.unpack("i", fcntl.ioctl(read, 0x541B, bytes(4)))[0]
        try:
            os.write(other_write, b"x")
        except BrokenPipeError:
            return left, "broken"
        return left, "written"

    return state


@shape
def shape_speaking(folder):
    """Writes to its standard output, which the one who started it reads."""

    def state():
        os.write(1, b"x\n")

    return state


@shape
def shape_listening(folder):
    """Has standard input from a pipe that somebody outside may write to."""
    descriptor = select.poll()
    descriptor.register(0, select.POLLIN)
    return lambda: [event for _, event in descriptor.poll(0)]


@shape
def shape_unix_sockets(folder):
    one, other = socket.socketpair()
    one.sendall(b"on its way")
    talk, hear = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    talk.send(b"first")
    talk.send(b"second")
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/server")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(f"{folder}/server")
    accepted = server.accept()[0]
    KEPT.append(server)

    def state():
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        left = [other.recv(99, socket.MSG_PEEK).decode(), hear.recv(99, socket.MSG_PEEK).decode()]
        return left, server.getsockname()

    return state


@shape
def shape_accepted_unix_socket(folder):
    """A connection over a Unix socket says to which server it was made."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/server")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(f"{folder}/server")
    accepted = server.accept()[0]
    KEPT.append(server)
    return lambda: (accepted.getsockname(), client.getpeername())


@shape
def shape_passed_descriptor(folder):
    """A descriptor is on its way in a socket."""
    one, other = socket.socketpair()
    with open(f"{folder}/passed", "w+b") as file:
        file.write(b"passed")
        file.flush()
        socket.send_fds(one, [b"x"], [file.fileno()])

    def state():
        said, descriptors, _, _ = socket.recv_fds(other, 1, 1, socket.MSG_PEEK)
        content = [os.pread(each, 99, 0).decode() for each in descriptors]
        for each in descriptors:
            os.close(each)
        return said.decode(), content

    return state


@shape
def shape_unix_client(folder, path, kind):
    """Is connected to somebody outside."""
    client = socket.socket(socket.AF_UNIX, getattr(socket, kind))
    client.connect(path)

    def state():
        client.send(b"x")

    return state


@shape
def shape_tcp_client(folder, port):
    """Sends a number and has it sent back."""
    client = socket.create_connection(("127.0.0.1", int(port)))
    count = 0

    def state():
        nonlocal count
        count += 1
        client.sendall(struct.pack("q", count))
        return struct.unpack("q", client.recv(8, socket.MSG_WAITALL))[0] - count

    return state


@shape
def shape_tcp_inside(folder):
    """Both ends of a connection are in the tree, and a server listens that has nobody."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted = server.accept()[0]
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def state():
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        nodelay = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        return nodelay, accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    return state


@shape
def shape_udp(folder):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other.connect(one.getsockname())
    one.settimeout(5)

    def state():
        other.send(b"x")
        return one.recv(9).decode()

    return state


@shape
def shape_raw_socket(folder):
    held = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return lambda: held.type


@shape
def shape_packet_socket(folder):
    held = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    return lambda: held.type


@shape
def shape_netlink(folder):
    held = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    held.bind((0, 1))
    return held.getsockname


@shape
def shape_vsock(folder):
    held = socket.socket(40, socket.SOCK_STREAM)
    return lambda: held.family


@shape
def shape_events(folder):
    """All that epoll waits for: a counter, a timer, a signal, a watched folder."""
    event = os.eventfd(3, os.EFD_NONBLOCK)
    timer = syscall(283, 1, 0o4000)  # timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)
    every = struct.pack("qqqq", 0, 20_000_000, 0, 20_000_000)
    syscall(286, timer, 0, every, None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signals = syscall(289, -1, struct.pack("Q", 1 << (signal.SIGUSR1 - 1)), 8, 0o4000)
    watch = syscall(294, 0o4000)  # inotify_init1
    os.mkdir(f"{folder}/watched")
    called(libc.inotify_add_watch(watch, f"{folder}/watched".encode(), 0x100), "inotify_add_watch")  # IN_CREATE
    epoll = select.epoll()
    for each in (event, timer, signals, watch):
        epoll.register(each, select.EPOLLIN)
    count = 0

    def state():
        nonlocal count
        seen = set()
        while len(seen) < 4:  # again: of what was watched and not read yet, CRIU keeps nothing
            count += 1
            os.kill(os.getpid(), signal.SIGUSR1)
            open(f"{folder}/watched/{count}", "w").close()
            os.unlink(f"{folder}/watched/{count}")
            seen |= {each for each, _ in epoll.poll(0.05)}
        for each, size in ((watch, 4096), (timer, 8), (signals, 128)):
            with contextlib.suppress(BlockingIOError):  # it was frozen since it was seen
                os.read(each, size)
        value = os.eventfd_read(event)
        os.eventfd_write(event, value)
        return value, sorted(seen)

    return state


@shape
def shape_expired_timer(folder):
    """A timer that expires more often than it is read: the kernel starts it again when it is read."""
    timer = syscall(283, 1, 0)  # timerfd_create(CLOCK_MONOTONIC)
    period = struct.pack("qqqq", 0, 1_000_000, 0, 1_000_000)
    syscall(286, timer, 0, period, None)

    def state():
        select.select([timer], [], [])
        return len(os.read(timer, 8))

    return state


@shape
def shape_fanotify(folder):
    held = syscall(300, 0, os.O_RDONLY)
    called(libc.fanotify_mark(held, 1, ctypes.c_uint64(0x20), -100, f"{folder}".encode()), "fanotify_mark")
    return lambda: None


@shape
def shape_pidfd_inside(folder):
    pid = child(nothing)
    held = os.pidfd_open(pid)

    def state():
        with open(f"/proc/self/fdinfo/{held}") as lines:
            return [int(line.split()[1]) == pid for line in lines if line.startswith("Pid:")]

    return state


@shape
def shape_pidfd_outside(folder, pid):
    held = os.pidfd_open(int(pid))
    return lambda: held


@shape
def shape_message_queue(folder):
    """A queue of messages of POSIX."""
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    name = f"/catalogue-{os.getpid()}".encode()
    held = called(library.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None), "mq_open")
    called(library.mq_unlink(name), "mq_unlink")
    return lambda: held


@shape
def shape_userfaultfd(folder):
    held = syscall(323, 0)
    return lambda: held


@shape
def shape_perf(folder):
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 1), 128)  # a software event: task clock
    held = syscall(298, attributes, 0, -1, -1, 0)
    return lambda: held


@shape
def shape_bpf_map(folder):
    attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 8, 1), 120)  # an array
    held = syscall(321, 0, attributes, 120)
    return lambda: held


@shape
def shape_landlock(folder):
    rules = struct.pack("Q", 1)
    held = syscall(444, rules, 8, 0)
    return lambda: held


@shape
def shape_landlocked(folder):
    """It may not make devices any more."""
    rules = struct.pack("Q", 1 << 6)  # LANDLOCK_ACCESS_FS_MAKE_CHAR
    held = syscall(444, rules, 8, 0)
    prctl(38, 1)
    syscall(446, held, 0)
    os.close(held)

    def state():
        try:
            os.mknod(f"{folder}/device", 0o20600, os.makedev(1, 3))
        except PermissionError:
            return "may not"
        os.unlink(f"{folder}/device")
        return "may"

    return state


@shape
def shape_io_uring(folder):
    held = syscall(425, 4, ctypes.create_string_buffer(120))
    return lambda: held


@shape
def shape_devices(folder):
    held = [open(f"/dev/{name}", "r+b", buffering=0) for name in ("null", "zero", "urandom")]
    return lambda: [each.name for each in held]


@shape
def shape_proc_file(folder):
    held = open("/proc/self/status")

    def state():
        held.seek(0)
        return held.read().splitlines()[0]

    return state


@shape
def shape_own_proc_folder(folder):
    os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    return lambda: None


@shape
def shape_proc_file_of_ended_thread(folder):
    held = []
    thread = threading.Thread(target=lambda: held.append(open("/proc/thread-self/comm")))
    thread.start()
    thread.join()
    return lambda: len(held)


@shape
def shape_unix_name_taken(folder):
    """Another process has bound a socket to the name meanwhile."""
    name = f"{folder}/name"
    held = socket.socket(socket.AF_UNIX)
    held.bind(name)
    held.listen()
    os.unlink(name)
    subprocess.run([sys.executable, "-I", "-S", "-c", f"import socket; socket.socket(1).bind({name!r})"], check=True)
    return lambda: (held.getsockname() == name, os.path.exists(name))


@shape
def shape_namespace_file(folder):
    held = os.open("/proc/self/ns/net", os.O_RDONLY)
    return lambda: os.readlink(f"/proc/self/fd/{held}")


@shape
def shape_many_descriptors(folder, number):
    pipes = [os.pipe() for _ in range(int(number))]

    def state():
        os.write(pipes[-1][1], b"x")
        return os.read(pipes[-1][0], 1).decode(), len(pipes)

    return state


@shape
def shape_unread_terminal(folder, lines):
    """Something waits on both sides of a terminal, which gives it by lines or not, and nobody reads it."""
    master, slave = os.openpty()
    if lines == "raw":
        tty.setraw(slave)
    os.write(slave, b"out\n" * 500)
    os.write(master, b"in\r" * 100 + b"begun")

    def unread(descriptor):
        select.select([descriptor], [], [], 0)
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))

    return lambda: [[unread(each), fcntl.fcntl(each, fcntl.F_GETFL) & os.O_NONBLOCK] for each in (master, slave)]


@shape
def shape_full_terminal(folder):
    """Nobody reads a terminal, and a child waits to write more."""
    master, slave = os.openpty()
    child(lambda: os.write(slave, b"a line of a program that talks\n"))

    def state():
        select.select([master], [], [])
        return struct.unpack("i", fcntl.ioctl(master, termios.FIONREAD, bytes(4))), os.get_blocking(slave)

    found = state()
    while found[0][0] < 4000 or found != state():  # the last line fits in part
        found = state()
        time.sleep(20 * PAUSE_S)
    return state


@shape
def shape_written_terminal(folder):
    """It writes to a terminal by one descriptor, and reads by another."""
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    KEPT.extend([os.open(name, os.O_WRONLY | os.O_NOCTTY), os.open(name, os.O_RDONLY | os.O_NOCTTY)])
    os.write(KEPT[-2], b"out\n")
    return lambda: struct.unpack("i", fcntl.ioctl(master, termios.FIONREAD, bytes(4)))


@shape
def shape_closed_terminal(folder):
    """The other side of a terminal was closed, and what was written there is not read yet."""
    master, slave = os.openpty()
    os.write(slave, b"last words")
    os.close(slave)

    def state():
        poll = select.poll()
        poll.register(master, select.POLLIN)
        return poll.poll(0), struct.unpack("i", fcntl.ioctl(master, termios.FIONREAD, bytes(4)))

    return state


@shape
def shape_terminal_inside(folder):
    """Both ends of a terminal are in the tree; a child has it as its controlling terminal."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    pid = os.fork()
    if pid == 0:
        os.close(master)
        os.setsid()
        fcntl.ioctl(slave, 0x540E, 0)  # TIOCSCTTY
        while True:
            os.write(slave, b"x")
            time.sleep(PAUSE_S)
    fcntl.ioctl(slave, 0x5414, struct.pack("HHHH", 33, 77, 0, 0))  # TIOCSWINSZ

    def state():
        select.select([master], [], [], 5)
        assert b"x" in os.read(master, 1 << 16)
        return struct.unpack("HHHH", fcntl.ioctl(slave, 0x5413, bytes(8)))[:2]

    return state


# -- attributes that each process or thread has


@shape
def shape_affinity(folder):
    os.sched_setaffinity(0, {0})
    return lambda: sorted(os.sched_getaffinity(0))


@shape
def shape_io_priority(folder):
    syscall(251, 1, 0, 2 << 13 | 6)
    return lambda: syscall(252, 1, 0)


@shape
def shape_attributes_of_threads(folder):
    """Each thread has its own: name, nice, affinity, I/O priority, timer slack, blocked signals."""

    def run(at):
        os.sched_setaffinity(0, {at % len(os.sched_getaffinity(0))})
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), at)
        syscall(251, 1, threading.get_native_id(), 2 << 13 | at)
        prctl(29, 100_000 + at)
        prctl(15, ctypes.addressof(names[at]))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        ready.release()
        while True:
            time.sleep(1)

    names = [ctypes.create_string_buffer(f"thread-{at}".encode()) for at in range(4)]
    ready = threading.Semaphore(0)
    for at in range(1, 4):
        threading.Thread(target=run, args=(at,), daemon=True).start()
    for _ in range(1, 4):
        ready.acquire()
    return lambda: None


@shape
def shape_timer_slack(folder):
    prctl(29, 123_456)
    return lambda: prctl(30)


@shape
def shape_core_filter(folder):
    with open("/proc/self/coredump_filter", "w") as file:
        file.write("0x7f")

    def state():
        with open("/proc/self/coredump_filter") as file:
            return file.read()

    return state


@shape
def shape_personality(folder):
    called(libc.personality(0x0040000), "personality")  # ADDR_NO_RANDOMIZE
    return lambda: libc.personality(0xFFFFFFFF)


@shape
def shape_many_attributes(folder):
    """Nice, mask, name, no new privileges, oom score, undumpable, keepcaps, no huge pages, secure bits."""
    os.nice(3)
    os.umask(0o27)
    prctl(15, ctypes.addressof(ctypes.create_string_buffer(b"another name")))
    prctl(38, 1)
    prctl(41, 1)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    prctl(8, 1)
    prctl(4, 0)
    return lambda: [prctl(each) for each in (3, 7, 39, 42, 27)]


@shape
def shape_deadline(folder):
    runtime, deadline = 1_000_000, 100_000_000
    wanted = struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, runtime, deadline, deadline)
    called(libc.syscall(314, 0, wanted, 0), "sched_setattr")
    return lambda: os.sched_getscheduler(0)


@shape
def shape_thread_apart(folder):
    """One of its threads is in another folder than the rest."""
    told, done = threading.Event(), threading.Event()

    def go_apart():
        called(libc.unshare(0x200), "unshare")  # CLONE_FS
        os.chdir(folder)
        told.set()
        done.wait()

    threading.Thread(target=go_apart, daemon=True).start()
    told.wait()
    return os.getcwd


@shape
def shape_rare_attributes(folder):
    """What it does at broken memory, on a fork and without advice, secure bits, barriers, a strict child."""
    libc.prctl(33, 1, 1, 0, 0)  # PR_MCE_KILL: early
    libc.prctl(41, 1, 2, 0, 0)  # PR_SET_THP_DISABLE: but for what is advised, which Linux before 6.18 refuses
    libc.prctl(53, 0, 4, 0, 0)  # PR_SET_SPECULATION_CTRL: for this thread no store bypass, if the processor has it
    libc.prctl(53, 1, 4, 0, 0)  # likewise no guess about indirect branches
    prctl(28, 0x2F)  # PR_SET_SECUREBITS
    syscall(324, 1 << 4, 0, 0)  # membarrier: register
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    echoes = strict_child()

    def state():
        asked = [libc.prctl(each, 0, 0, 0, 0) for each in (27, 34, 42)]
        guesses = [libc.prctl(52, each, 0, 0, 0) for each in (0, 1)]
        return asked, guesses, syscall(324, 1 << 9, 0, 0), os.sched_getscheduler(0), echoes()

    return state


def strict_child():
    """Start a child under strict seccomp, which may do nothing but read and write; give what asks it for an echo."""
    (read, heard), (answers, write) = os.pipe(), os.pipe()
    code = libc.mmap(None, ctypes.c_size_t(PAGE), 7, 0x22, -1, 0)
    byte = code + PAGE // 2

    def call(number, *arguments):
        """Load the registers for a system call, and make it."""
        loads = zip((b"\x48\xbf", b"\x48\xbe", b"\x48\xba"), arguments, strict=False)
        return (
            b"\xb8"
            + struct.pack("I", number)
            + b"".join(op + struct.pack("Q", each) for op, each in loads)
            + b"\x0f\x05"
        )

    forever = call(0, read, byte, 1) + call(1, write, byte, 1)
    machine_code = call(157, 22, 1) + forever + b"\xeb" + struct.pack("b", -len(forever) - 2)
    ctypes.memmove(code, machine_code, len(machine_code))
    if os.fork() == 0:
        ctypes.CFUNCTYPE(None)(code)()

    def echo():
        os.write(heard, b"x")
        return os.read(answers, 1).decode() if select.select([answers], [], [], 5)[0] else "nothing"

    return echo


@shape
def shape_rare_memory(folder):
    """Memory that is sealed, guarded, locked when it is touched, a stack that grows, and what may be dropped."""

    def made(flags=0x22):
        found = libc.mmap(None, ctypes.c_size_t(8 * PAGE), 3, flags, -1, 0)
        called(ctypes.c_long(found).value, "mmap")
        ctypes.memset(found, 7, 8 * PAGE)
        libc.mmap(None, ctypes.c_size_t(PAGE), 0, 0x22, -1, 0)  # so that it joins none of the others
        return found

    sealed, guarded, locked, stack = made(), made(), made(), made(0x22 | 0x100)
    KEPT.append(libc.syscall(462, ctypes.c_void_p(sealed + PAGE), ctypes.c_size_t(PAGE), 0))  # mseal, of Linux 6.10
    called(libc.mlock2(ctypes.c_void_p(locked), ctypes.c_size_t(8 * PAGE), 1), "mlock2")  # MLOCK_ONFAULT
    libc.madvise(ctypes.c_void_p(guarded + 2 * PAGE), ctypes.c_size_t(PAGE), 102)  # MADV_GUARD_INSTALL, of Linux 6.13
    dropped = libc.mmap(None, ctypes.c_size_t(PAGE), 3, 0x20 | 0x8, -1, 0)  # MAP_DROPPABLE, of Linux 6.11
    read, write = os.pipe()

    def state():
        marks = {"sealed": sealed + PAGE, "locked": locked, "stack": stack, "dropped": ctypes.c_long(dropped).value}
        found, names, name = {}, {place: name for name, place in marks.items() if place != -1}, None
        with open("/proc/self/smaps") as lines:
            for line in lines:
                words = line.split()
                if words[0] == "VmFlags:" and name:
                    found[name] = sorted({*words} & {"sl", "lf", "lo", "gd", "wf", "dp"})
                elif not words[0].endswith(":"):
                    name = names.get(int(words[0].partition("-")[0], 16))
        seen = libc.write(write, ctypes.c_void_p(guarded + 2 * PAGE), 1)
        return found, seen == 1 and os.read(read, 1)[0]

    return state


@shape
def shape_lost_attributes(folder):
    called(libc.mlockall(2), "mlockall")  # MCL_FUTURE
    libc.prctl(67, 1, 0, 0, 0)  # PR_SET_MEMORY_MERGE
    libc.prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE
    keyring = syscall(250, 1, b"catalogue")  # KEYCTL_JOIN_SESSION_KEYRING
    syscall(154, 1, struct.pack("IIII", 0, 0x1000, 0xFFF, 0x51), 16)  # modify_ldt
    libc.syscall(314, 0, struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, 50_000_000, 0, 0), 0)  # sched_setattr: a slice
    stops_at_clocks = clockless_child()
    while time.process_time() < 0.1:
        pass
    used = time.process_time()

    def state():
        with contextlib.closing(mmap.mmap(-1, PAGE)), open("/proc/self/smaps") as file:
            locked = any(" lo" in line for line in file if line.startswith("VmFlags"))
        attributes = ctypes.create_string_buffer(56)
        called(libc.syscall(315, 0, attributes, 56, 0), "sched_getattr")
        return {
            "locks what is to come": locked,
            "merges": libc.prctl(68, 0, 0, 0, 0),
            "write xor execute": libc.prctl(66, 0, 0, 0, 0),
            "its keyring": syscall(250, 0, -3, 0) == keyring,
            "descriptors of segments": libc.syscall(154, 0, ctypes.create_string_buffer(64), 64) > 0,
            "slice": struct.unpack_from("Q", attributes.raw, 24)[0] == 50_000_000,
            "stops at clocks": stops_at_clocks(),
            "processor time goes on": time.process_time() >= used,
        }

    return state


def clockless_child():
    """Start a child that may not read the processor's clock (PR_SET_TSC); give what asks it whether that is so."""
    (read, heard), (answers, write) = os.pipe(), os.pipe()
    if os.fork() == 0:
        value = ctypes.c_int()
        libc.prctl(26, 2, 0, 0, 0)
        while True:
            os.read(read, 1)
            libc.prctl(25, ctypes.byref(value), 0, 0, 0)
            os.write(write, bytes([value.value]))

    def asked():
        os.write(heard, b"x")
        return os.read(answers, 1)[0] == 2

    return asked


@shape
def shape_rare_descriptors(folder):
    """A file that can be given a name, half a folder, who is told, timers of many kinds, a filter, a dead pidfd."""
    nameless = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(nameless, b"content")
    os.mkdir(f"{folder}/many")
    for each in range(300):
        open(f"{folder}/many/{each}", "w").close()
    half = os.open(f"{folder}/many", os.O_RDONLY)
    syscall(217, half, ctypes.create_string_buffer(4096), 4096)  # getdents64
    read, write = os.pipe()
    signal.signal(signal.SIGRTMIN, nothing_of_it)
    fcntl.fcntl(read, 10, signal.SIGRTMIN)  # F_SETSIG
    fcntl.fcntl(read, 15, struct.pack("ii", 0, threading.get_native_id()))  # F_SETOWN_EX
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
    timer = syscall(283, time.CLOCK_REALTIME, 0)
    syscall(286, timer, 3, struct.pack("qqqq", 0, 0, int(time.time()) + 10**6, 0), None)  # TFD_TIMER_CANCEL_ON_SET
    thread, of_processor = ctypes.c_int(), ctypes.c_int()
    told = ctypes.create_string_buffer(struct.pack("qiii", 0, signal.SIGRTMIN, 4, threading.get_native_id()), 64)
    syscall(222, time.CLOCK_MONOTONIC, told, ctypes.byref(thread))  # timer_create: SIGEV_THREAD_ID
    syscall(223, thread.value, 0, struct.pack("qqqq", 0, 0, 10**6, 0), None)
    syscall(222, time.CLOCK_PROCESS_CPUTIME_ID, told, ctypes.byref(of_processor))
    syscall(223, of_processor.value, 0, struct.pack("qqqq", 0, 0, 10**6, 0), None)
    filtered = socket.socket(type=socket.SOCK_DGRAM)
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
    filtered.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))  # SO_ATTACH_FILTER
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    ended = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    open(f"{folder}/watched", "w").close()
    judge = syscall(300, 0x4 | 0x2, os.O_RDONLY)  # fanotify_init: it is asked before
    called(libc.fanotify_mark(judge, 1, ctypes.c_uint64(0x10000), -100, f"{folder}/watched".encode()), "fanotify_mark")
    KEPT.append(write)

    def lines(name, *words):
        with open(f"/proc/self/{name}") as file:
            return [line.split() for line in file if line.startswith(words)]

    def state():
        linked = libc.linkat(nameless, b"", -100, f"{folder}/linked".encode(), 0x1000) == 0  # AT_EMPTY_PATH
        if linked:
            os.unlink(f"{folder}/linked")
        return {
            "nameless": (linked, os.pread(nameless, 99, 0).decode()),
            "half a folder": os.lseek(half, 0, os.SEEK_CUR),
            "told": (fcntl.fcntl(read, 11), struct.unpack("ii", fcntl.fcntl(read, 16, bytes(8)))),
            "timer": lines(f"fdinfo/{timer}", "settime flags", "clockid"),
            "timers": lines("timers", "ID", "signal", "notify", "ClockID"),
            "filter": filtered.getsockopt(socket.SOL_SOCKET, 26, 0) == b"",
            "ended": [event for _, event in polled(ended)],
            "judge": [line[1:4] for line in lines(f"fdinfo/{judge}", "fanotify ino")],
        }

    return state


def polled(descriptor):
    """Return what poll says of a descriptor at once."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll(0)


@shape
def shape_lost_descriptors(folder):
    """Who is told of a folder, which of the watched; whose a connection is; who gets one."""
    told = []
    signal.signal(signal.SIGIO, lambda *_: told.append(1))
    os.mkdir(f"{folder}/watched")
    noted = os.open(f"{folder}/watched", os.O_RDONLY)
    called(libc.fcntl(noted, 1026, ctypes.c_ulong(0x80000000 | 0x4)), "F_NOTIFY")
    watch = syscall(294, 0)
    with open(f"{folder}/removed", "w"):
        for name, mask in (("watched", 0x04000100), ("", 0x80000400), ("removed", 0x2)):
            called(libc.inotify_add_watch(watch, f"{folder}/{name}".encode(), ctypes.c_uint(mask)), "inotify_add_watch")
    KEPT.append(os.open(f"{folder}/removed", os.O_RDWR))
    os.unlink(f"{folder}/removed")
    event, once = os.eventfd(1), select.epoll()
    once.register(event, select.EPOLLIN | select.EPOLLONESHOT)
    once.poll(0)
    os.seteuid(65534)
    one, other = socket.socketpair()
    os.seteuid(0)
    KEPT.append(other)
    servers = [socket.socket(), socket.socket()]
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    for each in servers:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        each.bind(("127.0.0.1", 0) if each is servers[0] else servers[0].getsockname())
        each.listen()
    servers[0].setsockopt(socket.SOL_SOCKET, 51, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))  # always the first

    def chosen():
        """Say whether each of many connections comes to the first server."""
        found = []
        for _ in range(16):
            with socket.create_connection(servers[0].getsockname()):
                for server in select.select(servers, [], [], 5)[0]:
                    server.accept()[0].close()
                    found.append(server)
        return all(each is servers[0] for each in found)

    last = [0.0, None]

    def chosen_since():
        """Ask again after a gap in time alone: what is frozen in the middle of a connection is refused for that."""
        if time.monotonic() - last[0] > 0.3:
            last[1] = chosen()
        last[0] = time.monotonic()
        return last[1]

    def state():
        told.clear()
        open(f"{folder}/watched/new", "w").close()
        os.unlink(f"{folder}/watched/new")
        with open(f"/proc/self/fdinfo/{watch}") as lines:
            masks = [line.split("mask:")[1].split()[0] for line in lines if line.startswith("inotify")]
        with open(f"/proc/self/fdinfo/{once.fileno()}") as lines:
            waits = [line.split()[3] for line in lines if line.startswith("tfd")]
        return {
            "told": bool(told),
            "watched": masks,
            "waits for": waits,
            "peer": struct.unpack("iii", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1],
            "chosen": chosen_since(),
        }

    return state


@shape
def shape_semaphore(folder):
    held = os.eventfd(3, os.EFD_SEMAPHORE)

    def state():
        seen = os.eventfd_read(held)
        os.eventfd_write(held, seen)
        return seen

    return state


@shape
def shape_packet_pipe(folder):
    read, write = os.pipe2(os.O_DIRECT)
    os.write(write, b"one")
    os.write(write, b"other")
    return lambda: (read, write)


@shape
def shape_corked(folder):
    """A datagram is collected until it is said that it is whole."""
    held = socket.socket(type=socket.SOCK_DGRAM)
    held.connect(("127.0.0.1", 9))
    held.setsockopt(socket.IPPROTO_UDP, 1, 1)  # UDP_CORK
    held.send(b"first")
    return lambda: held.type


@shape
def shape_alarm_timer(folder):
    held = syscall(283, 9, 0)  # CLOCK_BOOTTIME_ALARM
    return lambda: held


@shape
def shape_lost_socket_options(folder):
    udp, tcp, netlink = socket.socket(type=socket.SOCK_DGRAM), socket.socket(), socket.socket(16, socket.SOCK_RAW)
    udp.bind(("127.0.0.1", 0))
    tcp.bind(("127.0.0.1", 0))
    options = {
        "IP_MULTICAST_TTL": (udp, socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 7),
        "IP_MTU_DISCOVER": (udp, socket.IPPROTO_IP, 10, 2),
        "IP_MINTTL": (tcp, socket.IPPROTO_IP, 21, 5),
        "IP_TRANSPARENT": (tcp, socket.IPPROTO_IP, 19, 1),
        "SO_TIMESTAMP": (udp, socket.SOL_SOCKET, 29, 1),
        "SO_LOCK_FILTER": (udp, socket.SOL_SOCKET, 44, 1),
        "TCP_USER_TIMEOUT": (tcp, socket.IPPROTO_TCP, 18, 1234),
        "TCP_DEFER_ACCEPT": (tcp, socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 9),
        "NETLINK_EXT_ACK": (netlink, 270, 11, 1),
    }
    for held, level, name, value in options.values():
        held.setsockopt(level, name, value)
    tcp.listen()
    return lambda: {said: held.getsockopt(level, name) for said, (held, level, name, _) in options.items()}


@shape
def shape_scheduling(folder):
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    policies = {}

    def run(policy, priority):
        os.sched_setscheduler(0, policy, os.sched_param(priority))
        policies[threading.get_native_id()] = policy
        ready.release()
        while True:
            time.sleep(1)

    ready = threading.Semaphore(0)
    for each in ((os.SCHED_IDLE, 0), (os.SCHED_RR, 7)):
        threading.Thread(target=run, args=each, daemon=True).start()
        ready.acquire()
    return lambda: [os.sched_getscheduler(each) for each in policies]


@shape
def shape_limits(folder):
    for name, value in (("NOFILE", 200), ("STACK", 4 << 20), ("CORE", 0), ("FSIZE", 1 << 30), ("MEMLOCK", 1 << 16)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    return lambda: None


@shape
def shape_capabilities_dropped(folder):
    """It keeps one capability, in no ambient set, and the bounding set is smaller."""
    for each in (21, 16, 17):
        prctl(24, each)
    header = struct.pack("Ii", 0x20080522, 0)
    kept = 1 << 10 | 1 << 7 | 1 << 23
    data = struct.pack("IIIIII", kept, kept, 0, 0, 0, 0)
    called(libc.capset(header, data), "capset")
    return lambda: None


@shape
def shape_other_user(folder):
    os.setgroups([1234])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    return lambda: (os.getresuid(), os.getresgid(), os.getgroups())


@shape
def shape_effective_user(folder):
    os.setresuid(0, 65534, 0)
    return os.getresuid


@shape
def shape_seccomp(folder):
    """A filter refuses one system call."""

    class Filter(ctypes.Structure):
        _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    prctl(38, 1)
    program = Filter(len(lines), code)
    called(libc.prctl(22, 2, ctypes.byref(program), 0, 0), "prctl")

    def state():
        try:
            syscall(425, 4, ctypes.create_string_buffer(120))
        except OSError as error:
            return error.errno
        return 0

    return state


@shape
def shape_changed_root(folder):
    os.mkdir(f"{folder}/root")
    os.chroot(f"{folder}/root")
    os.chdir("/")
    return


@shape
def shape_removed_program(folder):
    """Its program is another one by now: a copy of sleep that was removed, as its child."""
    subprocess.run(["cp", "/bin/sleep", f"{folder}/copy"], check=True)
    subprocess.Popen([f"{folder}/copy", "1000"], stdin=subprocess.DEVNULL)
    os.unlink(f"{folder}/copy")
    return lambda: None


@shape
def shape_unshared(folder, flags):
    """It has left some namespace of who started it."""
    called(libc.unshare(int(flags, 16)), "unshare")
    return lambda: None


@shape
def shape_named_host(folder):
    """A host's name of its own."""
    called(libc.unshare(0x04000000), "unshare")
    socket.sethostname("frozen")
    return socket.gethostname


@shape
def shape_control_group(folder, group):
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))

    def state():
        with open(f"{group}/pids.max") as file:
            return file.read().strip()

    return state


# -- signals and timers


@shape
def shape_sleeping(folder):
    long, word, woken = struct.pack("qq", 10_000, 0), ctypes.c_int(0), []
    until = struct.pack("qq", int(time.clock_gettime(time.CLOCK_MONOTONIC)) + 10_000, 0)
    wait, wait_until, any_bit = 0, 9, 0xFFFFFFFF
    at = ctypes.byref(word)
    calls = {
        "nanosleep": (35, long, None),
        "clock_nanosleep": (230, time.CLOCK_MONOTONIC, 0, long, None),
        "clock_nanosleep until": (230, time.CLOCK_MONOTONIC, 1, until, None),
        "futex": (202, at, wait, 0, long, None, 0),
        "futex until": (202, at, wait_until, 0, until, None, any_bit),
        "poll": (7, None, 0, 10_000_000),
    }

    def sleep(name, number, *arguments):
        libc.syscall(number, *arguments)
        woken.append(name)
        threading.Event().wait()

    for name, call in calls.items():
        sleeper = threading.Thread(target=sleep, args=(name, *call), daemon=True)
        sleeper.start()
        while True:
            with open(f"/proc/self/task/{sleeper.native_id}/syscall") as file:
                if file.read().split()[0] == str(call[0]):
                    break
            time.sleep(PAUSE_S)
    return lambda: woken


@shape
def shape_timers(folder):
    """An interval timer, a timer of POSIX, and who is told."""
    heard = {"interval": 0, "posix": 0}

    def told(name):
        heard[name] += 1

    signal.signal(signal.SIGALRM, lambda *_: told("interval"))
    signal.signal(signal.SIGUSR2, lambda *_: told("posix"))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    event = ctypes.create_string_buffer(struct.pack("qii", 0, signal.SIGUSR2, 0), 64)
    timer = ctypes.c_int()
    syscall(222, 1, event, ctypes.byref(timer))
    syscall(223, timer.value, 0, struct.pack("qqqq", 0, 70_000_000, 0, 70_000_000), None)

    def state():
        if all(heard.values()):
            heard.update(interval=0, posix=0)
        return signal.getitimer(signal.ITIMER_REAL)[1]

    return state


@shape
def shape_pending_signals(folder):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGRTMIN])
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGRTMIN)
    return lambda: sorted(signal.sigpending())


@shape
def shape_signal_actions(folder):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, nothing_of_it)
    signal.siginterrupt(signal.SIGUSR1, True)
    return lambda: signal.getsignal(signal.SIGHUP).name


def nothing_of_it(*_):
    """Take a signal."""


@shape
def shape_counting_continue(folder):
    """Counts how often it is told to go on."""
    heard = []
    signal.signal(signal.SIGCONT, lambda *_: heard.append(1))
    return lambda: None


@shape
def shape_alternate_stack(folder):
    stack = ctypes.create_string_buffer(1 << 16)
    wanted = struct.pack("QiiQ", ctypes.addressof(stack), 0, 0, 1 << 16)
    called(libc.sigaltstack(wanted, None), "sigaltstack")

    def state():
        held = ctypes.create_string_buffer(24)
        called(libc.sigaltstack(None, held), "sigaltstack")
        where, flags, _, size = struct.unpack("QiiQ", held.raw)
        return where == ctypes.addressof(stack) and stack is not None, flags, size

    return state


@shape
def shape_robust_lock(folder):
    """A thread waits for a lock that another one holds."""
    lock = threading.Lock()
    lock.acquire()
    waiting = threading.Thread(target=lock.acquire, daemon=True)
    waiting.start()
    return lambda: (lock.locked(), waiting.is_alive())


def main():
    name, folder, *arguments = sys.argv[1:]
    held = SHAPES[name](folder, *arguments)
    at = "" if name == "changed_root" else folder

    def say(count, state, resting):
        with open(f"{at}/said.new", "w") as file:
            json.dump({"count": count, "state": state, "resting": resting}, file)
        os.replace(f"{at}/said.new", f"{at}/said")

    def go_round():
        count = 0
        while True:
            count += 1
            state = held() if held is not None else None
            say(count, state, False)
            time.sleep(PAUSE_S)
            if os.path.exists(f"{at}/rest"):  # somebody looks: have nothing open that is open for a moment
                say(count, state, True)
                while os.path.exists(f"{at}/rest"):
                    time.sleep(PAUSE_S)

    if name == "dead_first_thread":
        threading.Thread(target=go_round).start()
        libc.syscall(60, 0)  # exit: of this thread alone
    go_round()


if __name__ == "__main__":
    main()
