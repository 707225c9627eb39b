"""Commands, logs and ports of pods, through a real kube-apiserver and a real streaming server of containerd's.

Version 5 of the protocol is translated to SPDY by the API server on its way to the kubelet, as at every kubelet before
1.36; version 4 is passed on as it is. Skipped where they were not built (``tests/kube/real/build-*``).
"""

from contextlib import aclosing

import anyio
import anyio.abc
import attrs
import pytest
from drivers_world import LIMITS, SETTINGS
from kube_server import free_ports
from real_pods import PODS, access_of, real_pods

from iriscw.cloud.drivers import attended
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.exec import ExecOrder
from iriscw.cloud.drivers.kube.forwarding import PortUnreachable, listening
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.logs import LogWish
from iriscw.cloud.drivers.kube.streams import V4, V5
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.cloud.model import Forbidden, Gone, InvalidSpec, Unavailable
from iriscw.testing.conformance.connection import ConnectionConformance, sh
from raised import that
from waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
async def pods(real_server, kubelet):
    """A namespace without pods, and a node."""
    async with real_pods(real_server, kubelet) as made:
        yield made


@pytest.fixture
async def drivers(real_server, pods):
    """The drivers, as an administrator."""
    async with open_drivers(access_of(real_server), SETTINGS, limits=LIMITS) as opened:
        yield opened


@pytest.fixture(params=[V5, V4])
async def connection(request, drivers, pods):
    """The way into a pod that runs, by one version of the protocol."""
    return attrs.evolve(drivers.connection("p1", await pods.pod("p1")), protocols=(request.param,))


class TestConformance(ConnectionConformance):
    """The contract of the port."""


@pytest.fixture
async def uid(pods):
    """The uid of a pod ``p1`` that runs."""
    return await pods.pod("p1")


async def test_outputs_are_binary_and_large(connection):
    """Every byte; and more than any buffer on the way holds, in both directions at once."""
    script = "import sys;e=bytes(range(256))*4000;sys.stderr.buffer.write(e);sys.stdout.buffer.write(e)"
    result = await connection.run(["python3", "-c", script], 30)
    assert result.stdout == result.stderr == bytes(range(256)) * 4000


async def test_long_orders(connection):
    """Arguments and environment do not stand in the URL, so they may be as long as the kernel takes."""
    script = 'printf "%s" "${#X} ${#1}"'
    result = await connection.run(["sh", "-c", script, "sh", "a" * 100_000], 20, {"X": "b" * 120_000})
    assert result.stdout == b"120000 100000"


async def test_a_container_without_an_interpreter(connection):
    """In the words of a container runtime."""
    with pytest.raises(InvalidSpec, check=that(comes_from="exec.Attended._hear")):
        await attrs.evolve(connection, interpreter=("no-such-python",)).run(["true"], 20)


async def test_a_cut_connection_kills(connection):
    """The API server passes the end on, and the kubelet ends the lifeline: nothing else is ended by either."""
    async with connection._attended(20) as attended:
        await attended.begin(ExecOrder(tuple(sh("sleep 600 & echo $! | tee child; wait"))).encoded())
        async with aclosing(attended.output()) as output:
            assert (await anext(output))[1].strip().isdigit()
        attended._channels.abort()
        with pytest.raises(ApiUnreachable):
            await attended.result()
    script = 'while kill -0 "$(cat child)"; do sleep 0.05; done 2>/dev/null'
    assert (await connection.run(sh(script), 20)).exit_code == 0


async def test_a_node_that_cannot_be_reached_yet_is_waited_for(connection, pods):
    """Version 4 is refused with 500, version 5 is told after the upgrade. The command runs once."""
    await pods.node(port=free_ports(1)[0])
    failure = None

    async def run():
        nonlocal failure
        result = await connection.run(sh("echo x >> ran; cat ran"), 30)
        failure = result.stdout != b"x\n" and result

    (pods.kubelet.folder / "iris" / "p1" / "ran").unlink(missing_ok=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until(lambda: connection.api.statistics().requests >= 4)
        await pods.node()
    assert not failure


async def test_a_node_that_is_never_reached_is_told(connection, pods, monkeypatch):
    """With the server's own words; waiting says that it took too long."""
    monkeypatch.setattr(attended, "BEGIN_S", 0.3)
    await pods.node(port=free_ports(1)[0])
    with pytest.raises(Unavailable, check=that(comes_from="places.PodPlace.reached")):
        await connection.run(["true"], 20)
    with pytest.raises(TimeoutError):
        await connection.wait_until_ready(0.5)


async def test_pods_that_are_gone(connection, drivers, pods):
    """Another one of the name, one that has ended, none at all."""
    other = attrs.evolve(connection, uid="another")
    await pods.status(f"{PODS}/p1", {"phase": "Failed", "reason": "Evicted"})
    for one in (other, connection):
        for attempt in (one.run(["true"], 20), one.wait_until_ready(20)):
            with pytest.raises(Gone):
                await attempt
    await pods.remove("p1")
    for attempt in (connection.run(["true"], 20), connection.wait_until_ready(20), anext(connection.stream(["true"]))):
        with pytest.raises(Gone):
            await attempt


async def test_a_pod_that_begins_to_run_is_ready(drivers, pods):
    """Whoever waits is told by a watch."""
    connection = drivers.connection("p1", await pods.pod("p1", phase="Pending"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.wait_until_ready, 30)
        await until(lambda: drivers.statistics().api.open_watches)
        await pods.status(f"{PODS}/p1", {"phase": "Running"})


async def test_rights(real_server, drivers, pods, uid):
    """Nobody gets in without; who may only look at pods is told what is missing."""
    async with open_drivers(access_of(real_server, "eve"), SETTINGS, limits=LIMITS) as eve:
        inside = (
            lambda: eve.connection("p1", uid).run(["true"], 20),
            lambda: anext(eve.logs("p1", uid)),
            lambda: eve.port_forward("p1", uid, 80).__aenter__(),
        )
        for attempt in inside:
            with pytest.raises(Forbidden, check=that(names="eve")):
                await attempt()
        await grant(drivers, "eve", [("pods", "get"), ("pods/exec", "get"), ("pods/log", "get")])
        with anyio.fail_after(20):
            while "cannot" in (said := await refusal(eve, uid)):  # noqa: ASYNC110 - until the server knows of them
                await anyio.sleep(0.05)
        assert "it takes get and create on pods/exec" in said
        await grant(drivers, "eve", [("pods", "get"), ("pods/exec", "create"), ("pods/exec", "get")])
        with anyio.fail_after(20):
            while await refusal(eve, uid):  # noqa: ASYNC110
                await anyio.sleep(0.05)


async def refusal(drivers, uid):
    """Run a command, and give why that is not allowed, empty if it is."""
    try:
        assert (await drivers.connection("p1", uid).run(["true"], 20)).exit_code == 0
    except Forbidden as refused:
        return str(refused)
    return ""


async def grant(drivers, user, rights):
    """Give a user rights in the namespace: resource and verb."""
    meta = {"name": "granted", "namespace": "iris"}
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for resource, verb in rights]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    subject = {"kind": "User", "name": user, "apiGroup": group}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "granted"},
    }
    for each in (role, binding):
        await drivers.objects.apply(path_of(each), each)


async def test_a_wrong_token(real_server, uid):
    """401 here, 403 at CoreWeave: both mean the same, also where websockets are opened."""
    access = attrs.evolve(access_of(real_server), credentials=Fixed(Header.of("Bearer", "CW-SECRET-wrong")))
    async with open_drivers(access, SETTINGS, limits=LIMITS) as drivers:
        for attempt in (drivers.connection("p1", uid).run(["true"], 20), anext(drivers.logs("p1", uid))):
            with pytest.raises(Forbidden) as refused:
                await attempt
            assert "CW-SECRET" not in str(refused.value)


async def read(drivers, uid, **wish):
    with anyio.fail_after(20):
        return b"".join([chunk async for chunk in drivers.logs("p1", uid, LogWish(**wish))])


async def test_logs(drivers, pods, uid):
    """All, a part, the instance before, and of one that has ended."""
    folder = pods.kubelet.folder / "iris" / "p1"
    (folder / "worker.log").write_bytes(bytes(range(256)) * 1000 + b"\nlast but one\nlast\n")
    (folder / "worker.previous.log").unlink(missing_ok=True)
    assert await read(drivers, uid) == bytes(range(256)) * 1000 + b"\nlast but one\nlast\n"
    assert await read(drivers, uid, tail=2) == b"last but one\nlast\n"
    assert await read(drivers, uid, limit_bytes=5) == bytes(range(5))
    with pytest.raises(Gone, check=that(comes_from="logs.read_log")):
        await read(drivers, uid, previous=True)
    (folder / "worker.previous.log").write_bytes(b"before\n")
    assert await read(drivers, uid, previous=True) == b"before\n"
    await pods.status(f"{PODS}/p1", {"phase": "Succeeded"})
    assert await read(drivers, uid, tail=1) == b"last\n"
    with pytest.raises(Gone):
        await read(drivers, "another")


async def test_a_log_is_followed(drivers, pods, uid):
    """To its end, and not read ahead of whoever reads it."""
    folder = pods.kubelet.folder / "iris" / "p1"
    (folder / "worker.ended").unlink(missing_ok=True)
    (folder / "worker.log").write_bytes(b"first\n")
    async with aclosing(drivers.logs("p1", uid, LogWish(follow=True))) as log:
        with anyio.fail_after(20):
            assert await anext(log) == b"first\n"
            with (folder / "worker.log").open("ab") as file:
                file.write(b"x" * 30_000_000)
            (folder / "worker.ended").touch()
            await anyio.sleep(0.3)
            assert drivers.statistics().api.received_bytes < 10_000_000
            assert sum([len(chunk) async for chunk in log]) == 30_000_000


async def test_a_container_that_is_not_there(drivers, pods, uid):
    """Is no pod that is gone."""
    with pytest.raises(InvalidSpec):
        await attrs.evolve(drivers.connection("p1", uid), container="other").run(["true"], 20)


async def echo(stream):
    async with stream:
        async for data in stream:
            await stream.send(data.upper())
            if b"bye" in data:
                return


async def test_a_port(drivers, pods, uid):
    """Bytes go both ways; the other side's end is the end; nobody there has a name."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, echo)
            with anyio.fail_after(20):
                async with drivers.port_forward("p1", uid, port) as stream:
                    data = b"a\x00b" * 200_000
                    tasks.start_soon(stream.send, data)
                    received = b""
                    while len(received) < len(data):
                        received += await stream.receive()
                    assert received == data.upper()
                    await stream.send(b"bye")
                    assert b"".join([chunk async for chunk in stream]) == b"BYE"
                async with (
                    listening(lambda: drivers.port_forward("p1", uid, port)) as here,
                    await anyio.connect_tcp("127.0.0.1", here.port) as client,
                ):
                    await client.send(b"bye")
                    assert b"".join([chunk async for chunk in client]) == b"BYE"
            tasks.cancel_scope.cancel()
    async with drivers.port_forward("p1", uid, port) as stream:
        with pytest.raises(PortUnreachable, check=that(comes_from="forwarding.PortStream.receive")):
            await stream.receive()
    assert drivers.statistics().api.open_streams == 0


async def test_ports_of_pods_that_are_gone(drivers, pods, uid):
    """Have names as well."""
    for name, its, error in (("p1", "another", Gone), ("none", uid, Gone)):
        with pytest.raises(error):
            async with drivers.port_forward(name, its, 80):
                pass
    with pytest.raises(InvalidSpec):
        async with drivers.port_forward("p1", uid, 0):
            pass
