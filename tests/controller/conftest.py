"""What the tests of the controller share: configurations, a cloud in memory, and a worker that is not one."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for controller_world

from controller_world import World


@pytest.fixture
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A controller over a cloud in memory, and a client of it."""
    async with World(tmp_path / "state") as world:
        yield world


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test opens."""
    async with AsyncExitStack() as stack:
        yield stack
