"""Callers whom the door does not know, and somebody else vouches for."""

from contextlib import AsyncExitStack
from typing import ClassVar

import anyio
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, CHAT, DOWNLOAD, UNARY, EchoService, authenticate

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import PermissionDenied, RpcUnavailable, Unauthenticated
from iriscw.rpc.rules import MethodRule
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Principal, Role, Secret
from raised import that

KNOWN, UNKNOWN, LATE = Secret("agent"), Secret("stranger"), Secret("late")


class Vouched(EchoService):
    """Two methods take callers whom somebody vouches for."""

    method_rules: ClassVar = {
        "Unary": MethodRule(roles=(Role.ADMIN, Role.AGENT), proven=True),
        "Download": MethodRule(roles=(Role.ADMIN,), proven=True),
        "Upload": MethodRule(roles=(Role.AGENT,)),
        "Chat": MethodRule(roles=(Role.AGENT,)),
    }


class Elsewhere:
    """Vouches for one, says nothing of another, and keeps the third waiting."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.open = anyio.Event()
        self.asked = anyio.Event()

    async def prove(self, token: str) -> Principal | None:
        """Say who holds a token."""
        self.shown.append(token)
        self.asked.set()
        if token == LATE.reveal():
            await self.open.wait()
        if token == "away":
            raise RpcUnavailable("nobody is there")
        return Principal(Role.AGENT) if token in (KNOWN.reveal(), LATE.reveal()) else None


@pytest.fixture
def elsewhere() -> Elsewhere:
    """Who vouches."""
    return Elsewhere()


async def opened(stack: AsyncExitStack, elsewhere: Elsewhere) -> RpcServer:
    """A door."""
    server = RpcServer([Vouched()], authenticate=authenticate, prove=elsewhere.prove)
    await stack.enter_async_context(server)
    await server.listen_tcp("127.0.0.1", 0)
    return server


async def ask(server: RpcServer, token: Secret | None, method: str = UNARY) -> str:
    """One call on a connection of its own."""
    async with RpcChannel(server.address, token) as channel:
        return (await channel.unary(method, EchoRequest(text="hi"), EchoReply)).text


async def test_whom_somebody_vouches_for(stack: AsyncExitStack, elsewhere: Elsewhere) -> None:
    """He is let in where the rule says so; those whom the door knows cost nobody a question."""
    server = await opened(stack, elsewhere)
    assert await ask(server, KNOWN) == "hi"
    assert await ask(server, ADMIN) == "hi"
    with pytest.raises(Unauthenticated):
        await ask(server, UNKNOWN)
    with pytest.raises(Unauthenticated):
        await ask(server, None)
    assert elsewhere.shown == [KNOWN.reveal(), UNKNOWN.reveal()]


async def test_methods_for_others_ask_nobody(stack: AsyncExitStack, elsewhere: Elsewhere) -> None:
    """Roles hold for him, too."""
    server = await opened(stack, elsewhere)
    async with RpcChannel(server.address, KNOWN) as channel:
        with pytest.raises(Unauthenticated):
            async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
                await call.receive()
        assert elsewhere.shown == []
        with pytest.raises(PermissionDenied, check=that(names=("admin", "agent"))):
            async with channel.server_stream(DOWNLOAD, EchoRequest(), EchoReply) as replies:
                await anext(replies)


async def test_no_answer_is_told_as_what_it_is(stack: AsyncExitStack, elsewhere: Elsewhere) -> None:
    """By its name, and counted as a refusal: nobody was let in."""
    server = await opened(stack, elsewhere)
    with pytest.raises(RpcUnavailable, check=that(names="nobody")):
        await ask(server, Secret("away"))
    assert server.statistics().calls_refused == 1
    assert server.statistics().calls_started == 0


async def test_one_question_of_a_connection_at_a_time(stack: AsyncExitStack, elsewhere: Elsewhere) -> None:
    """Another call waits for nobody; the first is served when the answer comes, and others meanwhile."""
    server = await opened(stack, elsewhere)
    found: list[str] = []
    with anyio.fail_after(20):
        async with RpcChannel(server.address, LATE) as channel, anyio.create_task_group() as tasks:

            async def first() -> None:
                found.append((await channel.unary(UNARY, EchoRequest(text="late"), EchoReply)).text)

            tasks.start_soon(first)
            await elsewhere.asked.wait()
            with pytest.raises(RpcUnavailable, check=that(names="token")):
                await channel.unary(UNARY, EchoRequest(), EchoReply)
            assert await ask(server, ADMIN) == "hi"
            assert found == []
            elsewhere.open.set()
    assert found == ["late"]
    assert elsewhere.shown == [LATE.reveal()]


async def test_who_leaves_before_the_answer(stack: AsyncExitStack, elsewhere: Elsewhere) -> None:
    """His place is free again, and nothing of his was begun."""
    server = await opened(stack, elsewhere)
    with anyio.fail_after(20):
        async with RpcChannel(server.address, LATE) as channel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(channel.unary, UNARY, EchoRequest(), EchoReply)
                await elsewhere.asked.wait()
                tasks.cancel_scope.cancel()
            elsewhere.open.set()
            assert (await channel.unary(UNARY, EchoRequest(text="again"), EchoReply)).text == "again"
    assert server.statistics().calls_started == 1
