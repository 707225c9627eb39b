"""``iriscw freezable``: the command that becomes a program which can be frozen."""

import errno
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

IRISCW = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
PATIENCE_S = 60

SEEN = """
import ctypes, json, os, sys
library = ctypes.CDLL(None, use_errno=True)
made = library.syscall(425, 0, None)
try:
    os.close(os.open("/dev/tty", os.O_RDONLY))
    terminal = True
except OSError:
    terminal = False
print(json.dumps({
    "pid": os.getpid(), "session": os.getsid(0), "io_uring": made and ctypes.get_errno(), "terminal": terminal,
    "input": os.readlink("/proc/self/fd/0"), "output": os.readlink("/proc/self/fd/1"),
    "words": sys.argv[1:],
}))
"""
PROGRAM = [sys.executable, "-c", SEEN]

SHELL = """
import fcntl, os, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
with open(sys.argv[1], "w") as output:
    job = subprocess.Popen(sys.argv[2:], stdout=output, process_group=0)
print(job.pid, job.wait(), flush=True)
"""
"""What an interactive shell does: it has a terminal, and each of its jobs leads a group of its own."""

AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
WHEN_TOLD = "import os, sys; sys.stdin.readline(); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def terminal():
    """A terminal of nobody's: the end that programs get."""
    ours, theirs = pty.openpty()
    yield theirs
    os.close(ours)
    os.close(theirs)


def run(*words, **changes):
    """Run the command in this session; give its number, and what came of it."""
    asked = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*IRISCW, "freezable", *words], **asked | changes) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.pid, process.returncode, out, err


def test_it_becomes_the_program():
    """The same process, in a session of its own, without io_uring; words, input, output and signals are as given."""
    pid, code, out, err = run("--", *PROGRAM, "--verbose", "--", "x")
    assert (code, err) == (0, "")
    seen = json.loads(out)
    assert seen.pop("output").startswith("pipe:")
    assert seen == {
        "pid": pid, "session": pid, "io_uring": errno.ENOSYS, "terminal": False, "input": "/dev/null",
        "words": ["--verbose", "--", "x"],
    }  # fmt: skip
    ignored = int(run("--", "grep", "SigIgn", "/proc/self/status")[2].split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_a_job_of_an_interactive_shell(tmp_path, terminal):
    """Its number is the one that the shell knows, and neither its input nor its session has the terminal any more."""
    output = tmp_path / "output"
    words = [sys.executable, "-c", SHELL, str(output), *IRISCW, "freezable", "--", *PROGRAM]
    done = subprocess.run(
        words, stdin=terminal, capture_output=True, start_new_session=True, timeout=PATIENCE_S, check=True
    )
    pid, code = map(int, done.stdout.split())
    assert (code, done.stderr) == (0, b"")
    seen = json.loads(output.read_text())
    assert (seen["pid"], seen["session"], seen["terminal"]) == (pid, pid, False)
    assert (seen["input"], seen["output"]) == ("/dev/null", str(output))


def test_an_output_that_is_a_terminal_is_told_of(terminal):
    """It stays one, and a freeze would be refused for it."""
    _, code, out, err = run("--", "true", stderr=subprocess.PIPE, stdout=terminal)
    assert (code, out) == (0, None)
    assert "cannot be frozen" in err


def test_a_session_of_its_own_is_needed(terminal):
    """Where the kernel does not give one, it says so, and the program does not begin."""
    words = [*IRISCW, "freezable", "--", *PROGRAM]
    leads = subprocess.run(
        [sys.executable, "-c", AT_TERMINAL, *words],
        stdin=terminal, capture_output=True, start_new_session=True, timeout=PATIENCE_S, check=False, text=True,
    )  # fmt: skip
    assert (leads.returncode, leads.stdout) == (3, "")
    assert "NoSession" in leads.stderr
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", WHEN_TOLD, *words], process_group=0, **pipes) as first,
        subprocess.Popen(["cat"], process_group=first.pid, **pipes) as second,  # of the same pipe
    ):
        out, err = first.communicate("go\n", timeout=PATIENCE_S)
        second.communicate(timeout=PATIENCE_S)
    assert (first.returncode, out) == (3, "")
    assert "put `setsid` in front" in err


def test_a_program_that_is_none():
    """A name that nobody has, and a file that cannot be executed: named, and told apart."""
    assert run("--", "no-such-program")[1:3] == (3, "")
    assert "MissingBinary: there is no program 'no-such-program'" in run("--", "no-such-program")[3]
    assert "BinaryRefused" in run("--", __file__)[3]


def test_there_is_something_to_become(iriscw):
    """Without a command there is nothing to do."""
    code, _, err = iriscw("freezable")
    assert (code, "Missing argument" in err) == (2, True)
