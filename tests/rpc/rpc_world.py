"""The service behind the tests' doors, its routes and tokens, and what a stranger needs to knock."""

import asyncio
from collections.abc import AsyncIterator

import anyio
from rpc_echo import EchoReply, EchoRequest, EchoServiceBase

from iriscw._errors import InvalidArgument, JournalUnavailable, NoSuchActor
from iriscw.rpc.address import Address
from iriscw.rpc.context import call_context
from iriscw.rpc.tokens import ClusterTokens, Principal, Role, Secret

PREFIX = "/iriscw.test.v1.EchoService/"
UNARY, DOWNLOAD, UPLOAD, CHAT = (PREFIX + name for name in ("Unary", "Download", "Upload", "Chat"))

ADMIN = Secret("admin-token")
WORKER = Secret("worker-token")
TOKENS = ClusterTokens(Secret("cluster-secret"), admins=[ADMIN], workers=[WORKER])


def authenticate(token: str) -> Principal | None:
    """The callback of the tests' servers."""
    return TOKENS.authenticate(token)


class EchoService(EchoServiceBase):
    """Answers what it was sent; ``text`` chooses how."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail_first = 0
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.cleaned = asyncio.Event()
        self.release = asyncio.Event()

    async def unary(self, message: EchoRequest) -> EchoReply:
        self.calls += 1
        self.started.set()
        match message.text:
            case "who":
                call = call_context()
                text = f"{call.principal}|{call.method}|{call.idempotency_key}|{'authorization' in call.metadata}"
                return EchoReply(text=text)
            case "usage":
                raise InvalidArgument("the size is negative")
            case "absent":
                raise NoSuchActor("/fleet/h100")
            case "busy":
                raise JournalUnavailable("disk full")
            case "flaky" if self.calls <= self.fail_first:
                raise JournalUnavailable("not yet")
            case "bug":
                raise ZeroDivisionError("a secret in the text")
            case "admins":
                call_context().require(Role.ADMIN)
            case "wait":
                await self._until_released()
            case "sleep":
                await anyio.sleep(message.count / 1000)
            case "big":
                return EchoReply(body=b"x" * message.count)
            case "deadline":
                return EchoReply(count=int(1000 * (call_context().deadline_s - anyio.current_time())))
        return EchoReply(text=message.text, count=message.count, body=message.body)

    async def _until_released(self) -> None:
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)  # clean-up that waits: it must not be interrupted
                self.cleaned.set()
            raise

    async def download(self, message: EchoRequest) -> AsyncIterator[EchoReply]:
        try:
            for number in range(message.count):
                yield EchoReply(count=number, body=message.body)
                if message.text == "fail" and number == 2:
                    raise InvalidArgument("three is enough")
                if message.text == "hold":
                    self.started.set()
                    await self._until_released()
        finally:
            self.cancelled.set()

    async def upload(self, messages: AsyncIterator[EchoRequest]) -> EchoReply:
        total = 0
        async for message in messages:
            total += len(message.body) + message.count
            if message.text == "enough":
                return EchoReply(count=total)
            if message.text == "refuse":
                raise InvalidArgument("no more")
        return EchoReply(count=total)

    async def chat(self, messages: AsyncIterator[EchoRequest]) -> AsyncIterator[EchoReply]:
        async with anyio.create_task_group():  # a scope inside a generator: it must be left in its own task
            try:
                async for message in messages:
                    if message.text == "bye":
                        return
                    if message.text == "refuse":
                        raise InvalidArgument("no more")
                    yield EchoReply(text=message.text, count=message.count)
            finally:
                self.cleaned.set()


async def knock(address: Address, data: bytes) -> bytes:
    """Send ``data`` on a fresh connection and read until the server ends it."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
