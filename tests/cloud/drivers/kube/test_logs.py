"""What a container says, as the simulation serves it: which part of it, for how long, and of whom."""

from contextlib import aclosing

import anyio
import pytest
from drivers_world import LIMITS, SETTINGS, pod as pod_object
from raw_server import serving
from served_pods import drivers_of, running_pod, serve

from iriscw.cloud.drivers.kube import logs as logs_module
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.logs import LogWish
from iriscw.cloud.model import Forbidden, Gone, InvalidSpec, Unavailable
from iriscw_sims.serve.scripted import ScriptedStreams
from raised import that


@pytest.fixture
def reachable():
    """Whether the node's tunnel stands: the last entry."""
    return [True]


@pytest.fixture
async def server(tmp_path, reachable):
    """A simulated cluster, in which a line comes every 0.2 s."""
    streams = ScriptedStreams(lambda _node: reachable.pop(0) if len(reachable) > 1 else reachable[0])
    async with serve(tmp_path, streams) as running:
        yield running


@pytest.fixture
async def drivers(server):
    """The drivers of that cluster."""
    async with drivers_of(server) as opened:
        yield opened


@pytest.fixture
async def pod(drivers):
    """A pod that runs."""
    return await running_pod(drivers)


async def read(drivers, pod, **wish):
    with anyio.fail_after(20):
        return b"".join([chunk async for chunk in drivers.logs(pod.name, pod.uid, LogWish(**wish))])


async def test_a_log_is_read_to_its_end(drivers, pod):
    """As it is now."""
    text = await read(drivers, pod)
    assert text.startswith(b"iriscw: this container is simulated")
    assert text.endswith(b"\n")


async def test_a_part_of_a_log(drivers, pod):
    """By lines and by bytes."""
    assert (await read(drivers, pod, tail=1)).count(b"\n") == 1
    assert await read(drivers, pod, tail=0) == b""
    assert await read(drivers, pod, limit_bytes=7) == b"iriscw:"


async def test_a_log_is_followed_until_the_pod_goes(drivers, pod):
    """Line by line, while they are said; then it ends."""
    async with aclosing(drivers.logs(pod.name, pod.uid, LogWish(follow=True))) as log:
        with anyio.fail_after(20):
            said = await anext(log)
            while b"running for 10 s" not in said:
                said += await anext(log)
            await drivers.pods.delete(pod.name, pod.uid, 1)
            async for chunk in log:
                said += chunk
    assert drivers.statistics().api.open_streams == 0


async def test_a_followed_log_ends_at_its_limit(drivers, pod):
    """Also if the server gave more."""
    assert len(await read(drivers, pod, follow=True, limit_bytes=200)) == 200


async def test_leaving_a_log_closes_it(drivers, pod):
    """At the server, too."""
    async for _ in drivers.logs(pod.name, pod.uid, LogWish(follow=True)):
        assert drivers.statistics().api.open_streams == 1
        break
    with anyio.fail_after(10):
        while drivers.statistics().api.open_streams:  # noqa: ASYNC110 - a generator that is let go of is closed later
            await anyio.sleep(0.01)


async def test_another_pods_log_is_not_shown(drivers, pod):
    """Though it has the same name."""
    for name, uid in ((pod.name, "another"), ("no-such-pod", pod.uid)):
        with pytest.raises(Gone):
            await anext(drivers.logs(name, uid))


async def test_no_earlier_instance(drivers, pod):
    """Has no log, and is gone."""
    with pytest.raises(Gone, check=that(comes_from="logs.read_log")):
        await read(drivers, pod, previous=True)


async def test_a_node_that_cannot_be_reached_yet_is_waited_for(drivers, pod, reachable, monkeypatch):
    """And one that is never reached is told of."""
    reachable[:] = [False, False, True]
    assert await read(drivers, pod, tail=1)
    reachable[:] = [False]
    monkeypatch.setattr(logs_module, "BEGIN_S", 0.2)
    with pytest.raises(Unavailable, check=that(names="g82885e-1")):
        await read(drivers, pod)


async def test_a_wrong_token_is_forbidden(server, pod):
    """As CoreWeave says it: 403."""
    async with drivers_of(server, "CW-SECRET-wrong") as wrong:
        with pytest.raises(Forbidden):
            await read(wrong, pod)


@pytest.mark.parametrize("wish", [{"tail": -1}, {"limit_bytes": 0}, {"since_s": 0}])
def test_numbers_out_of_range(wish):
    """Are refused by name."""
    with pytest.raises(InvalidSpec):
        LogWish(**wish)


async def test_servers_of_their_own_mind():
    """More than was asked for is cut off; a log that breaks off is told."""

    async def script(peer):
        if not peer.asked.path.endswith("/log"):
            await peer.answer(200, pod_object(1, 1, status={"phase": "Running"}))
            return
        await peer.begin()
        await peer.chunk(b"0123456789")
        await anyio.sleep(0.05)
        if "limitBytes" in peer.asked.query:
            await peer.chunk(b"0123456789")
            await peer.end()
        else:
            peer.cut()

    async with (
        serving(script) as server,
        open_drivers(server.access, SETTINGS, limits=LIMITS) as drivers,
    ):
        log = drivers.logs("p1", "u1", LogWish(limit_bytes=15, since_s=3))
        assert b"".join([chunk async for chunk in log]) == b"012345678901234"
        assert server.asked[0].query == {"container": ["worker"], "limitBytes": ["15"], "sinceSeconds": ["3"]}
        broken = drivers.logs("p1", "u1")
        assert await anext(broken) == b"0123456789"
        with pytest.raises(Unavailable, check=that(comes_from="logs.read_log")):
            await anext(broken)
