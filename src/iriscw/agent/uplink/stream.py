"""The session to the controller: one call, dialled by the agent, that carries reports up and orders down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.dialling.messages import Dial, Heartbeat, HeartbeatAcked, Welcomed
from iriscw.dialling.stream import STREAM_TIMEOUT_S, NotWelcomed, alongside, first_answer
from iriscw.dialling.wire import turned_away
from iriscw.nodes import wire
from iriscw.nodes.model import NODE_NAME, Abilities, AgentIdentity, AgentReport, ReportAcked
from iriscw.proto.iriscw import v1
from iriscw.rpc.address import Address
from iriscw.rpc.client import BidiCall, RpcChannel
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import read_token_file
from iriscw.runtime.edge.session import SessionPort
from iriscw.runtime.vocabulary import MILLISECOND

CONNECT = "/iriscw.v1.AgentService/Connect"

Call = BidiCall[v1.AgentMessage, v1.NodeMessage]


@attrs.frozen
class Uplink:
    """Where the controller is, and as whom the agent dials. The files are read each time it dials.

    Raises:
        InvalidArgument: the node has no name that one can have.
    """

    address: Address
    node: str
    token_file: Path
    ca_file: Path | None = None
    insecure_plaintext: bool = False

    def __attrs_post_init__(self) -> None:
        if not NODE_NAME.fullmatch(self.node):
            raise InvalidArgument(f"{self.node[:80]!a} is not a valid node name")


class ControllerStream:
    """Opens streams.

    Args:
        uplink: see there.
        identity: who dials.
        abilities: looks at what the machine can freeze; asked once for each stream.
    """

    def __init__(self, uplink: Uplink, identity: AgentIdentity, abilities: Callable[[], Awaitable[Abilities]]) -> None:
        self._uplink = uplink
        self._identity = identity
        self._abilities = abilities

    async def serve(self, session: Dial, port: SessionPort) -> None:
        """Carry one stream from its hello to its end.

        Raises:
            NotWelcomed: see there.
            IriscwError: as the controller or the connection says it.
            OSError: the files cannot be read.
        """
        async with await self._channel() as channel:
            connecting = channel.bidi(CONNECT, v1.AgentMessage, v1.NodeMessage, timeout_s=STREAM_TIMEOUT_S)
            async with connecting as call:
                hello = wire.hello(self._identity, await self._abilities())
                first = await first_answer(call, v1.AgentMessage(hello=hello))
                if first.refused is not None:
                    await port.send(turned_away(first.refused))
                    return
                if first.welcome is None:
                    raise NotWelcomed("the controller answered the agent's hello with neither a welcome nor a refusal")
                welcome = first.welcome
                await port.send(Welcomed(welcome.session_id, max(0, welcome.heartbeat_interval_ms) * MILLISECOND))
                async with alongside() as tasks:
                    tasks.start_soon(_upward, call, port)
                    await _downward(call, port)

    async def _channel(self) -> RpcChannel:
        uplink = self._uplink
        token = await anyio.to_thread.run_sync(read_token_file, uplink.token_file)
        tls = None
        if uplink.address.tls:
            tls = await anyio.to_thread.run_sync(lambda: client_tls(authority=uplink.ca_file))
        return RpcChannel(uplink.address, token, tls=tls, insecure_plaintext=uplink.insecure_plaintext)


async def _upward(call: Call, port: SessionPort) -> None:
    async for item in port:
        match item:
            case AgentReport():
                await call.send(v1.AgentMessage(report=wire.report(item)))
            case Heartbeat(sequence=sequence):
                await call.send(v1.AgentMessage(heartbeat=v1.Heartbeat(sequence=sequence)))


async def _downward(call: Call, port: SessionPort) -> None:
    async for message in call:
        if message.orders is not None:
            await port.send(wire.read_orders(message.orders))
        elif message.report_ack is not None:
            await port.send(ReportAcked(message.report_ack.sequence))
        elif message.heartbeat_ack is not None:
            await port.send(HeartbeatAcked(message.heartbeat_ack.sequence))
        elif message.refused is not None:
            await port.send(turned_away(message.refused))
