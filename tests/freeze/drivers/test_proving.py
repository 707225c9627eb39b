"""What a process was is read, compared, and set again: on real processes that are stopped, without CRIU."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest

from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.processes import calling as calling_module, traits
from iriscw.freeze.drivers.processes.calling import CALLABLE, HERE, NotCallable, calling
from iriscw.freeze.drivers.processes.proving import cpus_of, forget_continued, freer, policy_of, prove
from iriscw.freeze.drivers.processes.reading import children_of, read_tree
from iriscw.freeze.model import TargetGone, TreeChanged, TreeProcess
from iriscw.freeze.proc_text import parse_status
from iriscw.processes.identity import read_process_file, read_stat
from raised import that

PATIENCE_S = 60
NUMA = Path("/proc/self/numa_maps").exists()

PROGRAM = """
import fcntl, mmap, os, signal, sys, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
file = open(sys.argv[1], "w+b")
file.truncate(4096)
mapped = mmap.mmap(file.fileno(), 4096)
fcntl.lockf(file, fcntl.LOCK_EX, 100, 10)
fcntl.flock(file, fcntl.LOCK_SH)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
for line in sys.stdin:
    exec(line)
    print(flush=True)
"""


class Target:
    """A program with a thread and locks on a mapped file; it is stopped, and does what it is told when it is not."""

    def __init__(self, folder):
        self.file = folder / "locked"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM, str(self.file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.process.stdout.readline()
        self.pid = self.process.pid
        self.thread = max(int(path.name) for path in Path(f"/proc/{self.pid}/task").iterdir())
        self.stop()

    def stop(self):
        """Stop it, and wait until it is."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def does(self, line):
        """Let it run one line of Python, and stop it again."""
        os.kill(self.pid, signal.SIGCONT)
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline(), f"it has ended, at {line}"
        self.stop()

    def seen(self) -> TreeProcess:
        """Read it, as it is now."""
        return read_tree(identify_task(self.pid), closely=True).tasks[0]

    def prove(self, was: TreeProcess):
        """Have it be what it was."""
        prove((was,), (identify_task(self.pid),))


@pytest.fixture
def target(tmp_path):
    """A program that is stopped; it is ended afterwards."""
    made = Target(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate(timeout=PATIENCE_S)


needs_calls = pytest.mark.skipif(os.uname().machine not in CALLABLE, reason="no calls on this architecture")


def test_what_nobody_changed_is_left_alone(target):
    """It is the same, and still stopped."""
    was = target.seen()
    assert was.traits.threads == (target.thread,)
    assert {(lock.kind, lock.mapped) for lock in was.traits.locks} == {("FLOCK", False), ("POSIX", True)}
    target.prove(was)
    assert target.seen() == was
    assert read_stat(target.pid).state == "T"


@needs_calls
def test_all_that_criu_loses_is_set_again(target):
    """Of each thread its processors, priority, slack and policy; of the process the rest; and locks on mapped files."""
    one = min(os.sched_getaffinity(0))
    os.sched_setaffinity(target.thread, {one})
    target.does("import ctypes; library = ctypes.CDLL(None); library.syscall(251, 1, 0, 2 << 13 | 7)")
    target.does("library.prctl(29, 77_000, 0, 0, 0); library.personality(0x0040000)")
    target.does("library.syscall(238, 2, ctypes.byref(ctypes.c_ulong(1)), 64)")  # set_mempolicy: bind to node 0
    target.does("open('/proc/self/coredump_filter', 'w').write('0x11')")
    was = target.seen()
    first, found = was.traits.first, was.traits
    assert (first.io_priority, first.timer_slack_ns, found.personality) == (2 << 13 | 7, 77_000, 0x0040000)
    assert (found.dump_filter, dict(found.odd_threads)[target.thread].cpus) == (0x11, str(one))
    numa = first.memory_policy
    assert numa == ("bind:0" if NUMA else "default")
    os.sched_setaffinity(target.thread, os.sched_getaffinity(0))
    target.does("library.syscall(251, 1, 0, 0); library.prctl(29, 50_000, 0, 0, 0); library.personality(0)")
    target.does("library.syscall(238, 0, None, 0); open('/proc/self/coredump_filter', 'w').write('0x33')")
    target.does("fcntl.lockf(file, fcntl.LOCK_UN)")
    assert target.seen().traits != was.traits
    target.prove(was)
    assert target.seen().traits == was.traits
    target.does("pass")  # it goes on as if nothing had been


@needs_calls
def test_what_happens_at_broken_memory_is_set_again(target):
    """Of each thread; one that asked for nothing has the machine's way again."""
    target.does("import ctypes; library = ctypes.CDLL(None); library.prctl(33, 1, 1, 0, 0)")  # PR_MCE_KILL: early
    was = target.seen()
    assert was.traits.first.flags != dict(was.traits.odd_threads)[target.thread].flags == 0
    target.does("library.prctl(33, 0, 0, 0, 0)")
    target.prove(was)
    assert target.seen().traits == was.traits
    target.does("library.prctl(33, 0, 0, 0, 0)")
    was = target.seen()
    target.does("library.prctl(33, 1, 0, 0, 0)")
    target.prove(was)
    assert target.seen().traits == was.traits


@needs_calls
def test_memory_is_sealed_and_locked_again(target):
    """As it was: what CRIU gives back can be changed, and is locked as a whole."""
    target.does("import ctypes; library = ctypes.CDLL(None); library.mmap.restype = ctypes.c_void_p")
    target.does("place = library.mmap(None, 8 * 4096, 3, 0x22, -1, 0)")
    target.does("code = library.syscall(462, ctypes.c_void_p(place + 8192), ctypes.c_size_t(8192), 0)")
    target.does("library.mlock2(ctypes.c_void_p(place + 4096), 8192, 1)")  # MLOCK_ONFAULT
    was = target.seen()
    if not any(each.flag == "sl" for each in was.traits.flagged):
        pytest.skip("this kernel seals nothing")
    (locked, sealed) = was.traits.flagged
    assert (locked.flag, sealed.flag) == ("lf", "sl")
    assert (sealed.begin - locked.begin, sealed.end - sealed.begin, locked.end - locked.begin) == (4096, 8192, 8192)
    # As it comes back: locked as a whole, and not sealed, which here is another piece of memory.
    target.does("library.mlock(ctypes.c_void_p(place + 4096), 8192)")
    target.does(
        "other = library.mmap(None, 8192, 3, 0x22, -1, 0); print(other, file=open(sys.argv[1] + '.place', 'w'))"
    )
    at = int(Path(f"{target.file}.place").read_text())
    moved = attrs.evolve(sealed, begin=at, end=at + 8192)
    wanted = attrs.evolve(was.traits, flagged=tuple(sorted((locked, sealed, moved), key=lambda each: each.begin)))
    target.prove(attrs.evolve(was, traits=wanted))
    found = target.seen().traits.flagged
    assert {locked, sealed, moved} == {*found}


@needs_calls
def test_huge_pages_that_only_advice_gives_are_left_so(target):
    """CRIU takes them away altogether, for what the kernel tells of it is only whether there are any."""
    target.does("import ctypes; library = ctypes.CDLL(None); asked = library.prctl(41, 1, 2, 0, 0)")
    target.does("open(sys.argv[1] + '.asked', 'w').write(str(asked))")
    if Path(f"{target.file}.asked").read_text() != "0":
        pytest.skip("this kernel knows only all or none")
    was = target.seen()
    target.does("library.prctl(41, 1, 0, 0, 0)")
    target.prove(was)
    target.does("open(sys.argv[1] + '.asked', 'w').write(str(library.prctl(42, 0, 0, 0, 0)))")
    assert Path(f"{target.file}.asked").read_text() == "3"


def test_what_a_processor_may_guess_is_set_again_where_it_is_freer(target):
    """Elsewhere a thread is as safe as it was, or nothing can be done: it is no difference."""
    was = target.seen()
    first = attrs.evolve(was.traits.first, speculation=(("Speculation_Store_Bypass", "thread mitigated"),))
    target.prove(attrs.evolve(was, traits=attrs.evolve(was.traits, first=first, odd_threads=())))
    assert freer(first.speculation, (("Speculation_Store_Bypass", "thread vulnerable"),)) == [(0, 4)]
    assert freer((("SpeculationIndirectBranch", "conditional force disabled"),), ()) == []
    found = (("SpeculationIndirectBranch", "conditional enabled"),)
    assert freer((("SpeculationIndirectBranch", "conditional force disabled"),), found) == [(1, 8)]
    assert freer((("SpeculationIndirectBranch", "conditional enabled"),), found) == []


@needs_calls
def test_memory_with_a_policy_of_its_own_is_placed_again(target, monkeypatch):
    """Where there is more than one node to lie on: of a part of what the kernel holds as one piece, too."""
    if not NUMA:
        pytest.skip("this kernel has no NUMA")
    monkeypatch.setattr(traits, "many_nodes", lambda: True)
    bind = "assert library.syscall(237, ctypes.c_void_p(place), 8192, {}, ctypes.byref(ctypes.c_ulong({})), 64, 0) == 0"
    target.does("import ctypes; library = ctypes.CDLL(None); library.mmap.restype = ctypes.c_void_p")
    target.does("place = library.mmap(None, 8 * 4096, 3, 0x22, -1, 0) + 2 * 4096")
    target.does(bind.format(2, 1))
    was = target.seen()
    ((begin, end, policy),) = was.traits.placed
    assert (end - begin, policy) == (8192, "bind:0")
    target.does(bind.format(0, 0))
    assert target.seen().traits.placed == ()
    target.prove(was)
    assert target.seen().traits == was.traits


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("os.umask(0o077)", "Umask"),
        ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))", "Max open files"),
        ("threading.Thread(target=threading.Event().wait, daemon=True).start()", "3 threads"),
        ("fcntl.flock(file, fcntl.LOCK_UN)", "FLOCK"),
        ("fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)", "did not have"),
    ],
)
def test_what_cannot_be_set_is_told(target, line, said):
    """Each by what it is."""
    was = target.seen()
    target.does(line)
    with pytest.raises(TreeChanged) as caught:
        target.prove(was)
    assert said in str(caught.value)
    assert str(target.pid) in str(caught.value)


@needs_calls
def test_a_lock_that_somebody_else_has_by_now_is_told(target):
    """Two that believe to be alone with a file are worse than none."""
    was = target.seen()
    target.does("fcntl.lockf(file, fcntl.LOCK_UN)")
    with target.file.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(TreeChanged) as caught:
            target.prove(was)
    assert "somebody else has that lock" in str(caught.value)


def test_fewer_processors_are_no_difference(target):
    """A machine may have fewer by now: to run on some of those that it had is as it was, on others it is not."""
    was = target.seen()
    more = attrs.evolve(was.traits.first, cpus=f"{was.traits.first.cpus},4000")
    target.prove(attrs.evolve(was, traits=attrs.evolve(was.traits, first=more)))
    with pytest.raises(TreeChanged):
        target.prove(attrs.evolve(was, traits=attrs.evolve(was.traits, first=attrs.evolve(more, cpus="4000"))))


def test_one_that_has_ended_is_not_compared(target):
    """It is said that it is gone."""
    was = target.seen()
    target.process.kill()
    target.process.wait(PATIENCE_S)
    with pytest.raises(TargetGone):
        prove((was,), (was.identity,))
    prove((attrs.evolve(was, traits=None),), (was.identity,))  # of an older iriscw: nobody looked


@needs_calls
def test_a_call_in_a_stopped_process(target):
    """It returns what the kernel says, an error with its number; its memory and its state are as they were."""
    mapped = read_process_file(target.pid, "maps")
    with calling(target.pid, target.pid) as call:
        assert call(39) == target.pid  # getpid
        assert call(102) == os.getuid()
        with pytest.raises(OSError, check=that(errno=errno.EBADF)):
            call(3, 4000)  # close
        assert call(79, HERE, 64, memory=bytes(64)) > 1  # getcwd
    assert read_stat(target.pid).state == "T"
    assert read_process_file(target.pid, "maps") == mapped
    target.does("print(end='')")


@needs_calls
def test_a_filter_of_the_program_does_not_judge_our_calls(target):
    """It forbids the program what it wants to; we ask in its place."""
    target.does("import ctypes; library = ctypes.CDLL(None, use_errno=True)")
    # A filter: load the number; personality is answered with an error, everything else allowed.
    words = [(0x20, 0, 0, 0), (0x15, 0, 1, 135), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7FFF0000)]
    packed = b"".join(
        code.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little") for code, yes, no, value in words
    )
    target.does(f"code = ctypes.create_string_buffer({packed!r}); import struct")
    target.does("head = struct.pack('HxxxxxxQ', 4, ctypes.addressof(code))")
    target.does("library.prctl(38, 1, 0, 0, 0); assert library.prctl(22, 2, head, 0, 0) == 0")
    target.does("assert library.personality(0xffffffff) == -1")
    with calling(target.pid, target.pid) as call:
        assert call(135, 0xFFFFFFFF) == 0


@needs_calls
def test_a_program_of_other_registers_is_left_alone(target, monkeypatch):
    """As a 32-bit program: the kernel gives fewer bytes than are asked for, and nothing is changed."""
    monkeypatch.setattr(calling_module, "_REGISTERS", 28)
    with (
        calling(target.pid, target.pid) as call,
        pytest.raises(NotCallable, check=that(comes_from="calling.CallingThread._registers")),
    ):
        call(39)
    target.does("print(end='')")


@needs_calls
@pytest.mark.parametrize("action", ["lambda *_: None", "signal.SIG_IGN"])
def test_what_it_does_about_a_trap_stays(target, action):
    """The kernel forgets that where a trap is forced upon a process that blocks or ignores it."""
    target.does(f"import signal; signal.signal(signal.SIGTRAP, {action})")
    status = [
        line
        for line in read_process_file(target.pid, "status").splitlines()
        if line.startswith(("SigB", "SigI", "SigC"))
    ]
    with calling(target.pid, target.pid) as call:
        assert call(39) == target.pid
    after = read_process_file(target.pid, "status").splitlines()
    assert [line for line in after if line.startswith(("SigB", "SigI", "SigC"))] == status


def test_nobody_is_traced_afterwards(target):
    """Whatever went wrong; and it is stopped."""
    with pytest.raises(ZeroDivisionError), calling(target.pid, target.pid) as call:
        call(39 // 0)
    assert parse_status(read_process_file(target.pid, "status")).traced_by == 0
    assert read_stat(target.pid).state == "T"


def test_lists_of_processors_and_policies():
    """As the kernel writes them."""
    assert cpus_of("0-2,8") == {0, 1, 2, 8}
    assert cpus_of("") == frozenset()
    assert policy_of("default") == (0, frozenset())
    assert policy_of("bind=static:0-1") == (2 | 1 << 15, frozenset({0, 1}))
    assert policy_of("prefer (many):3") == (5, frozenset({3}))
    with pytest.raises(OSError, check=that(comes_from="proving.policy_of")):
        policy_of("something new:1")


@needs_calls
def test_a_signal_that_waits_is_not_lost(target):
    """It waits while calls are made, and comes when the process runs."""
    target.does("import signal; got = []; signal.signal(signal.SIGUSR1, lambda *_: got.append(1))")
    os.kill(target.pid, signal.SIGUSR1)
    with calling(target.pid, target.pid) as call:
        assert call(39) == target.pid
    target.does("import time; end = time.monotonic() + 20")  # another thread may take it, and tell the first one
    target.does("exec('while not got and time.monotonic() < end: time.sleep(0.001)'); assert got == [1]")
    target.does("print(end='')")


CHILD = """
child = os.fork()
if not child: signal.pause()
"""


@needs_calls
@pytest.mark.parametrize("ended", [False, True])
def test_a_parent_hears_of_an_end_and_of_nothing_else(target, ended):
    """That a child was stopped and let run is forgotten; that one has ended is not."""
    target.does(f"exec({CHILD!r})")
    child = next(iter(children_of(target.pid)))
    identity = identify_task(child)
    if ended:
        target.does("other = os.fork() or os._exit(3)")
        until_zombie(target.pid, child)
    os.kill(child, signal.SIGSTOP)
    wait_for_state(child, "T")
    os.kill(child, signal.SIGCONT)
    wait_for_state(child, "SR")
    assert waits_for_child(target.pid)
    forget_continued(identify_task(target.pid))
    assert waits_for_child(target.pid) == ended
    target.does("assert os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED) == (0, 0)")
    target.does("print(end='')")
    assert lives(identity)
    os.kill(child, signal.SIGKILL)


def test_what_is_traced_ends_with_its_tracer(target):
    """With all its signals blocked and registers of ours it must never run, and it is still in its checkpoint."""
    os.kill(target.pid, signal.SIGSTOP)
    wait_for_state(target.pid, "T")
    identity = identify_task(target.pid)
    text = (
        "import os, signal, sys\n"
        "from iriscw.freeze.drivers.processes.calling import calling\n"
        "with calling(*[int(sys.argv[1])] * 2): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", text, str(target.pid)], check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_for_state(target.pid, "Z")
    assert not lives(identity)


def waits_for_child(pid):
    """Whether SIGCHLD waits for a process."""
    lines = read_process_file(pid, "status").splitlines()
    pending = next(line.split()[1] for line in lines if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> signal.SIGCHLD - 1 & 1)


def until_zombie(parent, other):
    """Wait until another child of a process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(read_stat(each).ended for each in children_of(parent) if each != other):
        assert time.monotonic() < deadline


def wait_for_state(pid, states):
    """Wait until a process is in one of these states."""
    deadline = time.monotonic() + PATIENCE_S
    while read_stat(pid).state not in states:
        assert time.monotonic() < deadline


def test_room_is_counted_once(target):
    """Memory that several share, and each file without a name, count once, mapped or not; private memory by process."""

    def grown_by(*lines):
        before = read_tree(identify_task(target.pid)).memory_bytes
        for line in lines:
            target.does(line)
        return (read_tree(identify_task(target.pid)).memory_bytes - before) / (1 << 20)

    target.does("size = 8 << 20")
    assert 7.5 < grown_by("private = bytearray(b'x') * size") < 9
    assert 7.5 < grown_by("shared = mmap.mmap(-1, size); shared[:] = b'x' * size") < 9
    assert 7.5 < grown_by("memory = os.memfd_create('m'); os.posix_fallocate(memory, 0, size)") < 9
    assert -0.5 < grown_by("twice = mmap.mmap(memory, size); sum(twice[::4096])") < 1
    removed = "gone = open(sys.argv[1] + '2', 'w+b'); os.posix_fallocate(gone.fileno(), 0, size); os.unlink(gone.name)"
    assert 7.5 < grown_by(removed) < 9
    forked = grown_by("child = os.fork()", "exec('if not child: signal.pause()')")
    os.kill(next(iter(children_of(target.pid))), signal.SIGKILL)
    assert 7.5 < forked < 17  # its private memory is there twice, as far as the kernel knows; what is shared is not
