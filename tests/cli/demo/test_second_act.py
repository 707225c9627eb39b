"""The demo's second act, as far as it needs no CRIU: its stage, its server, and when it is skipped."""

import contextlib
import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given, strategies as st

from iriscw.cli.demo import second_act
from iriscw.cli.demo.leftovers import processes_in
from iriscw.cli.demo.second_act import (
    BESIDE_BYTES,
    LEAST_STATE_BYTES,
    MIB,
    ServerFailed,
    fitting_state,
    perform,
    steps_table,
)
from iriscw.cli.demo.server import Server
from iriscw.cli.demo.stage import DemoStage, remove_abandoned, servers_of
from iriscw.cli.demo.view import PlainView
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.processes.reading import read_tree
from iriscw.freeze.model import CriuMissing, NoRoom
from iriscw.processes.identity import is_alive
from raised import that

STATE_BYTES = 3 * MIB + 5

AMOUNTS = st.integers(0, 1 << 40)

KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from iriscw.cli.demo import stage as module
from iriscw.cli.demo.stage import DemoStage
if sys.argv[2:]:
    place = Path(sys.argv[2], *module.PROGRAM.parts[-4:])
    place.parent.mkdir(parents=True)
    shutil.copy(module.PROGRAM, place)
    module.PROGRAM = place
stage = DemoStage.make(Path(sys.argv[1]))
port = stage.start(1 << 20).stdout.read()
print(stage.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def stage(tmp_path):
    """A stage, in a folder of the test's own."""
    with contextlib.closing(DemoStage.make(tmp_path)) as made:
        yield made


def started(stage):
    """Start its server; give its process and its port. The pipe ends when the server has let go of it."""
    process = stage.start(STATE_BYTES)
    return process, int(process.stdout.read())


@given(st.integers(MIB, 1 << 40), AMOUNTS, AMOUNTS)
def test_the_state_fits_four_times(wanted, memory_free, folder_free):
    """The state is what was wanted or what fits in memory with its copies; what is too small is refused."""
    least = min(wanted, LEAST_STATE_BYTES)
    try:
        fits = fitting_state(wanted, memory_free, folder_free)
    except NoRoom:
        assert _too_much(least + MIB, memory_free, folder_free)
        return
    assert least <= fits <= wanted
    assert not _too_much(fits, memory_free, folder_free)
    assert fits == wanted or _too_much(fits + MIB, memory_free, folder_free)


def _too_much(state, memory_free, folder_free):
    return 4 * state + BESIDE_BYTES > memory_free or 3 * state + BESIDE_BYTES // 2 > folder_free


def test_each_server_has_a_state_of_its_own(stage):
    """A server's digest is that of what it holds, and no other server has the same."""
    with Server(STATE_BYTES) as one, Server(STATE_BYTES) as other:
        assert one.digest() == hashlib.sha256(one.state).hexdigest()
        assert one.digest() != other.digest()
        one.state[-1] ^= 1
        assert one.digest() == hashlib.sha256(one.state).hexdigest()


def test_the_server_counts_and_holds_no_connection(stage):
    """The state stays, the answers are counted; when one is read the server has nothing that is hard to freeze."""
    process, port = started(stage)
    root = identify_task(process.pid)
    first = second_act.asked(port, 60.0)
    assert (first.answers, first.bytes) == (1, STATE_BYTES)
    for number in range(2, 12):
        assert second_act.asked(port, 60.0) == second_act.ServerAnswer(number, STATE_BYTES, first.sha256)
        assert read_tree(root).hindrances == ()


def test_a_server_that_does_not_answer_has_a_name():
    """One that accepts and is silent, one that says nonsense, and one that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ServerFailed, check=that(comes_from="second_act.asked", names="0")):
            second_act.asked(port, 0.05)
        silent.accept()[0].close()  # that of the first question
        threading.Thread(target=lambda: answered_with(silent, b"nonsense")).start()
        with pytest.raises(ServerFailed, check=that(names="BadStatusLine")):
            second_act.asked(port, 60.0)
    with pytest.raises(ServerFailed, check=that(names=os.strerror(errno.ECONNREFUSED))):
        second_act.asked(port, 60.0)


def answered_with(listening, content):
    """Answer one question."""
    with listening.accept()[0] as channel:
        channel.recv(1 << 16)
        channel.sendall(content)


def test_a_connection_ends_with_its_descriptor():
    """The server closes and does not only shut down: who hears of the end knows that no descriptor is left."""
    calls = []

    class Connection:
        def shutdown(self, how):
            calls.append("shutdown")

        def close(self):
            calls.append("close")

    with Server(1) as server:
        server.shutdown_request(Connection())
    assert calls == ["close"]


def test_a_stage_goes_with_all_that_is_on_it(stage):
    """Its server ends, its folder goes; nobody who only knows its name is meant."""
    process, port = started(stage)
    bystander = subprocess.Popen([sys.executable, "-c", "input()", str(stage.folder)], stdin=subprocess.PIPE)
    try:
        assert [each.pid for each in servers_of(stage.folder)] == [process.pid]
        assert second_act._listens(port)
        stage.close()
        assert not stage.folder.exists()
        assert process.returncode == -signal.SIGKILL
        assert [line.split()[0] for line in processes_in(stage.folder)] == [str(bystander.pid)]
    finally:
        bystander.communicate(b"\n")
        stage._lock = os.open(os.devnull, os.O_RDONLY)  # the fixture closes it again


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_killed_demo_left_is_removed_by_the_next(tmp_path_factory, tmp_path, elsewhere):
    """Its server is ended and its folder removed, wherever it was installed; a demo that lives is left alone."""
    other = [str(tmp_path_factory.mktemp("another-environment"))] if elsewhere else []
    command = [sys.executable, "-c", KILLED, str(tmp_path), *other]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [left] = tmp_path.iterdir()
    assert str(left) == done.stdout.strip()
    [server] = servers_of(left)
    assert is_alive(server)
    with contextlib.closing(DemoStage.make(tmp_path)) as stage:
        assert not is_alive(server)
        assert [*tmp_path.iterdir()] == [stage.folder]
        assert remove_abandoned(tmp_path) == []
        assert stage.folder.exists()


def test_without_criu_it_is_skipped(tmp_path, monkeypatch, capsys):
    """The reason is on the screen, and it is no failure; who asks for this act alone gets it as an error."""
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "no-criu"))
    perform(PlainView(), 16 * MIB, asked=False)
    said = capsys.readouterr().out.splitlines()[-1]
    assert "the second act is skipped: there is no CRIU" in said
    assert "`make criu`" in said
    with pytest.raises(CriuMissing):
        perform(PlainView(), 16 * MIB, asked=True)


def test_the_table_of_steps():
    """A line for each step, bytes and speed for those that go through all of it, and the sum."""
    written = steps_table("freeze", {"looking": 0.25, "dumping": 0.5, "sealing": 0.0}, 3_000_000)
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in written.splitlines()]
    assert cells == [
        ["FREEZE", "SECONDS", "BYTES", "SPEED"],
        ["looks at the process tree", "0.25"],
        ["writes the images", "0.50", "3.0 MB", "6.0 MB/s"],
        ["gives every byte a digest", "0.00", "3.0 MB"],
        ["in all", "0.75"],
    ]
