"""Ports over a websocket: by channels, by a tunnel, and refusals before the upgrade."""

import struct

import aiohttp
import pytest
from serve_caller import MERGE, PODS, a_pod
from test_spdy import Client

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.forwarding import PortUnreachable
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_SLICE,
    LABEL_WORKER,
    Capacity,
    NodePoolSpec,
    PodPhase,
    PodSpec,
)
from iriscw_sims.serve.portforward import CHANNELS, PORTS_LIMIT, STREAMS_LIMIT, TUNNEL
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings, Timing
from iriscw_sims.serve.spdy import FIN, PING, RST_STREAM, SYN_REPLY
from raised import that
from waiting import until

PORTFORWARD = f"{PODS}/p/portforward"
GET = b"GET /health HTTP/1.1\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def running(server, caller, monkeypatch):
    """A pod that runs on a node that can be reached."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    return await caller.run()


def opened(caller, protocol, *ports, path=PORTFORWARD):
    """Open a websocket."""
    protocols = [protocol] if protocol else []
    return caller.session.ws_connect(path, params=[("ports", str(port)) for port in ports], protocols=protocols)


# Channels


@pytest.mark.parametrize("protocol", [CHANNELS, ""])
async def test_a_port_is_reached(running, caller, protocol):
    """Each channel begins with the port; requests go in on one, answers come out of it."""
    async with opened(caller, protocol, 8080) as socket:
        assert (socket.protocol or "") == protocol
        port = struct.pack("<H", 8080)
        assert [await socket.receive_bytes(), await socket.receive_bytes()] == [b"\0" + port, b"\1" + port]
        await socket.send_bytes(b"\0" + GET[:5])
        await socket.send_bytes(b"\0" + GET[5:])
        assert (await socket.receive_bytes()).startswith(b"\0HTTP/1.1 200 OK")
        await socket.send_bytes(b"\0" + LAST)
        assert (await socket.receive_bytes()).startswith(b"\0HTTP/1.1 200 OK")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_several_ports_have_channels_of_their_own(running, caller):
    """What is said on the second is answered there; what belongs to none is ignored."""
    async with opened(caller, CHANNELS, "1,2") as socket:
        firsts = [await socket.receive_bytes() for _ in range(4)]
        assert [first[0] for first in firsts] == [0, 1, 2, 3]
        for strange in (b"", b"\x01" + GET, b"\x63" + GET):
            await socket.send_bytes(strange)
        await socket.send_bytes(b"\x02" + GET)
        assert (await socket.receive_bytes()).startswith(b"\x02HTTP/1.1 200")


async def test_a_port_on_which_nothing_listens(server, caller, running):
    """Its channel says why, and that is the end if it is the only one."""
    ports = [{"name": "main", "image": "x", "ports": [{"containerPort": 8080}]}]
    await caller.done("POST", PODS, a_pod("q", nodeName="n", containers=ports))
    await caller.done("PATCH", f"{PODS}/q/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    async with opened(caller, CHANNELS, 80, path=f"{PODS}/q/portforward") as socket:
        said = [await socket.receive_bytes() for _ in range(3)][2]
        assert said.startswith(b"\1error forwarding port 80 to pod q, uid ")
        assert said.endswith(b"connect: connection refused")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_a_caller_that_leaves_leaves_nothing(server, running, caller):
    """The connection ends with its caller."""
    async with opened(caller, CHANNELS, 80):
        await until(lambda: server.statistics().door.open_streams)
    await until(lambda: not server.statistics().door.open_streams)


# Tunnels


class Tunnel(Client):
    """A caller's side of a tunnel."""

    def __init__(self, socket):
        super().__init__()
        self.socket = socket
        self._rest = b""

    async def send(self, *frames):
        """Send frames, cut in the middle."""
        whole = b"".join(frames)
        await self.socket.send_bytes(whole[: len(whole) // 2])
        await self.socket.send_bytes(whole[len(whole) // 2 :])

    async def frame(self):
        """Return the next frame: for control its kind, for data its stream; flags; payload."""
        while len(self._rest) < 8 or len(self._rest) < 8 + self._length():
            self._rest += await self.socket.receive_bytes()
        length = self._length()
        first, rest = struct.unpack_from("!II", self._rest)
        payload, self._rest = self._rest[8 : 8 + length], self._rest[8 + length :]
        return ("control", first & 0xFFFF) if first >> 31 else ("data", first), rest >> 24, payload

    def _length(self):
        return struct.unpack_from("!II", self._rest)[1] & 0xFFFFFF

    def pair(self, number, port, first):
        """Return the frames that open a connection."""
        common = {"port": str(port), "requestid": str(number)}
        error = self.open(first, {"Streamtype": "error", **common}, FIN)
        return error + self.open(first + 2, {"Streamtype": "data", **common})

    async def accepted(self, *streams):
        """Take in that streams were accepted."""
        for stream in streams:
            kind, _, payload = await self.frame()
            assert (kind, struct.unpack_from("!I", payload)) == (("control", SYN_REPLY), (stream,))


@pytest.fixture
async def tunnel(running, caller):
    """A tunnel to the pod."""
    async with opened(caller, TUNNEL) as socket:
        assert socket.protocol == TUNNEL
        yield Tunnel(socket)


async def test_connections_share_a_tunnel(tunnel):
    """Each has two streams; one that ends takes the other with it, and none but its own."""
    await tunnel.send(tunnel.pair(0, 8080, 1), tunnel.pair(1, 8080, 5))
    await tunnel.accepted(1, 3, 5, 7)
    await tunnel.send(tunnel.data(7, GET))
    stream, _, said = await tunnel.frame()
    assert (stream, said[:12]) == (("data", 7), b"HTTP/1.1 200")
    await tunnel.send(tunnel.data(3, LAST))
    assert (await tunnel.frame())[0] == ("data", 3)
    assert [(await tunnel.frame())[:2] for _ in range(2)] == [(("data", 3), FIN), (("data", 1), FIN)]
    await tunnel.send(tunnel.data(3, GET), tunnel.data(7, b"", FIN))  # to one that is over nobody answers
    assert [(await tunnel.frame())[:2] for _ in range(2)] == [(("data", 7), FIN), (("data", 5), FIN)]


async def test_a_tunnel_says_why_a_port_is_not_reached(caller, tunnel, monkeypatch):
    """On the stream for it."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.listens", lambda _pod, _port: False)
    await tunnel.send(tunnel.pair(0, 80, 1))
    await tunnel.accepted(1, 3)
    stream, _, said = await tunnel.frame()
    assert stream == ("data", 1)
    assert said.endswith(b"connection refused")


async def test_streams_that_make_no_sense_are_reset(tunnel):
    """Without a port, of no kind, or for data of which nobody wants to know an error; pings are echoed."""
    for number, headers in enumerate(
        ({"streamtype": "data"}, {"port": "80"}, {"port": "80", "streamtype": "data"}, {"port": "x"})
    ):
        await tunnel.send(tunnel.open(2 * number + 1, headers))
        assert (await tunnel.frame())[0] == ("control", RST_STREAM)
    await tunnel.send(tunnel.control(PING, struct.pack("!I", 5)))
    assert await tunnel.frame() == (("control", PING), 0, struct.pack("!I", 5))
    await tunnel.send(tunnel.pair(0, 80, 9), tunnel.control(RST_STREAM, struct.pack("!II", 11, 5)))
    await tunnel.accepted(9, 11)


async def test_a_tunnel_carries_a_limited_number_of_streams(tunnel):
    """What is beyond is refused; what is there goes on."""
    for number in range(STREAMS_LIMIT // 2):
        await tunnel.send(tunnel.pair(number, 80, 4 * number + 1))
        await tunnel.accepted(4 * number + 1, 4 * number + 3)
    await tunnel.send(tunnel.open(4001, {"streamtype": "error", "port": "80", "requestid": "x"}))
    kind, _, payload = await tunnel.frame()
    assert (kind, struct.unpack("!II", payload)) == (("control", RST_STREAM), (4001, 3))
    await tunnel.send(tunnel.data(3, GET))
    assert (await tunnel.frame())[2].startswith(b"HTTP/1.1 200")


async def test_nonsense_ends_a_tunnel(tunnel):
    """And a text does."""
    await tunnel.socket.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert (await tunnel.socket.receive()).type is aiohttp.WSMsgType.CLOSE


# Refusals


async def refused(caller, protocols, *ports, pod="p"):
    """Return the code with which an upgrade is refused."""
    query = [("ports", str(port)) for port in ports]
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await caller.session.ws_connect(f"{PODS}/{pod}/portforward", params=query, protocols=protocols)
    return error.value.status


async def test_refusals_come_before_the_upgrade(running, caller, monkeypatch):
    """No port or none that exists, too many, no such pod, one that does not run, a strange protocol, a new node."""
    for ports in ((), (0,), ("x",), (70_000,), ("80,",), range(1, PORTS_LIMIT + 2)):
        assert await refused(caller, [CHANNELS], *ports) == 400
    assert await refused(caller, ["v4.base64.channel.k8s.io"], 80) == 400
    assert await refused(caller, [CHANNELS], 80, pod="nobody") == 404
    await caller.done("POST", PODS, a_pod("unbound"))
    assert await refused(caller, [CHANNELS], 80, pod="unbound") == 400
    await caller.done("POST", PODS, a_pod("pending", nodeName="n"))
    assert await refused(caller, [TUNNEL], pod="pending") == 500
    assert (await caller.refused("POST", PORTFORWARD, headers={"Impersonate-User": "bob"}))[0] == 403
    assert (await caller.refused("POST", f"{PORTFORWARD}?ports=80"))[0] == 400
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 10**15)
    assert await refused(caller, [CHANNELS], 80) == 500


async def test_a_pod_of_several_containers_has_one_network(running, caller):
    """Nobody has to say which of them is meant."""
    two = [{"name": name, "image": "x"} for name in ("a", "b")]
    await caller.done("POST", PODS, a_pod("q", nodeName="n", containers=two))
    await caller.done("PATCH", f"{PODS}/q/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    async with opened(caller, CHANNELS, 80, path=f"{PODS}/q/portforward") as socket:
        assert await socket.receive_bytes() == b"\0P\0"


# Our own driver


async def test_our_driver_reaches_a_worker(tmp_path):
    """It asks a worker's pod on a quick node for its health, as it would ask a real one."""
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", timing=Timing.QUICK, speed=50)
    labels = {LABEL_SLICE: "s1", LABEL_WORKER: "w1", LABEL_INCARNATION: "i1"}
    async with SimServer(settings):
        access = await find_access(settings.kubeconfig)
        kube = KubeSettings(cluster="test", image="registry.test/worker:1")
        async with open_drivers(access, kube) as drivers:
            await drivers.node_pools.create(NodePoolSpec("s1", "turin-gp", 1, labels))
            pod = await drivers.pods.create(PodSpec("s1-0", "s1", labels, Capacity(1000, 2**30)))
            async for event in drivers.pods.watch({}):
                if getattr(event, "object", pod).phase is PodPhase.RUNNING:
                    break
            async with drivers.port_forward(pod.name, pod.uid, kube.worker_port) as stream:
                await stream.send(GET)
                said = await stream.receive()
            assert said.startswith(b"HTTP/1.1 200 OK")
            assert b'"worker_id": "w1"' in said
            with pytest.raises(PortUnreachable, check=that(names="127.0.0.1:1")):
                async with drivers.port_forward(pod.name, pod.uid, 1) as stream:
                    await stream.receive()
