"""The peer is a process of its own: killed, and stopped, in the middle of calls."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, DOWNLOAD, UNARY

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from waiting import until

PROGRAM = """
import anyio, sys
sys.path.insert(0, sys.argv[1])
from rpc_world import EchoService, authenticate
from iriscw.rpc.server import RpcServer

async def main():
    async with RpcServer([EchoService()], authenticate=authenticate) as server:
        print(await server.listen_tcp("127.0.0.1", 0), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""

LIMITS = RpcLimits(keepalive_interval_s=0.3, keepalive_timeout_s=0.5)


@pytest.fixture
async def peer() -> AsyncIterator[tuple[int, str]]:
    """A server process: its id and address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(Path(__file__).parent), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    with anyio.fail_after(30):
        yield process.pid, (await process.stdout.readline()).decode().strip()
    if process.returncode is None:
        process.kill()
    await process.communicate()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
async def test_dead_peer_is_noticed(peer: tuple[int, str], sent: signal.Signals) -> None:
    """Calls of every shape end as unavailable soon after the peer died or hung, far before their deadline."""
    pid, address = peer
    ended: list[str] = []
    async with RpcChannel(address, ADMIN, limits=LIMITS) as channel, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(RpcUnavailable):
                await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply)
            ended.append("unary")

        async def listen() -> None:
            request = EchoRequest(text="hold", count=9)
            async with channel.server_stream(DOWNLOAD, request, EchoReply) as replies:
                await anext(replies)
                os.kill(pid, sent)
                with pytest.raises(RpcUnavailable):
                    await anext(replies)
            ended.append("stream")

        with anyio.fail_after(20):
            tasks.start_soon(ask)
            await listen()
        await until(lambda: len(ended) == 2)
    if sent is signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
