"""What the tests of CUDA share: the stand-in for NVIDIA's driver, compiled once, and processes with a context."""

import subprocess
import sys
from pathlib import Path

import pytest

from iriscw.freeze.drivers.identities import identify_task

sys.path.insert(0, str(Path(__file__).parent))  # for stand_in

from stand_in import GIB, StandIn, compile_into

SLEEPER = [sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """The library, compiled once."""
    path = compile_into(tmp_path_factory.mktemp("standin"))
    if path is None:
        pytest.skip("there is no gcc to compile the stand-in for NVIDIA's driver with")
    return path


@pytest.fixture
def standin(tmp_path, compiled) -> StandIn:
    return StandIn(tmp_path, compiled)


@pytest.fixture
def process(standin):
    """Yield a function that starts a process, with a CUDA context of so many bytes or without one."""
    started = []

    def start(size: int | None = 2 * GIB):
        each = subprocess.Popen(SLEEPER, stdout=subprocess.PIPE)
        started.append(each)
        each.stdout.readline()
        if size is not None:
            standin.put(str(each.pid), f"0 {size} 0")
        return identify_task(each.pid)

    yield start
    for each in started:
        each.kill()
        each.communicate()
