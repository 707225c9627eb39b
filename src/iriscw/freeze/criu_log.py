"""What CRIU's log says of a failure, as one of our errors.

CRIU has two exit codes and a log; what went wrong stands in the log's lines of errors. ``CAUSES`` is the table: the
first row that fits any line decides, so what is certain stands above what is a guess. A line that no row knows is told
as CRIU wrote it. Lines hold paths, numbers and names of files of the target, and nothing of its memory or environment.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import attrs

from iriscw._errors import OperationError
from iriscw.freeze.model import CriuFailed, CriuUnfit, NoRoom, RightsMissing, TargetGone, TargetUnfit
from iriscw.freeze.proc_text import IO_URING_WAY_OUT

MAX_LINES: Final = 4
"""Of the log in an error's text: the first failure and what followed from it."""

MAX_LINE_CHARS: Final = 300

MAX_PIPES: Final = 1024
"""``NR_PIPES_WITH_DATA`` of CRIU: of the pipes that a whole tree reads from, and of its fifos."""

_ERROR: Final = re.compile(r"^(?:\([\d.]+\)\s+)?(?:pie: )?(?:\s*\d+: )?Error (?:\([^)]*\): )?(?P<text>.*)$")

HARMLESS: Final = (
    # Without CAP_SYS_RESOURCE; it goes on with the limit that it has.
    "rlimit: Can't setup RLIMIT_NOFILE for self",
    # What we said ourselves, when a tree was let go on.
    "RPC client reported script error",
    "Dumping FAILED.",
    "Restoring FAILED.",
)


class Cause(enum.Enum):
    """Why CRIU failed; the value is the word for it in metrics and records."""

    PIPES = "pipes"
    PACKETS = "packets"
    ALARM = "alarm"
    CORKED = "corked"
    IO_URING = "io_uring"
    TERMINAL = "terminal"
    TCP = "tcp"
    UNIX_SOCKET = "unix_socket"
    FILE_LOCKS = "file_locks"
    UNLINKED = "unlinked"
    LINK_LEFT = "link_left"
    DEVICE = "device"
    THREADS = "threads"
    NOT_STOPPING = "not_stopping"
    MOUNT = "mount"
    UNKNOWN_FILE = "unknown_file"
    TRACED = "traced"
    SESSION = "session"
    NAMESPACE = "namespace"
    SHARED_MEMORY = "shared_memory"
    WITHIN = "within"
    PID_TAKEN = "pid_taken"
    ADDRESS_TAKEN = "address_taken"
    GONE = "gone"
    NO_ROOM = "no_room"
    NO_MEMORY = "no_memory"
    RIGHTS = "rights"
    OTHER_USER = "other_user"
    CLOCKS = "clocks"
    KERNEL = "kernel"
    FILE_CHANGED = "file_changed"
    FILE_MISSING = "file_missing"
    IMAGE = "image"
    OVERDUE = "overdue"
    UNKNOWN = "unknown"


@attrs.frozen
class LogRow:
    """One line of the table: what the log says, what it means, and what people can do."""

    cause: Cause
    expression: str
    error: type[OperationError]
    advice: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return what a line is looked for. It is made when it is needed: most commands never read a log."""
        return re.compile(self.expression)


def _row(cause: Cause, pattern: str, error: type[OperationError], advice: str) -> LogRow:
    return LogRow(cause, pattern, error, advice)


CAUSES: Final = (
    _row(Cause.NO_ROOM, r"No space left on device|Disk quota exceeded", NoRoom, "the disk of the images is full"),
    _row(Cause.NO_MEMORY, r"Cannot allocate memory|Out of memory", NoRoom, "the machine has too little memory"),
    _row(
        Cause.PIPES,
        r"OOM storing pipe",
        TargetUnfit,
        f"it reads from more than {MAX_PIPES} pipes, the most that CRIU can dump (and as many fifos): close some",
    ),
    _row(
        Cause.PACKETS,
        r"packetized mode for pipes",
        TargetUnfit,
        "it has a pipe that keeps packets apart (O_DIRECT): close it before",
    ),
    _row(
        Cause.ALARM,
        r"Unknown clock type",
        TargetUnfit,
        "it has a timer that wakes the machine (CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM): close it before",
    ),
    _row(
        Cause.CORKED,
        r"[Cc]an't dump corked",
        TargetUnfit,
        "it has a UDP socket that collects a datagram (UDP_CORK): let that be sent before",
    ),
    _row(
        Cause.IO_URING, r"io_uring|send_fds failed \(-22\)", TargetUnfit, f"it holds an io_uring ({IO_URING_WAY_OUT})"
    ),
    _row(
        Cause.TCP,
        r"Connected TCP socket|tcp-established",
        TargetUnfit,
        "it has an established TCP connection: --tcp-established keeps it, --tcp-close gives it up",
    ),
    _row(
        Cause.SESSION,
        r"not a session leader|[Ss]ession leader .*outside",  # above terminals: for it, too, CRIU names --shell-job
        TargetUnfit,
        "its first process must lead a session of its own: start it with setsid; with --shell-job it may also be in "
        "one whose leader is in its PID namespace",
    ),
    _row(
        Cause.THREADS,
        r"Zombies with threads",
        TargetUnfit,
        "the first thread of one of its processes has ended, and others go on",
    ),
    _row(
        Cause.NOT_STOPPING,
        r"Unseizable non-zombie",
        TargetUnfit,
        "one of its processes does not stop: it waits in the kernel, for a child of vfork or for a disk",
    ),
    _row(
        Cause.TERMINAL,
        r"shell-job|dangling tty|tty: Found slave|tty.*(?:not supported|no session leader)|[Cc]an't dump a tty",
        TargetUnfit,
        "it has a terminal: start it without one (setsid, standard input no terminal), or freeze it with --shell-job",
    ),
    _row(
        Cause.UNIX_SOCKET,
        r"ext-unix-sk|External socket is used|unix: .*(?:not supported|[Cc]an't dump half of stream)",
        TargetUnfit,
        "it has a Unix socket whose other end is outside of its tree: close it before, or freeze a tree with both ends",
    ),
    _row(
        Cause.FILE_LOCKS,
        r"file-locks|file locks? (?:is|are) hold",
        TargetUnfit,
        "it holds file locks that CRIU cannot keep: let go of them before",
    ),
    _row(
        Cause.LINK_LEFT, r"link_remap.*(?:exists|EEXIST)", CriuFailed, "a file that an earlier dump made is in the way"
    ),
    _row(
        Cause.UNLINKED,
        r"link-remap|[Gg]host file.*(?:too big|limit)|ghost-limit",
        TargetUnfit,
        "it has a removed file open that is too large for the images, or has another name: close it before",
    ),
    _row(
        Cause.DEVICE,
        r"Can't (?:dump|lookup) .*(?:device|chr|blk)",
        TargetUnfit,
        "it holds a device: close it before",
    ),
    _row(
        Cause.TRACED,
        r"is already traced|ptraced|[Ss]eize.*Operation not permitted|tracer",
        TargetUnfit,
        "it is being traced: let the debugger go before",
    ),
    _row(
        Cause.WITHIN, r"criu itself is within dumped tree", TargetUnfit, "it is the one that freezes, or one above it"
    ),
    _row(
        Cause.NAMESPACE,
        r"namespaces? (?:.* )?(?:not supported|outside|doesn't belong to the target)",
        TargetUnfit,
        "its namespaces cannot be dumped from here",
    ),
    _row(
        Cause.SHARED_MEMORY,
        r"SysVIPC shmem map .*doesn't live in IPC ns",
        TargetUnfit,
        "it has System V shared memory: start it in an IPC namespace of its own (unshare --ipc)",
    ),
    _row(
        Cause.MOUNT,
        r"Can't lookup mount=",
        TargetUnfit,
        "it has a file open that lies in no folder CRIU sees: it has mounts of its own, or a message queue, or memory "
        "that is secret or of huge pages",
    ),
    _row(
        Cause.UNKNOWN_FILE,
        r"Can't dump file \d+ of that type|Unknown socket collected|pidfd pid \d+ is not a part of process tree",
        TargetUnfit,
        "it has a file open that CRIU cannot dump: close it before",
    ),
    _row(
        Cause.PID_TAKEN,
        r"Can't fork for \d+: File exists|Pid \d+ (?:do not|does not) match expected|PID mismatch",
        CriuFailed,
        "a process or a zombie has one of its numbers: wait for it, or thaw it with --pids fresh",
    ),
    _row(
        Cause.ADDRESS_TAKEN,
        r"Can't bind inet socket.*Address already in use",
        CriuFailed,
        "somebody has its port, or it closed connections there just now and may not share it: wait a minute",
    ),
    _row(Cause.GONE, r"(?<!child process: )No such process|No process with pid", TargetGone, "the process has ended"),
    _row(
        Cause.KERNEL,
        r"vDSO area bounds|kerndat_\w+ failed|kerndat_init",
        CriuUnfit,
        "this CRIU is too old for this kernel",
    ),
    _row(
        Cause.OTHER_USER,
        r"Can't get rlimit \d+: Operation not permitted",
        RightsMissing,
        "a right is missing: CAP_SYS_RESOURCE, for processes of another user",
    ),
    _row(
        Cause.CLOCKS,
        r"Unable to set a \w+ clock offset: Operation not permitted",
        RightsMissing,
        "a right is missing: CAP_SYS_TIME, to have its clocks go on where they stood",
    ),
    _row(
        Cause.RIGHTS,
        r"CAP_\w+|Operation not permitted|Permission denied|needs? to (?:be|have).*root",
        RightsMissing,
        "a right is missing: CAP_SYS_ADMIN, or CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE",
    ),
    _row(
        Cause.FILE_CHANGED,
        r"has bad (?:size|mode|build-ID)|File .* has changed",
        CriuFailed,
        "a file that the process has open is another one now",
    ),
    _row(
        Cause.FILE_MISSING,
        r"Can't (?:open|chdir|stat).*(?:No such file|on restore)|No such file or directory",
        CriuFailed,
        "a file or folder that the process needs is not there",
    ),
    _row(Cause.IMAGE, r"[Mm]agic|[Uu]nexpected EOF|corrupt|unpack", CriuFailed, "its images are damaged"),
    _row(Cause.OVERDUE, r"Timeout reached|timed out", CriuFailed, "the tree did not hold still in time"),
)
"""In the order in which they are tried, on all lines of errors together."""


@attrs.frozen
class CriuFailure:
    """Why CRIU failed: for records, and for people."""

    cause: Cause
    error: type[OperationError]
    text: str

    def as_error(self) -> OperationError:
        """Return the error to raise."""
        return self.error(self.text)


def error_lines(log: str) -> tuple[str, ...]:
    """Return what a log's lines of errors say, without their times and places, in order and each once."""
    found: dict[str, None] = {}
    for line in log.splitlines():
        match = _ERROR.match(line.strip())
        said = match.group("text").strip() if match else ""
        if said and not said.startswith(HARMLESS):
            found.setdefault(said[:MAX_LINE_CHARS])
    return tuple(found)


def classify(log: str, said: str = "", *, doing: str) -> CriuFailure:
    """Say why CRIU failed.

    Args:
        log: Its log, or the end of it.
        said: What it answered, which is told if the log has no line of an error.
        doing: What it was doing, such as ``dump``; for people.
    """
    lines = error_lines(log)
    if not lines:
        lines = tuple(
            line.strip()[:MAX_LINE_CHARS]
            for line in said.splitlines()
            if line.strip() and not any(each in line for each in HARMLESS)
        )
    told = "; ".join(lines[:MAX_LINES]) or "it gave no reason"
    for row in CAUSES:
        if any(row.pattern.search(line) for line in lines):
            return CriuFailure(row.cause, row.error, f"CRIU could not {doing} the tree: {row.advice} ({told})")
    return CriuFailure(Cause.UNKNOWN, CriuFailed, f"CRIU could not {doing} the tree: {told}")
