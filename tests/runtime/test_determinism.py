"""INV-R8: the same seed gives the same trace, whatever the process, the hash seed and the Python version."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import determinism_program
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def interpreter(version):
    """Find a Python of this version that can import what the kernel needs; None without one."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [sys.executable] if version == here else []
    candidates.append(str(ROOT / f".venv-{version}" / "bin" / "python"))
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    candidates.append(shutil.which(f"python{version}") or "")
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            check = _call(candidate, "-c", "import iriscw.testing.simulation, sys; print(sys.version)")
            if check.returncode == 0 and check.stdout.startswith(f"{version}."):
                return candidate
    return None


def _call(python, *words, hash_seed="0"):
    # attrs is pure Python: the copy of this environment serves the other versions too.
    path = os.pathsep.join([str(ROOT / "src"), str(Path(attrs.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, *words], env=environment, capture_output=True, text=True, timeout=120, check=False)


@functools.cache
def expected():
    """Return the hashes of this very process."""
    return [determinism_program.run(seed) for seed in (1, "two")]


def test_the_program_is_worth_comparing():
    """Different seeds give different traces, and the program fails, restarts and records."""
    assert expected()[0] != expected()[1]
    assert expected()[0] == determinism_program.run(1)
    assert int(expected()[0].split()[1]) > 2_000


@pytest.mark.sampled(3)
@pytest.mark.parametrize("hash_seed", ["1", "4242"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_same_seed_same_trace(version, hash_seed):
    """Another process, another hash seed, another Python: the same trace."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} that can import the kernel is installed here")
    done = _call(python, str(HERE / "determinism_program.py"), hash_seed=hash_seed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == expected()
