"""What a method takes, and from whom, is judged before its messages are read."""

from contextlib import AsyncExitStack
from typing import ClassVar

import anyio
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, CHAT, UNARY, UPLOAD, WORKER, EchoService, authenticate

from iriscw._errors import InvalidArgument
from iriscw.rpc import transport
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import MessageTooLarge, PermissionDenied
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.rules import Bounds, MethodRule, rule_of
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Principal, Role
from raised import that

ANYBODY = (Role.ADMIN, Role.WORKER)


class Ruled(EchoService):
    """Each method with a rule of its own."""

    method_rules: ClassVar = {
        "Unary": MethodRule(roles=(Role.ADMIN,), request=Bounds(max_bytes=1000, max_parts=3)),
        "Download": MethodRule(roles=()),
        "Upload": MethodRule(roles=ANYBODY, request=Bounds(max_bytes=2000, field_bytes={"text": 10})),
        "Chat": MethodRule(roles=(Role.WORKER,)),
    }


@pytest.fixture
async def ruled(stack: AsyncExitStack) -> RpcServer:
    """A door to the service with rules."""
    server = await stack.enter_async_context(RpcServer([Ruled()], authenticate=authenticate))
    await server.listen_tcp("127.0.0.1", 0)
    return server


async def ask(server: RpcServer, request: EchoRequest, token=ADMIN) -> EchoReply:
    """One call on a connection of its own."""
    async with RpcChannel(server.address, token) as channel:
        return await channel.unary(UNARY, request, EchoReply)


async def test_roles(ruled: RpcServer) -> None:
    """A caller without the role is refused by name, in words that say for whom the method is."""
    assert (await ask(ruled, EchoRequest(text="hi"))).text == "hi"
    with pytest.raises(PermissionDenied, check=that(names="Unary")):
        await ask(ruled, EchoRequest(text="hi"), WORKER)
    assert ruled.statistics().calls_refused == 1


async def test_roles_come_before_messages(ruled: RpcServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a caller without the role sends is read, not even the head of it; his connection serves on."""
    monkeypatch.setattr(transport, "decode", lambda *_: pytest.fail("a message was decoded"))
    large = EchoRequest(body=b"x" * (8 << 20))
    with anyio.fail_after(20):
        async with RpcChannel(ruled.address, WORKER) as channel:
            for _ in range(3):
                with pytest.raises(PermissionDenied):
                    await channel.unary(UNARY, large, EchoReply)
    monkeypatch.undo()
    async with RpcChannel(ruled.address, WORKER) as channel, channel.bidi(CHAT, EchoRequest, EchoReply) as call:
        await call.send(EchoRequest(text="a"))
        reply = await call.receive()
    assert reply is not None
    assert reply.text == "a"


async def test_sizes(ruled: RpcServer) -> None:
    """Bytes, parts and single fields each have a bound, the first two before anything is built."""
    with pytest.raises(MessageTooLarge, check=that(names=("1103", "1000"))):
        await ask(ruled, EchoRequest(body=b"x" * 1100))
    async with RpcChannel(ruled.address, ADMIN) as channel:
        crowded = EchoRequest(text="x")
        crowded._unknown_fields = b"\xf8\x7c\x01" * 3
        with pytest.raises(MessageTooLarge, check=that(names=("EchoRequest", "3"))):
            await channel.unary(UNARY, crowded, EchoReply)
        with pytest.raises(MessageTooLarge, check=that(names=("EchoRequest.text", "11", "10"))):
            await channel.client_stream(UPLOAD, [EchoRequest(text="x" * 11)], EchoRequest, EchoReply)
        total = await channel.client_stream(UPLOAD, [EchoRequest(body=b"x" * 1500)] * 3, EchoRequest, EchoReply)
    assert total.count == 4500


def test_a_method_without_a_rule() -> None:
    """A service that has rules has one for each method, and each fits its message: else there is no door."""

    class Forgetful(Ruled):
        method_rules: ClassVar = {"Unary": MethodRule(roles=ANYBODY)}

    class Mistaken(Ruled):
        method_rules: ClassVar = {
            **Ruled.method_rules,
            "Chat": MethodRule(roles=ANYBODY, request=Bounds(field_bytes={"no": 1})),
        }

    with pytest.raises(InvalidArgument, check=that(comes_from="rules.rule_of", names=("Forgetful", "Download"))):
        RpcServer([Forgetful()], authenticate=authenticate)
    with pytest.raises(InvalidArgument, check=that(comes_from="anatomy.by_number", names="EchoRequest")):
        RpcServer([Mistaken()], authenticate=authenticate)
    assert rule_of(EchoService(), UNARY) is None


async def test_the_limits_of_all_messages_hold_too(stack: AsyncExitStack) -> None:
    """A rule allows no more bytes than the door does."""
    limits = RpcLimits(max_message_bytes=500)
    server = await stack.enter_async_context(RpcServer([Ruled()], authenticate=authenticate, limits=limits))
    await server.listen_tcp("127.0.0.1", 0)
    with pytest.raises(MessageTooLarge, check=that(names="500")):
        await ask(server, EchoRequest(body=b"x" * 600))


def test_admit() -> None:
    """A rule names all its roles when it refuses."""
    rule = MethodRule(roles=ANYBODY)
    rule.admit(Principal(Role.ADMIN), "/s/M")
    with pytest.raises(PermissionDenied, check=that(comes_from="rules.MethodRule.admit", names=("/s/M", "local"))):
        rule.admit(Principal(Role.LOCAL), "/s/M")


def test_a_refusal_says_what_the_caller_did() -> None:
    """Where the rule does: a method's name is the wire's, and nobody who calls a client knows it."""
    rule = MethodRule(roles=(Role.ADMIN,), does="list the jobs")
    with pytest.raises(PermissionDenied, check=that(names="admin")) as refused:
        rule.admit(Principal(Role.JOB, job_id="job-1", attempt_uid="a"), "ListJobs")
    assert (rule.does in str(refused.value), "ListJobs" in str(refused.value)) == (True, False)
