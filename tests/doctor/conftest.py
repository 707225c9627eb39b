"""What these tests share: a served simulation of a CoreWeave cluster, and whoever asks there."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
sys.path.insert(0, str(Path(__file__).parents[1] / "kube" / "real"))

from deploy_world import HURRY, simulated

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects


@pytest.fixture
def anyio_backend():
    """HTTP is aiohttp's, and that is asyncio's."""
    return "asyncio"


@pytest.fixture
async def server(tmp_path):
    """A served simulation in which nothing happens by itself."""
    async with simulated(tmp_path / "kubeconfig") as running:
        yield running


@pytest.fixture
async def objects(server, tmp_path):
    """Its objects, as an administrator has them."""
    async with open_objects(await find_access(tmp_path / "kubeconfig"), settings=HURRY) as opened:
        yield opened
