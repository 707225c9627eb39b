"""The same seed gives the same run: in another process, with other hashes, and on another Python."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "objects_program.py"
ROOT = PROGRAM.parents[3]


def call(python, hash_seed):
    """Run the program."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "sims")]),
        "PYTHONHASHSEED": hash_seed,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [python, str(PROGRAM)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@functools.cache
def expected():
    """What this Python prints."""
    done = call(sys.executable, "0")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_another_hash_seed():
    """Nothing depends on the hashes of texts; and the runs differ from each other, so that they are worth comparing."""
    assert len({*expected().splitlines()}) == 8
    assert call(sys.executable, "4711").stdout == expected()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_another_python(version):
    """Nothing depends on the version of Python, where another is installed with all that is needed."""
    python = ROOT / f".venv-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no Python {version} with the libraries of the tests is installed here")
    done = call(str(python), "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected()
