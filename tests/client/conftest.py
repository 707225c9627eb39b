"""A scripted controller behind a real door on loopback, for the tests of the client."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from controller_double import TOKEN, ControllerDouble, TokensOfDouble

from iriscw.client.client import Client, connect
from iriscw.rpc.server import RpcServer


@pytest.fixture
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture
def controller() -> ControllerDouble:
    """The service; its fields say what it answers and what it was asked."""
    return ControllerDouble()


@pytest.fixture
async def door(controller: ControllerDouble):
    """A door to it on a free loopback port."""
    async with RpcServer([controller], authenticate=TokensOfDouble) as server:
        await server.listen_tcp("127.0.0.1", 0)
        yield server


@pytest.fixture
async def client(door: RpcServer) -> Client:
    """A client of it."""
    async with connect(str(door.address), TOKEN) as client:
        yield client
