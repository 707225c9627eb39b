"""The same seed gives the same run: in another process, with other hashes, and on another Python."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAM = HERE / "transport_program.py"


def begin(python: str, hash_seed: str) -> subprocess.Popen[str]:
    """Start the program."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "sims")]),
        "PYTHONHASHSEED": hash_seed,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [python, str(PROGRAM)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(program: subprocess.Popen[str]) -> str:
    """Wait for what it prints."""
    out, err = program.communicate(timeout=100)
    assert program.returncode == 0, err
    return out


@functools.cache
def expected() -> str:
    """What this Python gives, in processes of their own with other hashes of texts."""
    programs = [begin(sys.executable, hash_seed) for hash_seed in ("0", "4711")]
    first, second = [output(program) for program in programs]
    assert first == second
    return first


def interpreter(version: str) -> str | None:
    """Find another Python that has what this one has."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    candidates = [str(ROOT / f".venv-{version}" / "bin" / "python"), shutil.which(f"python{version}") or ""]
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            words = [candidate, "-c", "import anyio, attrs, betterproto2, grpclib, hypothesis, sys; print(sys.version)"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0 and done.stdout.startswith(f"{version}."):
                return candidate
    return None


@pytest.mark.slow
def test_the_runs_are_worth_comparing() -> None:
    """They differ between seeds, not between hashes of texts, and their calls end in more than one way."""
    lines = expected().splitlines()
    assert len({line.split()[0] for line in lines}) == len(lines) == 2
    assert all(name in expected() for name in ("answered", "RpcDeadline", "RpcUnavailable"))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_another_python(version) -> None:
    """Nothing depends on the version of Python, where another is installed with all that is needed."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} with the libraries of the tests is installed here")
    assert output(begin(python, "1")) == expected()
