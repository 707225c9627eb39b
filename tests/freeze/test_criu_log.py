"""What CRIU's log says of a failure, as a named error."""

import re

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import OperationError
from iriscw.cli.freezing import checkpoint, restore
from iriscw.freeze.criu_log import CAUSES, Cause, classify, error_lines
from iriscw.freeze.model import CriuFailed, CriuOptions, CriuUnfit, NoRoom, RightsMissing, TargetGone, TargetUnfit
from profiles import examples

LINES = [
    ("(00.1) Error (criu/tcp.c:1): tcp: Connected TCP socket, consider using --tcp-established option.", Cause.TCP),
    ("(00.1) Error (criu/pie/parasite.c:1): send_fds failed (-22)", Cause.IO_URING),
    ("(00.1) Error (criu/tty.c:1): tty: Found slave peer index 0 without correspond master peer", Cause.TERMINAL),
    (
        "(00.1) Error (criu/tty.c:1): tty: Found dangling tty with sid 1 pgid 1. Consider using --shell-job",
        Cause.TERMINAL,
    ),
    (
        "(00.1) Error (criu/sk-unix.c:1): unix: External socket is used. Consider using --ext-unix-sk option.",
        Cause.UNIX_SOCKET,
    ),
    (
        "(00.1) Error (criu/file-lock.c:1): Some file locks are hold by dumping tasks! You can try --file-locks",
        Cause.FILE_LOCKS,
    ),
    ("(00.1) Error (criu/bfd.c:1): bfd: Error flushing image: No space left on device", Cause.NO_ROOM),
    ("(00.1)  12: Error (criu/cr-restore.c:1): Can't fork for 12: File exists", Cause.PID_TAKEN),
    (
        "(00.1) 12: Error (criu/sk-inet.c:1): inet: Can't bind inet socket (id 34): Address already in use",
        Cause.ADDRESS_TAKEN,
    ),
    ("(00.1) Error (criu/cr-dump.c:1): Can't get rlimit 0: Operation not permitted", Cause.OTHER_USER),
    (
        "(00.1) Error (criu/cr-dump.c:1): Task 9 with SysVIPC shmem map @7fe419e86000 doesn't live in IPC ns",
        Cause.SHARED_MEMORY,
    ),
    ("(00.1) Error (criu/vdso.c:1): vdso: Unexpected rt vDSO area bounds", Cause.KERNEL),
    ("(00.1) Error (criu/kerndat.c:1): kerndat_vdso_fill_symtable failed when initializing kerndat.", Cause.KERNEL),
    (
        "Error (criu/crtools.c:1): CRIU needs to have the CAP_SYS_ADMIN or the CAP_CHECKPOINT_RESTORE capability: ",
        Cause.RIGHTS,
    ),
    ("(00.1) Error (criu/files-reg.c:1): File home/x has bad size 3 (expect 4)", Cause.FILE_CHANGED),
    ("(00.1) Error (compel/src/lib/infect.c:1): Unable to connect: No such process", Cause.GONE),
    ("(00.1) Error (criu/cr-dump.c:1): Timeout reached. Try to interrupt: 0", Cause.OVERDUE),
    (
        "(00.1) Error (criu/cr-dump.c:1): The root process 9 is not a session leader. Consider using --shell-job",
        Cause.SESSION,
    ),
    ("(00.1) Error (criu/seize.c:1): Zombies with threads are not supported", Cause.THREADS),
    ("(00.1) Error (compel/infect.c:1): Unseizable non-zombie 9 found, state D, err -1/4", Cause.NOT_STOPPING),
    ("(00.1) Error (criu/files.c:1): Can't lookup mount=15 for fd=3 path=/secretmem (deleted)", Cause.MOUNT),
    (
        "(00.1) Error (criu/namespaces.c:1): One or more namespaces doesn't belong to the target user namespace",
        Cause.NAMESPACE,
    ),
    ("(00.1) Error (criu/sockets.c:1): sockets: BUG! Unknown socket collected (family 40)", Cause.UNKNOWN_FILE),
    ("(00.1) Error (criu/pidfd.c:1): pidfd: pidfd pid 1 is not a part of process tree..", Cause.UNKNOWN_FILE),
    ("(00.1) Error (criu/cr-dump.c:1): Can't dump file 3 of that type [600] (anon)", Cause.UNKNOWN_FILE),
    ("(00.1) Error (criu/pipes.c:416): OOM storing pipe", Cause.PIPES),
    ("(00.1) Error (criu/pipes.c:1): The packetized mode for pipes is not supported yet", Cause.PACKETS),
    ("(00.1) Error (criu/timerfd.c:1): Unknown clock type 8 for 0", Cause.ALARM),
    ("(00.1) Error (criu/sk-inet.c:1): inet: Can't dump corked dgram socket c42f1", Cause.CORKED),
    (
        "(00.1) 9: Error (criu/timens.c:101): timens: Unable to set a monotonic clock offset: Operation not permitted",
        Cause.CLOCKS,
    ),
    (
        "(00.1) 9: Error (criu/timens.c:116): timens: Unable to set a boottime clock offset: Operation not permitted",
        Cause.CLOCKS,
    ),
    (
        "(00.1) Error (criu/files-reg.c:1031): Can't dump ghost file /tmp/x of 600000000 size, increase limit",
        Cause.UNLINKED,
    ),
    ("(00.1) pie: 12: Error (criu/pie/restorer.c:1): sys_prctl(PR_SET_MM) failed with -16", Cause.UNKNOWN),
]


@pytest.mark.parametrize(("line", "cause"), LINES)
def test_a_line_of_the_log_is_a_cause(line, cause) -> None:
    """Each is told in words of ours, with the line as CRIU wrote it."""
    log = f"(00.0) Some info\n{line}\n(00.2) Error (criu/cr-dump.c:1): Dumping FAILED.\n"
    found = classify(log, doing="freeze")
    assert found.cause is cause
    assert line.partition("): ")[2].strip()[:60] in found.text
    assert "FAILED" not in found.text


def test_causes_are_errors_of_the_port() -> None:
    """Each row raises one that says what is certain, and each cause but the last has a row."""
    allowed = (TargetUnfit, RightsMissing, CriuFailed, CriuUnfit, NoRoom, TargetGone)
    assert all(row.error in allowed for row in CAUSES)
    assert {row.cause for row in CAUSES} == set(Cause) - {Cause.UNKNOWN}
    assert isinstance(classify("", doing="freeze").as_error(), CriuFailed)


OPTIONS = {
    option
    for command in (checkpoint, restore)
    for parameter in command.params
    for option in (*parameter.opts, *parameter.secondary_opts)
}
FIELDS = [field.name for field in attrs.fields(CriuOptions)]


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.cause.value)
def test_advice_names_what_there_is(row) -> None:
    """An option that it names is one of the commands; a field of a request is none that anybody could give."""
    others = row.advice.replace("unshare --ipc", "").replace("`--loop asyncio`", "")
    named = re.findall(r"--[a-z-]+", others)
    assert {*named} <= OPTIONS
    assert not [field for field in FIELDS if field in row.advice]
    assert "allow" not in row.advice


def test_the_limit_of_pipes_is_told() -> None:
    """CRIU says that there is no memory; what there is too much of is pipes."""
    found = classify("(00.1) Error (criu/pipes.c:416): OOM storing pipe\n", doing="freeze")
    assert found.error is TargetUnfit
    assert "more than 1024 pipes" in found.text


def test_a_missing_right_to_set_clocks_is_named() -> None:
    """It is not the one that else is missing when something is not permitted."""
    log = "(00.1) Error (criu/timens.c:101): timens: Unable to set a monotonic clock offset: Operation not permitted\n"
    found = classify(log, doing="thaw")
    assert found.error is RightsMissing
    assert "CAP_SYS_TIME" in found.text
    assert "CAP_SYS_ADMIN" not in found.text


def test_a_helper_that_has_ended_is_not_the_process() -> None:
    """A CRIU that may trace nobody says that its own child is gone: that says nothing of the target."""
    lines = (
        "(00.1) Error (criu/kerndat.c:1): ptrace(PTRACE_TRACEME): Operation not permitted",
        "(00.1) Error (criu/kerndat.c:1): Failed to kill the child process: No such process",
    )
    assert classify("\n".join(lines), doing="freeze").cause is Cause.RIGHTS


def test_who_does_not_stop_has_not_ended() -> None:
    """CRIU gives up one in vfork in several lines, and in the last one nothing is there: it lives, and waits."""
    lines = (
        "(61) Error (criu/cr-dump.c:1): Timeout reached. Try to interrupt: 0",
        "(61) Error (compel/infect.c:1): Unseizable non-zombie 9 found, state D, err -1/4",
        "(61) Error (compel/infect.c:1): Unable to detach from 9: No such process",
    )
    assert classify("\n".join(lines), doing="freeze").cause is Cause.NOT_STOPPING


def test_what_is_harmless_is_no_reason() -> None:
    """A limit that could not be raised stands in each log of a user without that right."""
    log = "(00.1) Error (criu/util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
    assert error_lines(log) == ()
    assert classify(log, "the answer", doing="thaw").text.endswith("the answer")
    assert classify(log, doing="thaw").cause is Cause.UNKNOWN


@examples(25)
@given(st.text(max_size=1000), st.text(max_size=200))
def test_whatever_the_log_holds_it_is_an_error_of_bounded_length(log, said) -> None:
    """A log of a stranger's making neither breaks nor floods the text."""
    found = classify(log, said, doing="freeze")
    assert isinstance(found.as_error(), OperationError)
    assert len(found.text) < 2000
