"""What the end-to-end tests share: real clusters of real processes on this machine."""

import pytest

from iriscw.cluster import Cluster


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture
async def cluster():
    """A small cluster that boots at once."""
    async with Cluster.local(nodes=2, boot_delay=0.0, scale_down_delay=1.0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def shared_cluster():
    """One for all tests of a file that leave it as it was: to start a worker takes longer than such a test."""
    async with Cluster.local(nodes=2, boot_delay=0.0) as cluster:
        yield cluster
