"""The scripts of the examples run as they stand, and print what their pages say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PRINTED = {"actor_pool.py": "primes below 100000: 9592\n", "parameter_server.py": "3.0 * x + 2.0 good\n"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_it_runs(name, tmp_path):
    """And nothing of it is worth a warning."""
    command = [sys.executable, "-W", "error", EXAMPLES / name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, PRINTED[name]), done.stderr


@pytest.mark.parametrize("name", PRINTED)
def test_it_is_short(name):
    """Short enough to be read at once."""
    assert len((EXAMPLES / name).read_text().splitlines()) <= 60
