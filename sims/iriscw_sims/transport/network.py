"""A TCP network in memory: addresses, connections, and what can go wrong between them, at TCP's own granularity.

Theory of operation. All hosts reach each other. A connection has two ends and two wires, *up* from who connected and
*down* to it. What goes wrong is drawn from the network's seed or asked for by a test, and happens either to the network
(partitions in one direction, refused and unanswered connections, slow accepting) or to connections (breaks, half-open
directions, resets). Bytes arrive in order and once, or not at all from some byte on; single messages are never lost,
since TCP has none.

Everything that happens is a line of the trace: its time and what it was. ``fingerprint`` is the hash of all of them.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import hashlib
import ipaddress
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from iriscw_sims.transport.endpoint import Endpoint
from iriscw_sims.transport.loop import VirtualLoop
from iriscw_sims.transport.wire import Weather, Wire

SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Between two attempts of a kernel to connect; 127 s in all, then it gives up (Linux: ``tcp_syn_retries`` = 6)."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - of a network in memory
FIRST_PORT = 32_768
"""Of those that the network gives away (Linux: the same)."""

MAX_TRACE_LINES = 10_000
"""Of the trace that are kept for people; the fingerprint counts all."""

ProtocolFactory = Callable[[], asyncio.Protocol | asyncio.BufferedProtocol]


class FaultKind(enum.Enum):
    """What can go wrong. A fault of a connection happens to all that are open."""

    BREAK = "break"
    """Each direction loses all but a drawn prefix of what is on its way; then both ends see a reset."""

    HALF_OPEN_UP = "half-open up"
    """What the connecting side sends vanishes, for good; nobody is told."""

    HALF_OPEN_DOWN = "half-open down"
    VANISH = "vanish"
    """Both directions, as when a host loses its power."""

    PARTITION_UP = "partition up"
    """What the connecting side sends is held until the partition ends; new connections find nobody."""

    PARTITION_DOWN = "partition down"
    REFUSE = "refuse"
    """New connections are refused."""

    HANG = "hang"
    """New connections are not answered."""

    SLOW_ACCEPT = "slow accept"
    """The kernel takes connections, the process takes them from the kernel later."""

    SLOW = "slow"
    """A hundredth of the bandwidth, and a hundred times the latency."""

    NARROW = "narrow"
    """Windows of 1 KiB."""


@attrs.frozen
class Fault:
    """Something that goes wrong ``at_s`` after the network's beginning, for ``duration_s`` if it lasts."""

    kind: FaultKind
    at_s: float
    duration_s: float = 1.0


@attrs.define(eq=False)
class Connection:
    """Two ends and two wires."""

    number: int
    client: Endpoint
    server: Endpoint
    up: Wire
    down: Wire

    @property
    def open(self) -> bool:
        """Whether either end believes in it."""
        return not (self.client.gone and self.server.gone)

    def break_off(self) -> None:
        """Lose all but an unknown prefix of each direction; both ends see a reset after it."""
        self.up.cut()
        self.down.cut()
        self.up.send(self.server.reset)
        self.down.send(self.client.reset)


class ListeningSocket:
    """What a server says of where it listens. It has no descriptor, as a closed socket has none."""

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        """Return the address."""
        return self._name

    def fileno(self) -> int:
        """Return no descriptor."""
        return -1


class Listener(asyncio.AbstractServer):
    """An open door: accepts until it is closed."""

    def __init__(self, network: Network, factory: ProtocolFactory, name: tuple[str, int]) -> None:
        self._network = network
        self.factory = factory
        self._name = name
        self.sockets: tuple[ListeningSocket, ...] = (ListeningSocket(name),)
        self.waiting: dict[int, Endpoint] = {}
        """Connections that the kernel has made and nobody accepted yet, by number."""

    def close(self) -> None:
        """Accept no more; what was not accepted is cut."""
        if self.is_serving():
            self._network.forget(self._name)
            for endpoint in self.waiting.values():
                endpoint.drop()

    def is_serving(self) -> bool:
        """Whether it accepts."""
        return self._network.listener(self._name) is self

    async def wait_closed(self) -> None:
        """Give control back once it is closed, which is at once."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return self._network.loop

    async def start_serving(self) -> None:
        """Do nothing: it accepts from the beginning."""

    async def serve_forever(self) -> None:
        """Wait until cancelled."""
        await self._network.loop.create_future()


class Network:
    """The network of one run.

    Args:
        loop: the run's; the network takes its place in it.
        seed: of everything that is drawn.
        weather: how good the network is when nothing is wrong.
        names: host names, and the address of each. Addresses need none.
    """

    def __init__(
        self, loop: VirtualLoop, seed: object, weather: Weather | None = None, names: dict[str, str] | None = None
    ) -> None:
        self.loop = loop
        self.rng = random.Random(f"network {seed}")
        self.accept_delay_s = 0.0
        self.refusing = self.hanging = False
        self.connections: list[Connection] = []
        """Those that either end believes in."""
        self.dials = 0
        """Attempts to connect."""
        self.lines: deque[str] = deque(maxlen=MAX_TRACE_LINES)
        """The end of the trace."""
        self.calm = weather or Weather()
        """How good it is when nothing is wrong."""
        self._weather = self.calm
        self._names = {"localhost": "127.0.0.1", **(names or {})}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._numbers = 0
        self._ports = FIRST_PORT
        self._stalled = {"up": False, "down": False}
        self._hash = hashlib.sha256()
        loop.network = self

    # The trace

    def note(self, line: str) -> None:
        """Add a line to the trace, with the time."""
        text = f"{self.loop.now_ns} {line}"
        self.lines.append(text)
        self._hash.update(text.encode() + b"\n")

    @property
    def fingerprint(self) -> str:
        """The hash of all lines of the trace."""
        return self._hash.hexdigest()

    # The loop's side

    async def resolve(self, host: str | None, port: int) -> list[tuple[Any, ...]]:
        """Return the one address of a host; that of all, if it is none.

        Raises:
            OSError: nobody knows the name.
        """
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self._address(host or ANY_ADDRESS), port))]

    def _address(self, host: str) -> str:
        if host in self._names:
            return self._names[host]
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None

    async def create_server(self, factory: ProtocolFactory, host: str | None, port: int) -> Listener:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: somebody else listens there, or nobody knows the name.
        """
        name = (self._address(host or ANY_ADDRESS), port or self._free_port())
        if name in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[name] = Listener(self, factory, name)
        self.note(f"listening on {name[0]}:{name[1]}")
        return listener

    def _free_port(self) -> int:
        self._ports += 1
        return self._ports

    def listener(self, name: tuple[str, int]) -> Listener | None:
        """Return who listens at an address."""
        return self._listeners.get(name) or self._listeners.get((ANY_ADDRESS, name[1]))

    def forget(self, name: tuple[str, int]) -> None:
        """Take note that nobody listens there any more."""
        del self._listeners[name]
        self.note(f"closed {name[0]}:{name[1]}")

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[Endpoint, asyncio.Protocol | asyncio.BufferedProtocol]:
        """Connect.

        Raises:
            OSError: it is refused, nobody answers, or nobody knows the name.
        """
        name = (self._address(host), port)
        self.dials += 1
        for pause_s in SYN_RETRIES_S:
            self.note(f"dialling {name[0]}:{name[1]}")
            if not (self.hanging or self._stalled["up"] or self._stalled["down"]):
                break
            await asyncio.sleep(pause_s)
        else:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        await asyncio.sleep(self._latency_s())
        listener = self.listener(name)
        if listener is None or self.refusing:
            await asyncio.sleep(self._latency_s())
            self.note("refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        connection = self._connect(name)
        listener.waiting[connection.number] = connection.server
        self.loop.call_later(self.accept_delay_s, self._accept, listener, connection)
        try:
            await asyncio.sleep(self._latency_s())
        except asyncio.CancelledError:
            connection.client.drop()
            raise
        protocol = factory()
        connection.client.open(protocol)
        try:
            await asyncio.sleep(0)  # as asyncio does, until the protocol has been told
        except BaseException:
            connection.client.close()
            raise
        return connection.client, protocol

    def _latency_s(self) -> float:
        return self.rng.uniform(*self._weather.latency_s)

    def _connect(self, name: tuple[str, int]) -> Connection:
        self._numbers += 1
        number, own = self._numbers, ("127.0.0.1", self._free_port())
        client = Endpoint(self.loop, f"client {number}", (own, name), self.weather, self.note)
        server = Endpoint(self.loop, f"server {number}", (name, own), self.weather, self.note)
        up, down = (Wire(self.loop, random.Random(self.rng.getrandbits(64)), self.weather) for _ in range(2))
        client.connect(server, up)
        server.connect(client, down)
        for stalled, wire in ((self._stalled["up"], up), (self._stalled["down"], down)):
            if stalled:
                wire.stall()
        connection = Connection(number, client, server, up, down)
        self.connections = [each for each in self.connections if each.open]
        self.connections.append(connection)
        self.note(f"connection {number} to {name[0]}:{name[1]}")
        return connection

    def _accept(self, listener: Listener, connection: Connection) -> None:
        del listener.waiting[connection.number]
        if listener.is_serving() and not connection.server.gone:
            connection.server.open(listener.factory())

    def weather(self) -> Weather:
        """Return the present weather."""
        return self._weather

    # What goes wrong

    def open_connections(self) -> list[Connection]:
        """Return those that either end believes in."""
        return [connection for connection in self.connections if connection.open]

    def partition(self, direction: str) -> None:
        """Hold all that goes ``up`` or ``down``."""
        self._stalled[direction] = True
        for connection in self.open_connections():
            getattr(connection, direction).stall()

    def heal(self, direction: str) -> None:
        """Let it through again."""
        self._stalled[direction] = False
        for connection in self.open_connections():
            getattr(connection, direction).heal()

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Have these faults happen."""
        for fault in faults:
            self.loop.call_later(fault.at_s, self.strike, fault)

    def strike(self, fault: Fault) -> None:
        """Have a fault happen now."""
        self.note(f"fault {fault.kind.value}")
        kind = fault.kind
        if kind in _OF_CONNECTIONS:
            for connection in self.open_connections():
                _OF_CONNECTIONS[kind](connection)
            return
        begin, end = _OF_NETWORKS[kind]
        begin(self)
        self.loop.call_later(fault.duration_s, self._over, kind, end)

    def _over(self, kind: FaultKind, end: Callable[[Network], None]) -> None:
        self.note(f"over {kind.value}")
        end(self)

    def change_weather(self, **changes: Any) -> None:
        """Make the weather differ from what it is when nothing is wrong; nothing: make it good again."""
        self._weather = attrs.evolve(self.calm, **changes)


def _set(**fields: Any) -> Callable[[Network], None]:
    def change(network: Network) -> None:
        for name, value in fields.items():
            setattr(network, name, value)

    return change


def _slow(network: Network) -> None:
    low, high = network.calm.latency_s
    network.change_weather(bytes_per_s=network.calm.bytes_per_s / 100, latency_s=(100 * low, 100 * high))


def _vanish(connection: Connection) -> None:
    connection.up.die()
    connection.down.die()


_OF_CONNECTIONS: dict[FaultKind, Callable[[Connection], None]] = {
    FaultKind.BREAK: Connection.break_off,
    FaultKind.HALF_OPEN_UP: lambda connection: connection.up.die(),
    FaultKind.HALF_OPEN_DOWN: lambda connection: connection.down.die(),
    FaultKind.VANISH: _vanish,
}
_OF_NETWORKS: dict[FaultKind, tuple[Callable[[Network], None], Callable[[Network], None]]] = {
    FaultKind.PARTITION_UP: (lambda network: network.partition("up"), lambda network: network.heal("up")),
    FaultKind.PARTITION_DOWN: (lambda network: network.partition("down"), lambda network: network.heal("down")),
    FaultKind.REFUSE: (_set(refusing=True), _set(refusing=False)),
    FaultKind.HANG: (_set(hanging=True), _set(hanging=False)),
    FaultKind.SLOW_ACCEPT: (_set(accept_delay_s=5.0), _set(accept_delay_s=0.0)),
    FaultKind.SLOW: (_slow, Network.change_weather),
    FaultKind.NARROW: (lambda network: network.change_weather(window_bytes=1024), Network.change_weather),
}
