"""What a command loads: a freeze of a small process takes less time than the libraries that other commands need."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing

FOREIGN = ("aiohttp", "betterproto2", "google", "grpclib", "h2", "kubernetes", "kubernetes_asyncio", "rich", "yaml")
"""Libraries of other commands, of hooks that are addresses, and of terminals."""

OURS = ("iriscw.client", "iriscw.proto", "iriscw.rpc", "iriscw.config.model", "iriscw.controller", "iriscw.worker")
"""What speaks to a controller, and what one is made of."""

CODE = """
import json, sys
from iriscw.cli import main
code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(sorted(sys.modules), file)
sys.exit(code)
"""


class Commands:
    """Runs commands in processes of their own, with a state of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "IRISCW_STATE_DIR": str(folder / "state")}

    def run(self, *arguments):
        """Return what it said, and which modules it had loaded."""
        loaded = self.folder / "loaded"
        command = [sys.executable, "-c", CODE, str(loaded), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, json.loads(loaded.read_text())


@pytest.fixture
def commands(tmp_path):
    return Commands(tmp_path)


def foreign(modules):
    """Return what a command that asks no controller must not load."""
    return [name for name in modules if name.partition(".")[0] in FOREIGN or name.startswith(OURS)]


def test_the_list_loads_no_client(commands):
    """`checkpoints` of this machine loads nothing that speaks to a controller."""
    _, modules = commands.run("checkpoints")
    assert "iriscw.agent.machine" in modules
    assert foreign(modules) == []


def test_help_loads_no_client(commands):
    """Nor does their help, which loads nothing that freezes either."""
    _, modules = commands.run("checkpoint", "--help")
    assert foreign(modules) == []
    assert "iriscw.agent.machine" not in modules


@pytest.mark.slow
def test_a_freeze_and_a_thaw_load_no_client(commands):
    """They load what freezes alone; a hook that is a program needs no HTTP client."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    code = "import time\nwhile True: time.sleep(0.01)"
    target = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        freeze = (
            "checkpoint",
            "--pid",
            str(target.pid),
            "--tier",
            "disk",
            "--hook-exec",
            shutil.which("true"),
            "-o",
            "json",
        )
        out, modules = commands.run(*freeze)
        assert foreign(modules) == []
        target.wait(timeout=60)
        out, modules = commands.run("restore", json.loads(out)["checkpoint"], "-o", "json")
        assert json.loads(out)["pid"] == target.pid
        os.kill(target.pid, 9)
        assert foreign(modules) == []
    finally:
        target.kill()


def test_the_probe_sees_a_client(commands):
    """The commands of a cluster do load one: what is looked for above has these names."""
    code = "import iriscw.client.client, aiohttp, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    found = foreign(json.loads(done.stdout))
    assert {"iriscw.client.client", "iriscw.proto.iriscw.v1", "aiohttp"} <= set(found)
