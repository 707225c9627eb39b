"""The program that runs a command beside an attempt, as a process of this machine."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from iriscw.processes import entering

SOURCE = Path(entering.__file__).read_text(encoding="utf-8")
MARK = "\x1emark:"
PATH = {"PATH": os.environ["PATH"]}
PATIENCE_S = 30


@pytest.fixture
def uid():
    """An attempt's uid of this test's own."""
    return uuid.uuid4().hex


@contextmanager
def program(folder, uid, **variables):
    """A process that was started with these variables."""
    environment = {**PATH, "IRIS_ATTEMPT_UID": uid, **variables}
    with subprocess.Popen(["sleep", "600"], cwd=folder, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def entered(uid, *command, **variables):
    """Run a command beside an attempt, and let it say what it likes."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SOURCE, MARK, uid, *command],
        env={"FOREIGN": "x", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    """Wait for its end; give its code and its outputs."""
    said = process.communicate(timeout=PATIENCE_S)
    return (process.returncode, *said)


def test_a_command_has_what_the_program_has(tmp_path, uid):
    """Its variables, none of the caller's, where it is; and an empty input."""
    script = 'cat; pwd; env | grep -c FOREIGN; echo "$X"; echo err >&2; exit 3'
    with program(tmp_path, uid, IRIS_TASK_ID="t", X="a\nb"):
        assert outcome(entered(uid, "sh", "-c", script)) == (3, f"{tmp_path}\n0\na\nb\n", "err\n")
        assert outcome(entered(uid, "sh", "-c", "kill -TERM $$"))[0] == 128 + signal.SIGTERM


def test_the_program_is_the_oldest_that_is_a_task(tmp_path, uid):
    """Not its supervisor, which has the mark alone, nor what it has started since."""
    (tmp_path / "started").mkdir()
    with ExitStack() as stack:
        stack.enter_context(program(tmp_path, uid, WHO="supervisor"))
        stack.enter_context(program(tmp_path, uid, IRIS_TASK_ID="t", WHO="program"))
        younger = program(tmp_path / "started", uid, IRIS_TASK_ID="t", WHO="started")
        stack.enter_context(younger)
        assert outcome(entered(uid, "printenv", "WHO")) == (0, "program\n", "")


def test_without_an_attempt_nothing_runs(tmp_path, uid):
    """Not even where its supervisor is."""
    with program(tmp_path, uid):
        code, out, err = outcome(entered(uid, "touch", str(tmp_path / "ran")))
    assert (code, out, err) == (entering.NO_COMMAND_CODE, "", f"{MARK}{entering.ABSENT} ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [("no-such-program", "No such file or directory"), ("/etc/passwd", "Permission denied")],
)
def test_what_cannot_run_is_told(tmp_path, uid, command, reason):
    """With the system's own words; the program's PATH counts."""
    with program(tmp_path, uid, IRIS_TASK_ID="t"):
        told = outcome(entered(uid, command))
    assert told == (entering.NO_COMMAND_CODE, "", f"{MARK}{entering.REFUSED} {reason}")


def test_it_ends_with_the_program(tmp_path, uid):
    """And says so; who attends it ends the command."""
    with program(tmp_path, uid, IRIS_TASK_ID="t") as running:
        process = entered(uid, "sh", "-c", "echo $$; exec sleep 600")
        command = int(process.stdout.readline())
        running.kill()
        try:
            assert os.read(process.stderr.fileno(), 4096).decode() == f"{MARK}{entering.ENDED} "
            assert process.wait(PATIENCE_S) == entering.NO_COMMAND_CODE
        finally:
            with contextlib.suppress(ProcessLookupError):  # it ends with who runs it
                os.kill(command, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize(("end", "told"), [("kill -KILL $$", True), ("exit 3", False)])
def test_who_is_killed_after_the_program_ends_with_it(tmp_path, uid, end, told):
    """Whoever clears up after an attempt may kill the command before its end is seen here; what ends by itself has."""
    os.mkfifo(tmp_path / "fifo")
    with program(tmp_path, uid, IRIS_TASK_ID="t") as running:
        process = entered(uid, "sh", "-c", f"echo $$; read line < fifo; {end}")
        command = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGSTOP)  # it sees both ends at once
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until then it may still see the first end alone
        running.kill()
        running.wait()
        (tmp_path / "fifo").write_text("\n", encoding="utf-8")
        assert select.select([command], [], [], PATIENCE_S)[0]
        os.close(command)
        process.send_signal(signal.SIGCONT)
        code, _, err = outcome(process)
    assert (code, err) == ((entering.NO_COMMAND_CODE, f"{MARK}{entering.ENDED} ") if told else (3, ""))


def test_who_is_killed_before_the_program_ends_with_it(tmp_path, uid):
    """Whoever ends an attempt kills both, in any order; a large program takes longer to be gone."""
    with program(tmp_path, uid, IRIS_TASK_ID="t") as running:
        process = entered(uid, "sh", "-c", "echo $$; exec sleep 600")
        number = int(process.stdout.readline())
        command = os.pidfd_open(number)
        os.kill(number, signal.SIGKILL)
        assert select.select([command], [], [], PATIENCE_S)[0]
        os.close(command)
        while Path(f"/proc/{number}").exists():  # until its end was seen there
            os.sched_yield()
        running.kill()
        code, _, err = outcome(process)
    assert (code, err) == (entering.NO_COMMAND_CODE, f"{MARK}{entering.ENDED} ")


def test_a_command_does_not_outlive_who_runs_it(tmp_path, uid):
    """Killed with it, and marked as it is, so that what it started is found; nothing else of it is passed on."""
    with program(tmp_path, uid, IRIS_TASK_ID="t"):
        process = entered(uid, "sh", "-c", "echo $$ $IRISCW_POD_UID $FOREIGN; exec sleep 600", IRISCW_POD_UID="p1")
        assert process.stdout.readline().split()[1:] == ["p1"]
        process.kill()
        assert process.communicate(timeout=PATIENCE_S) == ("", ""), "its outputs have ended, so it has"


def test_a_list_of_processes_does_not_show_its_source(tmp_path, uid):
    """But one line, and the command's words once; and the command has no file of it open."""
    with program(tmp_path, uid, IRIS_TASK_ID="t"):
        script = "tr '\\0' ' ' < /proc/$PPID/cmdline; echo; ls -l /proc/$$/fd | grep -c memfd"
        line, opened, _ = outcome(entered(uid, "sh", "-c", script))[1].split("\n")
    assert len(line) < 300
    assert "import" not in line
    assert opened == "0"
