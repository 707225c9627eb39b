"""The program above each command in a pod, as a process of this machine: what ends a command, and all of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iriscw.cloud.drivers.kube import attendant
from iriscw.cloud.drivers.kube.attendant import KILL, NOT_STARTED_CODE, descendants
from iriscw.cloud.drivers.kube.exec import BOOTSTRAP, SOURCE

MARK = "mark:"
END_S = 20
FAMILY = "sleep 600 & echo $!; setsid sleep 600 & echo $!; (setsid sleep 600 & echo $!) & wait"
"""A child, one in a session of its own, and one whose parent has ended."""


def sent(argv, **more):
    """Return what an attendant is sent to run a command."""
    order = {"argv": argv, "environment": {}, "timeout_s": 0, "lease_s": 0, **more}
    data = json.dumps(order).encode()
    return SOURCE + b"%08d" % len(data) + data


@contextlib.contextmanager
def attended(data):
    """An attendant for the length of a block, told ``data``."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP, MARK, str(len(SOURCE))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    with process:
        try:
            process.stdin.write(data)
            yield process
        finally:
            process.kill()


def outcome(process):
    """Wait for an attendant's end, its lifeline open, and give its code and the little that was said."""
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(END_S), out, err


def pids(process, count=3):
    """Read the processes that a command tells."""
    return [int(process.stdout.readline()) for _ in range(count)]


def assert_gone(numbers):
    """All of them have ended, or end now: a zombie may wait for its parent to look."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        if not any(map(is_alive, numbers)):
            return
        time.sleep(0.01)
    raise AssertionError(f"of {numbers} some are alive")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_code_and_outputs_are_the_commands():
    """The mark comes first on standard error; the lifeline's bytes are not the command's input."""
    with attended(sent(["sh", "-c", "cat; echo out; echo err >&2; exit 7"]) + b"..") as process:
        assert outcome(process) == (7, b"out\n", b"mark:err\n")


def test_a_signals_code_is_the_shells():
    """128 and its number."""
    with attended(sent(["sh", "-c", "kill -TERM $$"])) as process:
        assert outcome(process)[0] == 128 + signal.SIGTERM


def test_a_commands_process_group_is_its_own():
    """What it sends to its group does not end whoever attends it."""
    with attended(sent(["sh", "-c", "kill -TERM 0"])) as process:
        assert outcome(process)[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["no-such-program"], b"No such file or directory"),
        (["/etc/passwd"], b"Permission denied"),
        (["/"], b"Permission denied"),
        (["true", "x" * 200_000], b"Argument list too long"),
    ],
)
def test_what_cannot_start_is_told_behind_the_mark(argv, reason):
    """With the system's own words, and a code."""
    with attended(sent(argv)) as process:
        assert outcome(process) == (NOT_STARTED_CODE, b"", b"mark:mark:" + reason)


def test_words_and_variables_are_bytes():
    """Whatever they are, and whatever the locale."""
    words = ["ä€", "\udcff", "", " ", "$X", "\n"]
    with attended(sent(["sh", "-c", 'printf "%s|" "$@" "$X"', "sh", *words], environment={"X": "ö\udcfe"})) as process:
        assert outcome(process)[1] == "ä€||||".encode().replace(b"||||", b"|\xff|| |$X|\n|") + "ö".encode() + b"\xfe|"


def test_the_containers_variables_are_there():
    """Added to, and overridden."""
    os.environ["IRISCW_TEST_KEPT"] = os.environ["IRISCW_TEST_OTHER"] = "old"
    try:
        script = "echo $IRISCW_TEST_KEPT $IRISCW_TEST_OTHER"
        with attended(sent(["sh", "-c", script], environment={"IRISCW_TEST_OTHER": "new"})) as process:
            assert outcome(process)[1] == b"old new\n"
    finally:
        del os.environ["IRISCW_TEST_KEPT"], os.environ["IRISCW_TEST_OTHER"]


@pytest.mark.parametrize("how", ["end of input", "kill", "deadline", "lease"])
def test_what_ends_a_command_ends_all_it_started(how):
    """Children that left its session, and such whose parents have gone, too."""
    more = {"deadline": {"timeout_s": 0.5}, "lease": {"lease_s": 0.5}}.get(how, {})
    with attended(sent(["sh", "-c", FAMILY], **more)) as process:
        family = pids(process)
        assert len({*family, *descendants(process.pid)}) >= 4
        if how == "end of input":
            process.stdin.close()
        elif how == "kill":
            process.stdin.write(b"." + KILL)
        assert process.wait(END_S) == 128 + signal.SIGKILL
        assert_gone(family)


def test_what_a_command_leaves_behind_goes_with_it():
    """Its code is kept."""
    with attended(sent(["sh", "-c", "setsid sleep 600 & echo $!; exit 4"])) as process:
        left = pids(process, 1)
        assert process.wait(END_S) == 4
        assert_gone(left)


def test_the_commands_errors_block_as_they_would():
    """A command that writes more than a pipe holds waits; none of it is lost."""
    script = "import os;os.set_blocking(2, os.get_blocking(2));os.write(2, bytes(1_000_000))"
    with attended(sent([sys.executable, "-c", script])) as process:
        assert process.stderr.read() == MARK.encode() + bytes(1_000_000)
        assert process.wait(END_S) == 0


def test_a_lease_is_renewed():
    """By any byte."""
    with attended(sent(["sh", "-c", "sleep 1.2; echo done"], lease_s=0.6)) as process:
        for _ in range(5):
            time.sleep(0.2)
            process.stdin.write(b".")
        assert outcome(process)[:2] == (0, b"done\n")


def test_a_killed_attendant_takes_the_command_with_it():
    """The command itself: nobody is left to end what it started."""
    with attended(sent(["sh", "-c", "echo $$; exec sleep 600"])) as process:
        command = pids(process, 1)
        process.kill()
        assert_gone(command)


@pytest.mark.parametrize("part", [0, 100, len(SOURCE), len(SOURCE) + 4, -1])
def test_a_part_of_an_order_runs_nothing(part, tmp_path):
    """Whatever the part: a connection may break anywhere."""
    told = sent(["touch", str(tmp_path / "ran")])
    with attended(told[:part]) as process:
        process.stdin.close()
        assert process.wait(END_S) == NOT_STARTED_CODE
    assert not [*tmp_path.iterdir()]


def test_descendants_come_before_their_own():
    """And nobody else is among them."""
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 600 & echo $!; wait' & wait"], stdout=subprocess.PIPE) as shell:
        sleeping = int(shell.stdout.readline())
        found = descendants(shell.pid)
        assert found[-1] == sleeping
        assert len(found) == 2
        assert shell.pid in descendants(os.getpid())
        for each in [*found, shell.pid]:
            os.kill(each, signal.SIGKILL)


def test_the_source_needs_nothing_but_an_interpreter():
    """It imports the standard library only, and is sent as it is here."""
    names = [line.split()[1] for line in SOURCE.decode().splitlines() if line.startswith(("import ", "from "))]
    assert all(name in sys.stdlib_module_names for name in names)
    assert SOURCE.decode() == Path(attendant.__file__).read_text()
