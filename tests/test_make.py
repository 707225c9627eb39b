"""What `make setup` says: somebody who waits for a minute knows what for."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PYTHON = """#!/bin/sh
case "$1" in
    -V) echo "Python 3.12.1" ;;
    -c) ;;
    *) echo "RAN $*" ;;
esac
case "$1 $2" in
    "-m venv") mkdir -p "$4/bin"; for name in python uv iriscw; do cp "$0" "$4/bin/$name"; done ;;
    "pip install") exit "${UV_FAILS:-0}" ;;
esac
"""
"""Stands in for Python, uv and iriscw: it says what it was told to do, and does nothing but make the folder."""

DONE = "make setup: done; next: make demo, or . venv/bin/activate"


@pytest.fixture
def setup(tmp_path):
    """Run `make setup` with an interpreter that installs nothing; give the lines that it wrote, errors among them."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}

    def run(goal="setup", **environment):
        command = ["make", "--no-print-directory", goal, f"VENV={tmp_path}/venv", f"PYTHON={python}"]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**ours, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.replace(f"{tmp_path}/", "").splitlines()

    return run


def locked():
    """Count the packages that are pinned."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return sum("==" in line and not line.startswith((" ", "#")) for line in lines)


def test_each_step_is_named_before_it_begins(setup):
    """Also how long it takes, and what comes next; when all is there already, nothing else is done or said."""
    lines = setup()
    assert lines[0] == "make setup: creates venv with Python 3.12.1"
    assert lines[1] == "RAN -m venv --clear venv"
    assert lines[2] == f"make setup: installs {locked()} packages into venv, pinned by hash; this takes about a minute"
    assert all(line.startswith("RAN ") for line in lines[3:-2])
    assert sum("--require-hashes -r requirements.lock" in line for line in lines) == 1
    assert lines[-2:] == ["make setup: venv is ready", DONE]
    assert setup() == [DONE]


def test_that_pip_takes_longer_is_said(setup):
    """Where uv reaches no registry, pip is tried."""
    lines = setup(UV_FAILS="1")
    said = lines.index("make setup: uv did not succeed; pip is tried, which takes some minutes")
    assert lines[said - 1].startswith("RAN pip install ")
    assert lines[said + 1].startswith("RAN -m pip install ")
    assert lines[-2:] == ["make setup: venv is ready", DONE]


def test_what_comes_next_is_said_to_who_asks_for_it(setup):
    """Another target that has the environment made goes on by itself."""
    assert setup(goal="demo")[-2:] == ["make setup: venv is ready", "RAN demo"]
