"""sim serve: a simulated cluster behind a port."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import click
import pytest

from iriscw.cli.sim.serve import MOST_NODES, Pool

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; from iriscw.cli import main; sys.exit(main(sys.argv[1:]))",
    "sim",
    "serve",
]
PATIENCE_S = 60


@pytest.mark.parametrize(
    ("text", "pool"),
    [("gpus=4", ("gpus", 4, "")), ("a-1=0", ("a-1", 0, "")), ("x=2:gd-8xh200ib-i128", ("x", 2, "gd-8xh200ib-i128"))],
)
def test_a_pool_is_a_name_and_a_number(text, pool):
    """With an instance type behind it, if that is not the usual one."""
    assert Pool().convert(text, None, None) == pool


@pytest.mark.parametrize(
    "text", ["", "gpus", "=4", "GPUS=4", "gpus=-1", "gpus=many", f"gpus={MOST_NODES + 1}", "a/b=1"]
)
def test_other_texts_are_no_pools(text):
    """The error says how one is written."""
    with pytest.raises(click.BadParameter):
        Pool().convert(text, None, None)


@pytest.fixture
def started(tmp_path):
    """Start the command, and wait until it says that it can be reached; give the process and its kubeconfig."""
    pytest.importorskip("aiohttp")
    running = []

    def start(*arguments):
        environment = {**os.environ, "IRISCW_CONTEXT": str(tmp_path / "context.json")}
        command = [*PROGRAM, "--quick", "--speed", "100", *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        said = ""
        while "Ctrl-C ends it" not in said:
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        path = next(line.partition("KUBECONFIG=")[2].strip() for line in said.splitlines() if "KUBECONFIG=" in line)
        return process, tmp_path / path

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ask(kubeconfig, path):
    """Ask the server as the kubeconfig says."""
    found = json.loads(kubeconfig.read_text(encoding="utf-8"))
    address = found["clusters"][0]["cluster"]["server"]
    request = urllib.request.Request(f"{address}{path}")
    request.add_header("Authorization", f"Bearer {found['users'][0]['user']['token']}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_a_fleet_boots_and_goes(started):
    """Machines come; SIGTERM ends it in order, and the token's file goes with it."""
    process, kubeconfig = started("--pool", "gpus=2")
    deadline = time.monotonic() + PATIENCE_S
    while len(ask(kubeconfig, "/api/v1/nodes")["items"]) < 2:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "nothing is left running" in said
    assert not kubeconfig.exists()


def test_a_kubeconfig_of_ones_own_stays(started, tmp_path):
    """A file that was named, and that a simulation had left, is written anew; after Ctrl-C it stays, private."""
    path = tmp_path / "mine"
    path.write_text('{"current-context": "iriscw-sim"}', encoding="utf-8")
    process, kubeconfig = started("--empty", "--kubeconfig", str(path))
    assert kubeconfig == path
    assert ask(path, "/api/v1/nodes")["items"] == []
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_file_is_not_overwritten(iriscw, tmp_path):
    """The kubeconfig of a real cluster is never lost."""
    pytest.importorskip("aiohttp")
    path = tmp_path / "config"
    for text in ("apiVersion: v1\n", '{"current-context": "production"}', "[]"):
        path.write_text(text, encoding="utf-8")
        code, _, err = iriscw("sim", "serve", "--kubeconfig", str(path))
        assert (code, err.count("\n")) == (2, 1)
        assert "is no kubeconfig of a simulation" in err
        assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "arguments", [["--speed", "0"], ["--port", "70000"], ["--seed", "-1"], ["--pool", "x"], ["--speed", "nan"]]
)
def test_nonsense_is_refused(iriscw, arguments):
    """One line, and the code for misuse."""
    pytest.importorskip("aiohttp")
    code, out, err = iriscw("sim", "serve", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
