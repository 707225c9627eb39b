"""``agent serve`` as a process, and the commands that go through it, where nothing can be frozen."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from artifacts import FROZEN, fill

from iriscw.agent.daemon import default_socket
from iriscw.agent.errors import AgentRunning
from iriscw.agent.local import tiers_below
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.checkpoint.tiering.model import Watermarks
from iriscw.checkpoint.tiering.policies import LeastRecentlyUsed
from iriscw.freeze.traits import CarriedFolder

PATIENCE_S = 60.0


@contextlib.contextmanager
def serving(folder, *arguments):
    """Run an agent in a process of its own, without CRIU; give the process and what it said before it was ready."""
    command = [sys.executable, "-c", "import sys, iriscw.cli; sys.exit(iriscw.cli.main())", "agent", "serve"]
    process = subprocess.Popen(
        [*command, "--socket", str(folder / "s" / "a.sock"), "--state-dir", str(folder / "state"), *arguments],
        env={**os.environ, "IRISCW_CRIU": str(folder / "no-criu")},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        while "iriscw agent at" not in said and (line := process.stderr.readline()):
            said += line
        yield process, said
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent for all tests that do not end it, and its folder."""
    folder = tmp_path_factory.mktemp("agent")
    with serving(folder) as (_, said):
        assert "iriscw agent at" in said
        yield folder


def test_health(iriscw, agent, tmp_path):
    """An agent that answers is well; where none answers the check has failed."""
    code, out, err = iriscw("agent", "health", "--socket", str(agent / "s" / "a.sock"))
    assert (code, err) == (0, "")
    assert json.loads(out)["status"] == "ok"
    code, out, err = iriscw("agent", "health", "--socket", str(tmp_path / "none.sock"))
    assert (code, out) == (1, "")
    assert "does not answer" in err


@pytest.mark.slow
def test_whom_it_dials(tmp_path):
    """An agent without a controller says that it dials none, and how it would; one with a controller does not."""
    (tmp_path / "token").write_text("a" * 32)
    (tmp_path / "token").chmod(0o600)
    with serving(tmp_path) as (_, said):
        *_, line, at = said.splitlines()
    assert line.startswith("no controller is dialled: ")
    assert "--controller HOST:PORT and --token-file FILE (`iriscw agent token FILE`" in line
    assert at.startswith("iriscw agent at ")
    with serving(tmp_path, "--controller", "127.0.0.1:1", "--token-file", str(tmp_path / "token")) as (_, said):
        assert "iriscw agent at" in said
    assert "no controller is dialled" not in said


def test_no_criu(iriscw, agent):
    """The agent says what is missing as the command itself would, and with the same exit code."""
    socket = str(agent / "s" / "a.sock")
    code, out, err = iriscw("checkpoint", "--agent", socket, "--pid", str(os.getpid()))
    assert (code, out) == (3, "")
    assert "looks at the process tree" in err
    assert "iriscw: it was not frozen, and runs as before: CriuMissing: there is no CRIU" in err
    code, _, err = iriscw("restore", "--agent", socket, "ck-none")
    assert code == 2
    assert "iriscw: there is no checkpoint ck-none here;" in err
    code, _, err = iriscw("checkpoint", "--agent", socket, "--pid", str((1 << 22) - 1))
    assert code == 3
    assert "TargetGone" in err


def test_the_list(iriscw, agent):
    """It is what the command itself shows, for people and for programs, of the same state."""
    disk = tiers_below(agent / "state", folders={"ram": agent / "memory"}).folders["disk"]
    fill(disk.reserve("ck-1", 1 << 20), large=False)
    disk.seal("ck-1", FROZEN, (("model", "a"),), default_reading(lambda count: None), lambda size: None)
    disk.publish("ck-1")
    disk.unpin("ck-1", "ck-1")
    at = ("--agent", str(agent / "s" / "a.sock"), "--label", "model=a")
    here = ("--state-dir", str(agent / "state"), "--label", "model=a")
    code, out, _ = iriscw("checkpoints", *at, "-o", "json")
    assert code == 0
    assert json.loads(out) == json.loads(iriscw("checkpoints", *here, "-o", "json")[1])
    assert json.loads(out)[0]["manifest"]["labels"] == [["model", "a"]]
    row, wanted = (iriscw("checkpoints", *way)[1].splitlines()[1].split() for way in (at, here))
    assert row[:6] == wanted[:6] == ["ck-1", "disk", "0.1", "MB", "100", "2"]
    for selector, count in (("model=a", 1), ("!model", 0)):
        assert len(json.loads(iriscw("checkpoints", *at, "-l", selector, "-o", "json")[1])) == count
    code, out, _ = iriscw("checkpoints", *at, "--remove", "ck-1", "-o", "json")
    assert (code, json.loads(out)) == (0, [])
    frozen = attrs.evolve(FROZEN, guard="/gone/u", carried=CarriedFolder("/gone/u", "ck-2", 0))
    fill(disk.reserve("ck-2", 1 << 20), large=False)
    disk.seal("ck-2", frozen, (), default_reading(lambda count: None), lambda size: None)
    disk.publish("ck-2")
    disk.unpin("ck-2", "ck-2")
    code, _, err = iriscw("checkpoints", *at, "--remove", "ck-2")
    assert (code, "is to come to a repository" in err) == (2, True), err  # all that its job has, maybe


def test_options_of_the_agent(iriscw, agent):
    """Where state lies is the agent's business."""
    socket = str(agent / "s" / "a.sock")
    for command in (("checkpoint", "--pid", "99"), ("restore", "ck-1"), ("checkpoints",)):
        code, _, err = iriscw(*command, "--agent", socket, "--state-dir", "/tmp/x", "--ram-budget", "1GiB")
        assert code == 2
        assert "--state-dir, --ram-budget: with --agent the agent says it" in err


def test_no_agent(iriscw, tmp_path):
    """It is said, with the way to get one."""
    code, _, err = iriscw("checkpoints", "--agent", str(tmp_path / "none.sock"))
    assert code == 3
    assert "AgentUnreachable: no agent answers at" in err
    assert "`iriscw agent serve` starts one" in err


def test_a_second_agent(iriscw, agent, monkeypatch):
    """It is refused by name, and says which process has the state."""
    monkeypatch.setattr("logging.basicConfig", lambda **words: None)  # that of the tests stays
    socket = str(agent / "s" / "b.sock")
    at = ("--state-dir", str(agent / "state"), "--socket", socket, "--lock-patience", "10ms")
    code, _, err = iriscw("agent", "serve", *at)
    assert code == 3
    assert "AgentRunning: another agent serves" in err


@pytest.mark.parametrize(("given", "wanted"), [((), 3.0), (("--lock-patience", "2m"), 120.0)])
def test_how_long_a_killed_agent_is_waited_for(iriscw, tmp_path, monkeypatch, given, wanted):
    """As long as it is told, or for the time that stands in the help."""
    told = []

    def agent(settings, machine):
        told.append(settings)
        raise AgentRunning("so much was to be seen")

    monkeypatch.setattr("logging.basicConfig", lambda **words: None)  # that of the tests stays
    monkeypatch.setattr("iriscw.agent.daemon.Agent", agent)
    assert iriscw("agent", "serve", "--state-dir", str(tmp_path), *given)[0] == 3
    assert [settings.lock_patience_s for settings in told] == [wanted]


def test_how_tiers_are_balanced(iriscw, tmp_path, monkeypatch):
    """Not at all if nobody says so; a policy or marks that are none are refused before anything is served."""
    told = []

    def agent(settings, machine):
        told.append(settings.balancing)
        raise AgentRunning("so much was to be seen")

    monkeypatch.setattr("logging.basicConfig", lambda **words: None)  # that of the tests stays
    monkeypatch.setattr("iriscw.agent.daemon.Agent", agent)
    serve = ("agent", "serve", "--state-dir", str(tmp_path))
    assert iriscw(*serve)[0] == 3
    assert iriscw(*serve, "--balance", "--policy", "lru", "--watermarks", "ram=50-80")[0] == 3
    assert told[0] is None
    assert isinstance(told[1].policy, LeastRecentlyUsed)
    assert told[1].marks == {"ram": Watermarks(0.5, 0.8)}
    assert iriscw(*serve, "--balance", "--policy", "best")[0] == 2
    assert iriscw(*serve, "--watermarks", "ram=50-80")[0] == 2
    assert len(told) == 2


@pytest.mark.parametrize("option", ["--root", "--runtime-root"])
@pytest.mark.parametrize("path", ["{}/none", "{}/s/a.sock"])
def test_roots_that_are_none(iriscw, agent, option, path):
    """They are named before anything is served, with their option."""
    code, _, err = iriscw("agent", "serve", option, path.format(agent))
    assert code == 2
    assert f"'{option}'" in err
    assert path.format(agent) in err


def test_the_end(tmp_path):
    """SIGTERM ends an agent in order: its socket goes, and the next one finds nothing to take up."""
    with serving(tmp_path) as (process, said):
        assert str(tmp_path / "s" / "a.sock") in said
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "stopping on SIGTERM" in err
    assert not (tmp_path / "s" / "a.sock").exists()


def test_where_it_listens(tmp_path, monkeypatch):
    """Root's agent where shims look for it, a user's where only that user gets."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_socket({}, tmp_path) == Path("/run/kybernate/shim.sock")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_socket({"XDG_RUNTIME_DIR": "/run/user/1000"}, tmp_path) == Path("/run/user/1000/iriscw/agent.sock")
    assert default_socket({}, tmp_path) == tmp_path / "agent" / "agent.sock"
