"""What the tests of the served simulator share: a server, and callers of it."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from serve_caller import Caller

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings


@pytest.fixture
def anyio_backend():
    """The server is aiohttp's, and that is asyncio's."""
    return "asyncio"


@pytest.fixture
async def server(tmp_path):
    """An API server alone, ten times as fast as real time."""
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", speed=10, controllers=False)
    async with SimServer(settings) as running:
        yield running


@pytest.fixture
async def caller(server):
    """A caller that has the token."""
    async with Caller(server) as calling:
        yield calling


@pytest.fixture(scope="session")
def kubectl_program():
    """The path of a current kubectl; the test is skipped where there is none."""
    finder = Path(__file__).parents[2] / "kube" / "real" / "build-kubectl"
    found = subprocess.run([finder, "--only-find"], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip(f"no kubectl: {found.stderr.strip()}")
    return found.stdout.strip()
