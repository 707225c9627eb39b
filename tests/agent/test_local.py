"""``iriscw checkpoint``, ``restore`` and ``checkpoints`` on real processes with the real CRIU, and no daemon."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_trees
sys.path.insert(0, str(Path(__file__).parents[1] / "freeze" / "drivers" / "criu"))  # for number_taker

from number_taker import taken
from real_trees import PATIENCE_S, Command, Counting, why_not

from iriscw.freeze.drivers.criu import ability
from waiting import block_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def criu():
    """Skip where nothing can be frozen, and say why."""
    if why_not():
        pytest.skip(why_not())


@pytest.fixture
def command(tmp_path, criu):
    """The command line."""
    return Command(tmp_path)


@pytest.fixture
def counting(tmp_path):
    """A function that starts a tree; all of them are ended afterwards."""
    started = []

    def start(**words):
        started.append(Counting(tmp_path, **words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def freeze(command, tree, *more):
    """Freeze it to disk, and give what the command says."""
    code, out, err = command("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json", *more)
    assert code == 0, err
    return json.loads(out)


def listed(command):
    """Return what ``checkpoints`` lists."""
    code, out, err = command("checkpoints", "-o", "json")
    assert code == 0, err
    return json.loads(out)


def test_a_tree_goes_and_comes_back(command, counting):
    """It ends when it is frozen, comes back where it was, and outlives the command."""
    tree = counting(children=3)
    done = freeze(command, tree, "--label", "model=a")
    assert (done["outcome"], done["processes"], done["pid"]) == ("frozen", 4, tree.pid)
    assert not tree.alive()
    (found,) = listed(command)
    assert found["artifact"] == done["checkpoint"]
    assert found["manifest"]["labels"] == [["model", "a"]]
    code, err = command.apart("restore", done["checkpoint"])
    assert code == 0, err
    tree.counts_on()
    assert tree.unbroken()
    code, _, err = command("restore", done["checkpoint"])
    assert code == 3
    assert "GateRefused" in err
    tree.counts_on()


def test_a_tree_is_moved_and_comes_back(command, counting):
    """From memory to the disk, and thawed from there; a copy of it is not thawed while the tree runs."""
    tree = counting(children=1)
    code, out, err = command("checkpoint", "--pid", str(tree.pid), "--tier", "ram", "-o", "json")
    assert code == 0, err
    checkpoint = json.loads(out)["checkpoint"]
    code, out, err = command("move", checkpoint, "disk", "-o", "json")
    assert code == 0, err
    assert (json.loads(out)["outcome"], json.loads(out)["tier"]) == ("moved", "disk")
    assert not [*(command.ram / "artifacts").iterdir()]
    code, err = command.apart("restore", checkpoint)
    assert code == 0, err
    tree.counts_on()
    assert tree.unbroken()
    code, out, err = command("move", checkpoint, "ram", "--keep")
    assert code == 0, err
    assert command("checkpoints", "--remove", "none")[0] != 0
    shutil.rmtree(command.state / "checkpoints" / "artifacts" / checkpoint)
    code, _, err = command("restore", checkpoint)
    assert (code, "GateRefused" in err) == (3, True), err
    tree.counts_on()


def test_a_secret_is_in_the_images_and_nowhere_else(command, counting, monkeypatch):
    """What stands in the environment of a process comes into no manifest, journal, log or answer (INV-C14)."""
    monkeypatch.setenv("A_SECRET", "a-word-that-nobody-else-has-8431")
    tree = counting()
    monkeypatch.delenv("A_SECRET")
    code, out, err = command("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json", "--verbose")
    assert code == 0, err
    code, more, _ = command("checkpoints", "-o", "json")
    assert code == 0
    files = [path for path in command.state.rglob("*") if path.is_file()]
    holding = [path.name for path in files if b"nobody-else-has-8431" in path.read_bytes()]
    assert {"pages-1.img"} <= {*holding} <= {path.name for path in files if path.parent.name == "images"}
    assert "8431" not in out + err + more


def test_a_tree_that_runs_on(command, counting):
    """With --leave-running it has only stood still; while it lives its checkpoint cannot be thawed."""
    tree = counting(children=1)
    done = freeze(command, tree, "--leave-running")
    assert done["outcome"] == "copied"
    tree.counts_on()
    assert tree.unbroken()
    code, _, err = command("restore", done["checkpoint"])
    assert code == 3
    assert "still runs" in err
    tree.counts_on()
    tree.kill()
    block_until(lambda: not tree.alive(), "it has ended")
    code, _, err = command("restore", done["checkpoint"])
    assert code == 0, err
    block_until(tree.alive, "it runs again")


SERVING = """
import fcntl, os, signal, socket, sys
held = open("locked", "w")
fcntl.flock(held, fcntl.LOCK_EX)
server = socket.socket(socket.AF_UNIX)
server.bind("served")
server.listen()
print(os.getpid(), flush=True)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
signal.pause()
"""


def test_what_somebody_else_has_by_now_is_not_taken(command, tmp_path):
    """The lock and the socket's name of who came while it was frozen: both stay whose they are until they end."""
    program = [sys.executable, "-I", "-S", "-c", SERVING]
    with subprocess.Popen(
        program,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        process.stdout.readline()
        code, out, err = command("checkpoint", "--pid", str(process.pid), "--tier", "disk", "-o", "json")
    assert code == 0, err
    artifact, served = json.loads(out)["checkpoint"], tmp_path / "served"
    with (tmp_path / "locked").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, err = command("restore", artifact)
        assert (code, "locks: process" in err) == (3, True), err
    served.unlink()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(served))
        server.listen()
        code, _, err = command("restore", artifact)
        assert (code, "names: process" in err) == (3, True), err
        client.connect(str(served))
        server.accept()[0].close()
    code, err = command.apart("restore", artifact)
    assert code == 0, err
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served))
    os.kill(process.pid, signal.SIGKILL)


def test_a_tree_whose_numbers_are_taken(command, counting):
    """Refused by the name of the option that helps; with it, it goes on, outlives the command, and is frozen again."""
    tree = counting(children=1)
    number = tree.pid
    done = freeze(command, tree)
    assert not tree.alive()
    with taken(number):
        code, _, err = command("restore", done["checkpoint"])
        assert code == 3
        assert f"process number {number} is taken here" in err
        assert "--pids auto" in err
        process = command.start("restore", done["checkpoint"], "--pids", "auto", "-o", "json")
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        found = json.loads(out)
        tree.pid = found["pid"]
        assert tree.pid != number
        assert found["note"].endswith(f"its first process is {tree.pid} here, and {number} in there")
        tree.counts_on()
        done = freeze(command, tree)
        assert (done["processes"], done["pid"]) == (2, tree.pid)
        assert not tree.alive()
    code, out, err = command("restore", done["checkpoint"], "-o", "json")
    assert code == 0, err
    tree.pid = json.loads(out)["pid"]
    assert tree.pid == number
    tree.counts_on()
    assert tree.unbroken()


def test_a_budget_that_is_too_small(command, counting):
    """It is said before anything is touched."""
    tree = counting()
    code, _, err = command("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "--disk-budget", "1MiB")
    assert code == 3
    assert "NoRoom" in err
    tree.counts_on()
    assert listed(command) == []


WITHOUT_RIGHTS = """
import ctypes, sys
import iriscw.cli
for right in (21, 40):  # CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE: what is executed from here on has neither
    assert ctypes.CDLL(None).prctl(24, right, 0, 0, 0) == 0
sys.exit(iriscw.cli.main())
"""


def test_a_right_that_is_missing(command, counting):
    """It is named before anything is touched, and the tree does not notice."""
    tree = counting()
    process = command.start("checkpoint", "--pid", str(tree.pid), "--tier", "disk", program=WITHOUT_RIGHTS)
    _, err = process.communicate(timeout=4 * PATIENCE_S)
    assert process.returncode == 3
    assert "RightsMissing" in err
    assert "CAP_SYS_ADMIN" in err
    tree.counts_on()
    assert tree.unbroken()
    assert listed(command) == []


def test_a_damaged_checkpoint(command, counting):
    """One flipped bit in a page image is found before CRIU starts, and the checkpoint stays for people to look at."""
    tree = counting()
    done = freeze(command, tree)
    assert not tree.alive()
    images = command.state / "checkpoints" / "artifacts" / done["checkpoint"] / "images"
    pages = max(images.iterdir(), key=lambda path: path.stat().st_size)
    with pages.open("r+b") as file:
        file.seek(4097)
        (byte,) = file.read(1)
        file.seek(4097)
        file.write(bytes([byte ^ 1]))
    code, _, err = command("restore", done["checkpoint"])
    assert code == 3
    assert f"{pages.name} was changed" in err
    assert not tree.alive()
    assert len(listed(command)) == 1


def interrupted_at(command, step, *arguments):
    """Start a command, press Ctrl-C when it says that it takes this step; give its exit code."""
    return interrupted(command, step, *arguments)[0]


def interrupted(command, step, *arguments):
    """The same; give what it said as well."""
    process = command.start(*arguments)
    assert process.stderr is not None
    for line in process.stderr:
        if step in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def test_an_interrupted_freeze_is_undone(command, counting, tmp_path):
    """Ctrl-C while the application is asked to come to rest: the tree runs on and hears of it, nothing is left."""
    tree = counting()
    hook = tmp_path / "hook"
    hook.mkdir()
    arguments = ["checkpoint", "--pid", str(tree.pid), "--tier", "disk", "--hook-dir", str(hook)]
    assert interrupted_at(command, "come to rest", *arguments) == 130
    assert [path.name for path in hook.iterdir()] == ["thawed"]
    tree.counts_on()
    assert tree.unbroken()
    assert listed(command) == []
    assert list((command.state / "operations").iterdir()) == []


def test_an_interrupted_dump_is_undone_or_finished(command, counting):
    """Ctrl-C while CRIU writes: the tree runs on and nothing is left, or it was too late and the tree is frozen."""
    tree = counting(ballast_mib=64)
    code = interrupted_at(command, "writes the images", "checkpoint", "--pid", str(tree.pid), "--tier", "disk")
    found = listed(command)
    assert list((command.state / "operations").iterdir()) == []
    if found:
        block_until(lambda: not tree.alive(), "the frozen tree has ended")
        return
    assert code == 130
    tree.counts_on()
    assert tree.unbroken()


def test_an_interrupt_that_comes_too_late_names_the_checkpoint(command, counting):
    """Ctrl-C while the tree is being ended: it is frozen, and standard output says to what, as ever."""
    tree = counting()
    arguments = ["checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json"]
    code, out, _ = interrupted(command, "ends the tree", *arguments)
    assert code in (0, 130)  # 0: it was over before the signal came
    done = json.loads(out)
    assert (done["outcome"], done["pid"], done["processes"]) == ("frozen", tree.pid, 1)
    assert done["checkpoint"] in [each["artifact"] for each in listed(command)]
    assert not tree.alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_the_application_is_told(command, counting, tmp_path, number):
    """A copy, and then a thaw, are past undoing when the application's program runs: both are told, exit code 130."""
    tree = counting()
    program = tmp_path / "hook"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program.write_text(f'#!/bin/sh\nif [ "$1" = thaw ]; then read line < {gate}; fi\n')
    program.chmod(0o700)

    def told(step, *arguments):
        """Interrupt it once the program waits; then let that go on."""
        process = command.start(*arguments, "-o", "json")
        for line in process.stderr:
            if step in line:
                break
        writing = os.open(gate, os.O_WRONLY)  # as soon as it reads
        process.send_signal(number)
        os.write(writing, b"\n")
        os.close(writing)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, err
        assert err.endswith("interrupted\n")
        return json.loads(out)

    freeze = ["checkpoint", "--pid", str(tree.pid), "--tier", "disk", "--hook-exec", str(program)]
    done = told("lets the tree run on", *freeze, "--leave-running")
    assert done["outcome"] == "copied"
    tree.kill()
    assert told("tells the application", "restore", done["checkpoint"])["outcome"] == "thawed"
    tree.counts_on()


def test_two_at_once(command, counting):
    """While one command freezes a tree another one is refused, and neither disturbs the other."""
    tree = counting(ballast_mib=64)
    process = command.start("checkpoint", "--pid", str(tree.pid), "--tier", "disk")
    assert process.stderr is not None
    assert "looks at" in process.stderr.readline()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        code, _, err = command("checkpoint", "--pid", str(tree.pid), "--tier", "disk")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert code == 3
    assert "TargetBusy" in err
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert not tree.alive()
    assert len(listed(command)) == 1


def killed_after(command, number, *arguments):
    """Start a command, kill it when it has said this many lines, and give them."""
    process = command.start(*arguments)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if len(said) == number:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.communicate(timeout=PATIENCE_S)
    return said


def taken_up(command):
    """List until nothing is owed: what a killed command had just forked may hold its journal for a moment."""
    found = []

    def nothing_owed():
        found[:] = listed(command)
        return list((command.state / "operations").iterdir()) == []

    block_until(nothing_owed, "nothing is owed any more")
    return found


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_freeze_that_is_killed(command, counting, number):
    """SIGKILL of the command at any step: the next command undoes it or finishes it, and nothing is lost."""
    tree = counting(children=1, ballast_mib=16)
    said = killed_after(command, number, "checkpoint", "--pid", str(tree.pid), "--tier", "disk")
    assert len(said) == number
    found = taken_up(command)
    if not found:
        tree.counts_on()
        assert tree.unbroken()
        return
    block_until(lambda: not tree.alive(), "the frozen tree has ended")
    code, _, err = command("restore", found[0]["artifact"])
    assert code == 0, err
    tree.counts_on()
    assert tree.unbroken()


def test_another_folder_in_memory(command, counting, tmp_path, caplog):
    """A command that looks elsewhere takes nothing up whose images it would not find, and says where to look."""
    tree = counting(ballast_mib=16)
    killed_after(command, 3, "checkpoint", "--pid", str(tree.pid), "--tier", "ram")
    place, command.ram = command.ram, tmp_path / "other"
    block_until(lambda: listed(command) == [] and f"IRISCW_RAM_DIR={place}" in caplog.text, "its lock is free")
    assert len(list((command.state / "operations").iterdir())) == 1
    command.ram = place
    assert taken_up(command) == []
    tree.counts_on()
    assert tree.unbroken()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_thaw_that_is_killed(command, counting, number):
    """SIGKILL of the command at any step: the tree runs, or nothing of it does and it can be thawed again.

    Children run before their parent, and what they did until it ran is done again if the command dies meanwhile.
    """
    tree = counting(children=1, ballast_mib=16)
    done = freeze(command, tree)
    assert not tree.alive()
    killed_after(command, number, "restore", done["checkpoint"])
    assert len(taken_up(command)) == 1
    at_once = tree.alive()
    if not at_once:
        code, _, err = command("restore", done["checkpoint"])
        assert code == 0, err
    tree.counts_on()
    assert tree.unbroken(children=at_once)


def pins_of(found, done):
    """Return who pins the checkpoint that a freeze made. Memory is shared with other tests, so there may be others."""
    return [each["pinned_by"] for each in found if each["artifact"] == done["checkpoint"]]


def test_a_lazy_thaw(command, counting):
    """The tree runs while its pages come; the command stays until all are there, and nothing is noted."""
    tree = counting(children=2, ballast_mib=32)
    done = freeze(command, tree)
    assert not tree.alive()
    code, out, err = command("restore", done["checkpoint"], "--lazy", "-o", "json")
    assert code == 0, err
    said = json.loads(out)
    assert (said["outcome"], said["note"]) == ("thawed", "")
    assert {"starting", "paging", "leaving"} <= {*said["phases"]}
    tree.counts_on()
    assert tree.unbroken()
    assert pins_of(listed(command), done) == [[]]


def test_a_lazy_thaw_where_there_is_no_userfaultfd(command, counting, monkeypatch):
    """It is an eager one, and the last line says so."""
    tree = counting()
    done = freeze(command, tree)
    assert not tree.alive()
    (command.state / "criu-ability.json").unlink()  # what CRIU can was remembered by the freeze
    monkeypatch.setattr(ability, "FEATURES", ())
    code, out, err = command("restore", done["checkpoint"], "--lazy", "-o", "json")
    assert code == 0, err
    said = json.loads(out)
    assert "no userfaultfd" in said["note"]
    assert "paging" not in said["phases"]
    tree.counts_on()
    assert tree.unbroken()


def test_a_lazy_thaw_of_a_damaged_checkpoint(command, counting):
    """One flipped bit in memory that comes later: the tree is gone, the error names the file, nothing is pinned."""
    tree = counting(ballast_mib=64)
    done = freeze(command, tree)
    assert not tree.alive()
    images = command.state / "checkpoints" / "artifacts" / done["checkpoint"] / "images"
    pages = max(images.iterdir(), key=lambda path: path.stat().st_size)
    with pages.open("r+b") as file:
        file.seek(32 << 20)
        (byte,) = file.read(1)
        file.seek(32 << 20)
        file.write(bytes([byte ^ 1]))
    code, _, err = command("restore", done["checkpoint"], "--lazy")
    assert code == 3
    assert f"{pages.name} was changed: the digest of piece 4 is another one" in err
    assert not tree.alive()
    assert pins_of(listed(command), done) == [[]]


def test_an_interrupted_lazy_thaw_comes_to_its_end(command, counting):
    """Ctrl-C while pages come: the tree runs, and all of them are brought."""
    tree = counting(children=1, ballast_mib=64)
    done = freeze(command, tree)
    assert not tree.alive()
    assert interrupted_at(command, "brings its pages", "restore", done["checkpoint"], "--lazy") in (0, 130)
    assert pins_of(taken_up(command), done) == [[]]
    tree.counts_on()
    assert tree.unbroken()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_lazy_thaw_that_is_killed(command, counting, number):
    """SIGKILL of the command at any step: once the tree was let run its pages come all the same."""
    tree = counting(children=1, ballast_mib=64)
    done = freeze(command, tree)
    assert not tree.alive()
    said = killed_after(command, number, "restore", done["checkpoint"], "--lazy")
    assert pins_of(taken_up(command), done) == [[]]
    at_once = tree.alive()
    if not at_once:
        assert "brings its pages" not in "".join(said)
        code, _, err = command("restore", done["checkpoint"])
        assert code == 0, err
    tree.counts_on()
    assert tree.unbroken(children=at_once)
