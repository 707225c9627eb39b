"""``--shell-job``: programs of a real shell, frozen from outside, come back in front of another shell or the same."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for terminals
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from real_trees import MAIN, PATIENCE_S, Command, why_not
from terminals import PROMPT, Terminal

from iriscw.processes.identity import ProcessGone, read_stat
from waiting import block_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]

LISTENING = """
import os, signal, sys, time
for each in (1, 2, 3, 15, 18, 20, 21, 22):
    signal.signal(each, lambda number, frame: log.write(signal.Signals(number).name + " "))
log = open(sys.argv[1] + "/signals", "a", 1)
open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
while True:
    time.sleep(0.02)
    log.flush()
"""
"""Writes down the signals that a terminal sends, and does not end of any."""

SEVERAL = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
group = [os.getpid()]
for _ in range(3):
    child = os.fork()
    if not child:
        break
    group.append(child)
else:
    open(sys.argv[1] + "/group", "w").write(" ".join(map(str, group)))
    open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
while True:
    time.sleep(1)
"""

READING = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
    if line == "rest\\n":
        time.sleep(1 << 20)
"""

LEADING = """
import subprocess, sys
group, *command = sys.argv[1:]
subprocess.run(command, process_group=None if group == "None" else int(group))
"""
"""Leads the session of a program, in the group that it is told, until that has ended."""


@pytest.fixture
def command(tmp_path):
    """The command line."""
    if why_not():
        pytest.skip(why_not())
    return Command(tmp_path)


@pytest.fixture
def terminal(command, tmp_path):
    """Yield a function that opens a terminal with a shell, or with another program; all of it is ended afterwards."""
    opened = []
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "iriscw").write_text(f"#!{sys.executable}\n{MAIN}\n")
    (programs / "iriscw").chmod(0o755)
    environment = {**command.environment, "PATH": f"{programs}:{os.environ['PATH']}"}

    def open_one(*argv, **words):
        opened.append(Terminal(environment, *argv, **words))
        return opened[-1]

    yield open_one
    for each in opened:
        each.end()


@pytest.fixture
def program(tmp_path):
    """Yield a function that writes a program, and gives its command line; who it became is killed afterwards."""

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return f"{sys.executable} -I -S {path} {tmp_path}"

    yield write
    for name in ("pid", "group"):
        for pid in (tmp_path / name).read_text().split() if (tmp_path / name).exists() else ():
            if runs(int(pid)) and b"program.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)


def runs(pid):
    """Whether there is such a process, and it has not ended."""
    try:
        return not read_stat(pid).ended
    except ProcessGone:
        return False


def state(pid):
    """Return the state of a process, as ``ps`` does."""
    return read_stat(pid).state


def started(folder):
    """Wait until a program has said who it is."""
    block_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "it runs")
    return int((folder / "pid").read_text())


def freeze(command, pid, *more):
    """Freeze it from outside, and give the checkpoint."""
    code, out, err = command("checkpoint", "--pid", str(pid), "--shell-job", "--tier", "disk", "-o", "json", *more)
    assert code == 0, err
    return json.loads(out)["checkpoint"]


def python(shell):
    """Start Python's prompt in a shell, and give its process."""
    shell.type(f"{sys.executable} -I -S -q -i\r")
    shell.until(">>> ")
    shell.type("import os; state = 41; print('pid', os.getpid())\r")
    said = shell.until(r"pid (\d+)\r(?s:.*)>>> ")
    return int(re.search(r"pid (\d+)\r", said)[1])


def test_python_goes_on_in_another_terminal(command, terminal):
    """It answers what is typed, with its state; Ctrl-Z, fg and Ctrl-C work, and its exit code is the command's."""
    old = terminal(rows=40, columns=120)
    checkpoint = freeze(command, python(old))
    old.until(PROMPT)
    shell = terminal(rows=25, columns=90)
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in")
    shell.type("print(state + 1, os.get_terminal_size(0))\r")
    shell.until(r"42 os.terminal_size\(columns=90, lines=25\)")
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    assert shell.cooked()
    shell.fg()
    shell.type("state + 2\r")
    shell.until(r"\b43\r(?s:.*)>>> ")
    shell.type("\x03\r")  # Python may miss the signal where it begins to read, and hears of it with the next key
    shell.until("KeyboardInterrupt(?s:.*)>>> ")
    shell.type("os._exit(7)\r")
    shell.until(PROMPT)
    assert "\n7\r" in shell.run("echo $?")
    assert shell.cooked()


def test_one_from_the_background_comes_back_in_front(command, terminal, tmp_path, program):
    """Its shell's modes, which the terminal had then, do not come back with it; bg and fg do what they do."""
    shell = terminal()
    shell.run(f"{program(SEVERAL)} &")
    pid = started(tmp_path)
    checkpoint = freeze(command, pid)
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in")
    group = [int(each) for each in (tmp_path / "group").read_text().split()]
    assert [read_stat(each).group_id for each in group] == [pid] * 4
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    assert [state(each) for each in group] == ["T"] * 4
    shell.run("bg")
    block_until(lambda: "T" not in [state(each) for each in group], "all of it goes on")
    assert shell.cooked()
    shell.fg()
    shell.type("\x03")
    shell.until(PROMPT)
    assert "\n130\r" in shell.run("echo $?")
    block_until(lambda: not any(map(runs, group)), "all of it has heard Ctrl-C")


def test_who_reads_in_the_background_waits_for_the_terminal(command, terminal, tmp_path, program):
    """The shell says so, and gives it with fg: before it reads, and while it does not."""
    shell = terminal()
    shell.type(f"{program(READING)}\r")
    pid = started(tmp_path)
    checkpoint = freeze(command, pid)
    shell.until(PROMPT)
    shell.type(f"iriscw restore {checkpoint} -o json\r")
    shell.until('"outcome"')
    shell.type("one\r")
    shell.until("ONE")
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    shell.run("bg")
    block_until(lambda: state(read_stat(pid).parent_pid) == "T", "it wants to read, and the command waits with it")
    assert "Stopped" in shell.run("jobs")
    shell.fg()
    shell.type("two\r")
    shell.until("TWO")
    shell.type("rest\r")
    shell.until("REST")
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    shell.run("bg")
    shell.fg()  # the shell gives the terminal to who runs already, and tells nobody
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    assert state(pid) == "T"
    shell.fg()
    shell.type("\x03")
    shell.until(PROMPT)
    assert "\n130\r" in shell.run("echo $?")


@pytest.mark.parametrize("group", [None, 0], ids=["its parent's group", "a group of its own"])
def test_nothing_of_what_came_back_is_told_to_hang_up(command, terminal, tmp_path, program, group):
    """A program without a session of its own hears that it goes on, and nothing else; signals are passed on to it."""
    leader = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LEADING, str(group), *program(LISTENING).split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pid = started(tmp_path)
    checkpoint = freeze(command, pid)
    leader.wait(PATIENCE_S)
    shell = terminal()
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in")
    signals = tmp_path / "signals"
    block_until(signals.read_text, "it has heard something")
    above = read_stat(pid).parent_pid
    os.kill(above, signal.SIGTERM)
    block_until(lambda: "SIGTERM" in signals.read_text(), "the command passes it on")
    shell.type("\x03")
    block_until(lambda: "SIGINT" in signals.read_text(), "the terminal sends it")
    assert signals.read_text() == "SIGCONT SIGTERM SIGINT "
    assert read_stat(pid).session_id == shell.process.pid
    shell.close()
    block_until(lambda: "SIGHUP" in signals.read_text(), "it is hung up")
    assert runs(pid)
    assert read_stat(pid).parent_pid == above
    os.kill(pid, signal.SIGKILL)
    block_until(lambda: not runs(above), "the command has nothing left to wait for")


def test_a_command_that_is_killed_leaves_the_program_to_itself(command, terminal, tmp_path, program):
    """It runs on in the background of the terminal, as a job does whose shell was killed; nothing takes it up."""
    shell = terminal()
    shell.run(f"{program(LISTENING)} &")
    pid = started(tmp_path)
    checkpoint = freeze(command, pid)
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in")
    above = read_stat(pid).parent_pid
    os.kill(above, signal.SIGKILL)
    shell.until("Killed(?s:.*)" + PROMPT)
    assert read_stat(pid).parent_pid != above
    code, _, err = command("checkpoints")
    assert (code, "took up" in err) == (0, False)
    assert state(pid) in "SR"
    assert "SIGHUP" not in (tmp_path / "signals").read_text()


def test_json_comes_before_the_program_ends(command, terminal, tmp_path, program):
    """It is all that is said on standard output, and a program that reads it need not wait."""
    shell = terminal()
    shell.run(f"{program(SEVERAL)} &")
    pid = started(tmp_path)
    checkpoint = freeze(command, pid)
    shell.type(f"iriscw restore {checkpoint} -o json >{tmp_path}/said\r")
    block_until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text().endswith("}\n"), "it is said")
    done = json.loads((tmp_path / "said").read_text())
    assert (done["outcome"], done["pid"], done["processes"]) == ("thawed", pid, 4)
    assert runs(pid)
    os.kill(pid, signal.SIGTERM)
    shell.until(PROMPT)
    assert "\n143\r" in shell.run("echo $?")


def test_without_a_shell_it_cannot_be_stopped(command, terminal):
    """Where the command leads the session nobody could have it go on: Ctrl-Z is nothing there, the exit code is."""
    old = terminal()
    pid = python(old)
    checkpoint = freeze(command, pid)
    old.end()
    only = terminal("iriscw", "restore", checkpoint)
    only.until("thawed in")
    only.type("\x1a")
    only.type("state + 4\r")
    only.until(r"\b45\r")
    only.type("os._exit(9)\r")
    assert only.process.wait(PATIENCE_S) == 9


def test_what_is_refused_is_as_it_was(command, terminal, tmp_path, program):
    """Without a terminal, in the background, with pages to come or other numbers; in front of a terminal it thaws."""
    shell = terminal()
    shell.run(f"{program(SEVERAL)} &")
    checkpoint = freeze(command, started(tmp_path))
    code, err = command.apart("restore", checkpoint)
    assert (code, "GateRefused: terminal: it comes back in the terminal of" in err) == (3, True), err
    shell.type(f"iriscw restore {checkpoint} </dev/null\r")
    shell.until("GateRefused: terminal(?s:.*)" + PROMPT)
    shell.type(f"iriscw restore {checkpoint} &\r")
    shell.until("GateRefused: terminal")
    for option, way_out in (("--lazy", "without --lazy"), ("--pids auto", "without --pids")):
        shell.type(f"iriscw restore {checkpoint} {option}\r")
        shell.until(f"GateRefused: terminal(?s:.*){way_out}")
    shell.type(f"\ririscw restore {checkpoint}\r")
    shell.until("thawed in")
    shell.type("\x03")
    shell.until(PROMPT)


def test_who_opened_its_terminal_by_name_is_not_frozen(command, terminal):
    """It would come back on whatever terminal has the number by then. It runs on."""
    shell = terminal()
    pid = python(shell)
    shell.type("again = os.open(os.ttyname(0), os.O_RDWR)\r")
    shell.until(">>> ")
    code, _, err = command("checkpoint", "--pid", str(pid), "--shell-job", "--tier", "disk")
    assert (code, "TargetUnfit: it has opened its terminal" in err) == (3, True), err
    shell.type("os.close(again); state + 5\r")
    shell.until(r"\b46\r")
    freeze(command, pid)


def test_a_death_signal_is_the_commands(command, terminal):
    """Who asked to be told of its parent's end is told of that of the command, and of nothing before."""
    shell = terminal()
    pid = python(shell)
    shell.type("import ctypes; ctypes.CDLL(None).prctl(1, 15)\r")
    shell.until(r"\b0\r(?s:.*)>>> ")
    checkpoint = freeze(command, pid)
    shell.until(PROMPT)
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in")
    shell.type("state + 6\r")
    shell.until(r"\b47\r")
    os.kill(read_stat(pid).parent_pid, signal.SIGKILL)
    block_until(lambda: not runs(pid), "it was told")


@pytest.mark.skipif(shutil.which("vim") is None, reason="there is no vim")
def test_an_editor_draws_its_screen_anew(command, terminal, tmp_path):
    """It has its modes and the size of the terminal that is there now; when it stops the shell has its own."""
    old = terminal()
    old.type(f"vim -u NONE -N {tmp_path}/text\r")
    old.until("~")
    old.type("ihello\x1b")
    vim = next(pid for pid in map(int, numbers()) if child_of(pid, old.process.pid))
    checkpoint = freeze(command, vim)
    old.end()
    shell = terminal()
    shell.type(f"iriscw restore {checkpoint}\r")
    shell.until("thawed in(?s:.*)hello")
    shell.type("A world\x1b:w\r")
    shell.until("written")
    assert (tmp_path / "text").read_text() == "hello world\n"
    shell.type("\x1a")
    shell.until(r"Stopped(?s:.*)" + PROMPT)
    assert shell.cooked()
    shell.type("fg\r")
    shell.until("hello")
    shell.type(":q\r")
    shell.until(PROMPT)
    assert "\n0\r" in shell.run("echo $?")
    assert shell.cooked()


def numbers():
    """Return the numbers of all processes."""
    return [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]


def child_of(pid, parent):
    """Whether a process is the child of another one."""
    try:
        return read_stat(pid).parent_pid == parent
    except ProcessGone:
        return False
