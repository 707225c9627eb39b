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

from iriscw.errors import OperationError
from iriscw.freeze.model import CriuFailed, CriuUnfit, NoRoom, RightsMissing, TargetGone, TargetUnfit

MAX_LINES: Final = 4
"""Of the log in an error's text: the first failure and what followed from it."""

MAX_LINE_CHARS: Final = 300

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
    KERNEL = "kernel"
    FILE_CHANGED = "file_changed"
    FILE_MISSING = "file_missing"
    IMAGE = "image"
    OVERDUE = "overdue"
    UNKNOWN = "unknown"


@attrs.frozen
class Row:
    """One line of the table: what the log says, what it means, and what people can do."""

    cause: Cause
    pattern: re.Pattern[str]
    error: type[OperationError]
    advice: str


def _row(cause: Cause, pattern: str, error: type[OperationError], advice: str) -> Row:
    return Row(cause, re.compile(pattern), error, advice)


CAUSES: Final = (
    _row(Cause.NO_ROOM, r"No space left on device|Disk quota exceeded", NoRoom, "the disk of the images is full"),
    _row(Cause.NO_MEMORY, r"Cannot allocate memory|Out of memory", NoRoom, "the machine has too little memory"),
    _row(Cause.IO_URING, r"io_uring|send_fds failed \(-22\)", TargetUnfit, "it holds an io_uring"),
    _row(
        Cause.TCP,
        r"Connected TCP socket|tcp-established",
        TargetUnfit,
        "it has an established TCP connection: allow it",
    ),
    _row(
        Cause.SESSION,
        r"not a session leader|[Ss]ession leader .*outside",  # above terminals: for it, too, CRIU names --shell-job
        TargetUnfit,
        "its first process must lead a session of its own: start it with setsid, or allow a shell job",
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
        "it has a terminal: start it without one (setsid, standard input not a terminal), or allow a shell job",
    ),
    _row(
        Cause.UNIX_SOCKET,
        r"ext-unix-sk|External socket is used|unix: .*(?:not supported|[Cc]an't dump half of stream)",
        TargetUnfit,
        "it has a Unix socket whose other end is outside of its tree",
    ),
    _row(Cause.FILE_LOCKS, r"file-locks|file locks? (?:is|are) hold", TargetUnfit, "it holds file locks: allow them"),
    _row(
        Cause.LINK_LEFT, r"link_remap.*(?:exists|EEXIST)", CriuFailed, "a file link_remap.N of an earlier dump is left"
    ),
    _row(
        Cause.UNLINKED,
        r"link-remap|[Gg]host file.*(?:too big|limit)|ghost-limit",
        TargetUnfit,
        "it has a removed file open that is too large or was given a new name: raise ghost_limit_bytes",
    ),
    _row(
        Cause.DEVICE,
        r"Can't (?:dump|lookup) .*(?:device|chr|blk)",
        TargetUnfit,
        "it holds a device",
    ),
    _row(
        Cause.TRACED,
        r"is already traced|ptraced|[Ss]eize.*Operation not permitted|tracer",
        TargetUnfit,
        "it is being traced",
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
        "it has a file open that CRIU cannot dump",
    ),
    _row(
        Cause.PID_TAKEN,
        r"Can't fork for \d+: File exists|Pid \d+ (?:do not|does not) match expected|PID mismatch",
        CriuFailed,
        "a process or a zombie has one of its numbers: wait for it, or take a new PID namespace",
    ),
    _row(
        Cause.ADDRESS_TAKEN,
        r"Can't bind inet socket.*Address already in use",
        CriuFailed,
        "somebody has its port, or it closed connections there just now and may not share it: wait a minute",
    ),
    _row(Cause.GONE, r"No such process|No process with pid", TargetGone, "the process has ended"),
    _row(
        Cause.KERNEL,
        r"vDSO area bounds|kerndat_init",
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
class Failure:
    """Why CRIU failed: for records, and for people."""

    cause: Cause
    error: type[OperationError]
    text: str

    def as_error(self) -> OperationError:
        """Give the error to raise."""
        return self.error(self.text)


def error_lines(log: str) -> tuple[str, ...]:
    """Give what a log's lines of errors say, without their times and places, in order and each once."""
    found: dict[str, None] = {}
    for line in log.splitlines():
        match = _ERROR.match(line.strip())
        said = match.group("text").strip() if match else ""
        if said and not said.startswith(HARMLESS):
            found.setdefault(said[:MAX_LINE_CHARS])
    return tuple(found)


def classify(log: str, said: str = "", *, doing: str) -> Failure:
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
            return Failure(row.cause, row.error, f"CRIU could not {doing} the tree: {row.advice} ({told})")
    return Failure(Cause.UNKNOWN, CriuFailed, f"CRIU could not {doing} the tree: {told}")
