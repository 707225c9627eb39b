"""The same wire as Google's implementation, in both directions, on TCP and unix sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, CHAT, DOWNLOAD, PREFIX, UNARY, UPLOAD, EchoService

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import MessageTooLarge, RemoteRefusal, RpcDeadline, RpcUnavailable, VersionMismatch
from iriscw.rpc.server import RpcServer
from raised import that

AUTHORIZED = (("authorization", f"Bearer {ADMIN.reveal()}"),)
PATIENCE_S = 60
"""For what takes milliseconds on a machine that is not busy."""

CODEC = {"request_serializer": bytes, "response_deserializer": EchoReply.parse}


class Google:
    """A grpcio channel with the four calls."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.aio.insecure_channel(target)
        self.unary = self.channel.unary_unary(UNARY, **CODEC)
        self.download = self.channel.unary_stream(DOWNLOAD, **CODEC)
        self.upload = self.channel.stream_unary(UPLOAD, **CODEC)
        self.chat = self.channel.stream_stream(CHAT, **CODEC)


@pytest.fixture
async def google(server: RpcServer) -> AsyncIterator[Google]:
    """A grpcio client of our server."""
    client = Google(str(server.address))
    yield client
    await client.channel.close()


class TestGoogleCallsUs:
    """A grpcio client at our door."""

    async def test_shapes(self, google: Google) -> None:
        """All four shapes."""
        assert (await google.unary(EchoRequest(text="ä"), metadata=AUTHORIZED)).text == "ä"
        replies = google.download(EchoRequest(count=100), metadata=AUTHORIZED)
        assert [reply.count async for reply in replies] == list(range(100))
        requests = [EchoRequest(count=n, body=b"x" * 70_000) for n in range(10)]
        total = await google.upload(iter(requests), metadata=AUTHORIZED)
        assert total.count == 45 + 700_000
        answers = google.chat(iter(requests), metadata=AUTHORIZED)
        assert [answer.count async for answer in answers] == list(range(10))

    @pytest.mark.parametrize(
        ("text", "status", "name"),
        [
            ("usage", grpc.StatusCode.INVALID_ARGUMENT, "InvalidArgument"),
            ("absent", grpc.StatusCode.NOT_FOUND, "NoSuchActor"),
            ("busy", grpc.StatusCode.UNAVAILABLE, "JournalUnavailable"),
            ("bug", grpc.StatusCode.INTERNAL, None),
        ],
    )
    async def test_errors(self, google: Google, text: str, status: grpc.StatusCode, name: str | None) -> None:
        """Statuses as clients in other languages expect them, and the name of the class."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await google.unary(EchoRequest(text=text), metadata=AUTHORIZED)
        assert caught.value.code() is status
        assert dict(caught.value.trailing_metadata()).get("iriscw-error") == name

    async def test_no_token(self, google: Google) -> None:
        """A stranger is told that it is one."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await google.unary(EchoRequest())
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    async def test_deadline(self, google: Google, echo: EchoService) -> None:
        """The caller's deadline ends the method."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await google.unary(EchoRequest(text="wait"), metadata=AUTHORIZED, timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        with anyio.fail_after(PATIENCE_S):
            await echo.cleaned.wait()

    async def test_cancel(self, google: Google, echo: EchoService) -> None:
        """A cancelled call cancels the method, and its clean-up ends."""
        call = google.unary(EchoRequest(text="wait"), metadata=AUTHORIZED)
        task = asyncio.ensure_future(_outcome(call))
        await echo.started.wait()
        call.cancel()
        await task
        with anyio.fail_after(PATIENCE_S):
            await echo.cleaned.wait()

    async def test_too_large(self, google: Google) -> None:
        """A message over the limit is refused by status."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await google.unary(EchoRequest(body=b"x" * (17 << 20)), metadata=AUTHORIZED)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def test_compressed(self, google: Google) -> None:
        """Compressed messages are refused by status, not by a broken connection."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await google.unary(EchoRequest(text="x" * 5000), metadata=AUTHORIZED, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    async def test_drain(self, google: Google, server: RpcServer, echo: EchoService) -> None:
        """A drain tells calls under way that the server is unavailable."""
        task = asyncio.ensure_future(_outcome(google.unary(EchoRequest(text="wait"), metadata=AUTHORIZED)))
        await echo.started.wait()
        with anyio.fail_after(10):
            await server.drain(0)
            assert await task is grpc.StatusCode.UNAVAILABLE

    async def test_unix(self, server: RpcServer, tmp_path: Path) -> None:
        """The unix socket, without a token."""
        client = Google(str(await server.listen_unix(tmp_path / "s")))
        assert (await client.unary(EchoRequest(text="who"))).text.startswith("local|")
        await client.channel.close()


async def _outcome(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    except asyncio.CancelledError:
        return None


class GoogleEcho(grpc.GenericRpcHandler):
    """A grpcio server's side of the service."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.deadline: float | None = None

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        codec = {"request_deserializer": EchoRequest.parse, "response_serializer": bytes}
        makers: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
            UNARY: (grpc.unary_unary_rpc_method_handler, self.unary),
            DOWNLOAD: (grpc.unary_stream_rpc_method_handler, self.download),
            UPLOAD: (grpc.stream_unary_rpc_method_handler, self.upload),
            CHAT: (grpc.stream_stream_rpc_method_handler, self.chat),
        }
        if details.method not in makers:
            return None
        make, method = makers[details.method]
        return make(method, **codec)

    async def unary(self, request: EchoRequest, context: Any) -> EchoReply:
        self.deadline = context.time_remaining()
        if request.text == "abort":
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "schon da: ä")
        if request.text == "big":
            return EchoReply(body=b"x" * (17 << 20))
        if request.text == "wait":
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        return EchoReply(text=request.text)

    async def download(self, request: EchoRequest, context: Any) -> AsyncIterator[EchoReply]:
        for number in range(request.count):
            yield EchoReply(count=number)

    async def upload(self, requests: AsyncIterator[EchoRequest], context: Any) -> EchoReply:
        return EchoReply(count=sum([len(request.body) async for request in requests]))

    async def chat(self, requests: AsyncIterator[EchoRequest], context: Any) -> AsyncIterator[EchoReply]:
        async for request in requests:
            yield EchoReply(count=request.count)


@pytest.fixture
async def theirs(stack: AsyncExitStack) -> AsyncIterator[tuple[RpcChannel, GoogleEcho]]:
    """Our channel to a grpcio server."""
    service = GoogleEcho()
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with RpcChannel(f"127.0.0.1:{port}", ADMIN) as channel:
        yield channel, service
    await server.stop(None)


class TestWeCallGoogle:
    """Our channel at a grpcio door."""

    async def test_shapes(self, theirs: tuple[RpcChannel, GoogleEcho]) -> None:
        """All four shapes."""
        channel, service = theirs
        assert (await channel.unary(UNARY, EchoRequest(text="ä"), EchoReply, timeout_s=5)).text == "ä"
        assert service.deadline is not None
        assert service.deadline < 5.1
        async with channel.server_stream(DOWNLOAD, EchoRequest(count=100), EchoReply) as replies:
            assert [reply.count async for reply in replies] == list(range(100))
        requests = [EchoRequest(count=n, body=b"x" * 70_000) for n in range(10)]
        assert (await channel.client_stream(UPLOAD, requests, EchoRequest, EchoReply)).count == 700_000
        async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
            for number in range(10):
                await call.send(EchoRequest(count=number))
                assert (await call.receive()).count == number  # type: ignore[union-attr]
            await call.end()
            assert await call.receive() is None

    async def test_errors(self, theirs: tuple[RpcChannel, GoogleEcho]) -> None:
        """A status without a name becomes the nearest error, with the peer's text."""
        channel, _ = theirs
        with pytest.raises(RemoteRefusal, check=that(names="ä")):
            await channel.unary(UNARY, EchoRequest(text="abort"), EchoReply)
        with pytest.raises(VersionMismatch):
            await channel.unary(PREFIX + "New", EchoRequest(), EchoReply)
        with pytest.raises(MessageTooLarge):
            await channel.unary(UNARY, EchoRequest(text="big"), EchoReply)

    async def test_deadline_and_cancel(self, theirs: tuple[RpcChannel, GoogleEcho]) -> None:
        """Both end the peer's method."""
        channel, service = theirs
        with pytest.raises(RpcDeadline):
            await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply, timeout_s=0.1)
        with anyio.fail_after(PATIENCE_S):
            await service.cancelled.wait()
        service.cancelled.clear()
        with anyio.move_on_after(0.1):
            await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply)
        with anyio.fail_after(PATIENCE_S):
            await service.cancelled.wait()

    async def test_leaving_a_stream(self, theirs: tuple[RpcChannel, GoogleEcho]) -> None:
        """Leaving early does not harm the connection."""
        channel, _ = theirs
        async with channel.server_stream(DOWNLOAD, EchoRequest(count=100_000), EchoReply) as replies:
            await anext(replies)
        assert (await channel.unary(UNARY, EchoRequest(text="on"), EchoReply)).text == "on"

    async def test_closed_channel(self, theirs: tuple[RpcChannel, GoogleEcho]) -> None:
        """Closing the channel ends its calls as unavailable."""
        channel, _ = theirs
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(RpcUnavailable):
                    await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply)

            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            channel.close()
