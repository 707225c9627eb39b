"""What the tests of iriscw.rpc share: a service of four shapes, doors to it, and channels through them."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the generated rpc_echo and for rpc_world

from rpc_world import ADMIN, EchoService, authenticate

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.server import RpcServer

Open = Callable[..., RpcChannel]


@pytest.fixture
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture
def echo() -> EchoService:
    """The service; its fields tell what happened to it."""
    return EchoService()


@pytest.fixture
async def server(echo: EchoService) -> AsyncIterator[RpcServer]:
    """A door on a free loopback port."""
    async with RpcServer([echo], authenticate=authenticate) as server:
        await server.listen_tcp("127.0.0.1", 0)
        yield server


@pytest.fixture
async def channel(server: RpcServer) -> AsyncIterator[RpcChannel]:
    """An authenticated channel to ``server``."""
    async with RpcChannel(server.address, ADMIN) as channel:
        yield channel


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test opens."""
    async with AsyncExitStack() as stack:
        yield stack
