"""What these tests share: configurations, a served simulation, and a real API server where one was built."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kube" / "real"))

from deploy_world import HURRY, simulated
from kube_server import NoBinariesError, find_binaries, running_server

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects


@pytest.fixture
def anyio_backend():
    """HTTP is aiohttp's, and that is asyncio's."""
    return "asyncio"


@pytest.fixture(scope="session")
def real_server(tmp_path_factory):
    """One API server for all tests of this process; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


@pytest.fixture
async def server(tmp_path):
    """A served simulation of a CoreWeave cluster in which nothing happens by itself."""
    async with simulated(tmp_path / "kubeconfig") as running:
        yield running


@pytest.fixture
async def objects(server, tmp_path):
    """Its objects."""
    access = await find_access(tmp_path / "kubeconfig")
    async with open_objects(access, settings=HURRY) as opened:
        yield opened
