"""A seed is one world: whatever hashes a process draws, and whichever Python runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYTHONS = {"3.11": ".venv", "3.12": ".venv-3.12", "3.13": ".venv-3.13"}
"""Where ``make setup`` and ``make another-python`` put them; one that is not there is not asked."""

OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in PYTHONS if version != OURS]
SOME, MANY = 12, 200


def runs(seeds, python=sys.executable, hash_seed="0"):
    """Run the first seeds; give all that is said of each, its trace's hash among it."""
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "sims")))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-m", "iriscw_sims.run", "--seeds", str(seeds), "-o", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3_000, check=False)
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    found = json.loads(done.stdout)["runs"]
    assert len(found) == seeds == len({each["trace"] for each in found})
    return found


def other(version):
    """Return another Python, or skip the test."""
    python = ROOT / PYTHONS[version] / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no Python {version}")
    return python


@pytest.fixture(scope="module")
def traces():
    """Return what this Python makes of seeds, each number of them run once."""
    known = {}

    def give(seeds):
        if seeds not in known:
            known[seeds] = runs(seeds)
        return known[seeds]

    return give


@pytest.mark.slow
def test_hashes_change_nothing(traces):
    """Another order of sets and of what is hashed by address is the same world."""
    assert runs(SOME, hash_seed="4711") == traces(SOME)


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_another_python_changes_nothing(version, traces):
    """Other releases of Python run the same worlds."""
    assert runs(SOME, other(version)) == traces(SOME)


@pytest.mark.soak
def test_hashes_change_nothing_in_many_worlds(traces):
    """The same, two hundred times."""
    assert runs(MANY, hash_seed="4711") == traces(MANY)


@pytest.mark.soak
@pytest.mark.parametrize("version", OTHERS)
def test_another_python_changes_nothing_in_many_worlds(version, traces):
    """The same, two hundred times."""
    assert runs(MANY, other(version)) == traces(MANY)
