"""Both drivers against a real kube-apiserver: what CoreWeave's controllers would write is written by the tests.

Nothing of CoreWeave runs here, so nodes and statuses are put in by hand. Skipped where no server was built
(``tests/kube/real/build-apiserver``).
"""

import contextlib
import json
from contextlib import aclosing

import anyio
import attrs
import pytest
from drivers_world import LIMITS, SETTINGS

from iriscw.cloud.drivers.kube.access import ClusterAccess, find_access, trusting
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiUnreachable
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_SLICE,
    Capacity,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    NodePoolSpec,
    PodPhase,
    PodSpec,
    Relisted,
    Removed,
    Upserted,
)
from iriscw.testing.conformance.cloud import BAD_NAMES
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, NAMESPACES, POOLS
from raised import that
from waiting import until

pytestmark = pytest.mark.slow

OURS = {LABEL_MANAGED: "true", LABEL_CLUSTER: "test"}
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/iris/pods"
PREFIXES = ("/registry/compute.coreweave.com/nodepools/", "/registry/minions/", "/registry/pods/iris/")


def access_of(server, user="admin"):
    tls = trusting(server.files.authority.read_bytes())
    return ClusterAccess(f"https://127.0.0.1:{server.port}", Fixed(Header.of("Bearer", server.tokens[user])), tls)


def pool_spec(name="slice-1", **labels):
    return NodePoolSpec(name, "turin-gp", 1, {**OURS, LABEL_SLICE: name, **labels})


def pod_spec(name="slice-1-0", pool="slice-1", incarnation="1"):
    return PodSpec(name, pool, {**OURS, LABEL_SLICE: pool, LABEL_INCARNATION: incarnation}, Capacity(1000, 2**30))


@pytest.fixture
async def api(real_server):
    """The server, with node pools, a namespace, and nothing else of ours."""
    async with open_api(access_of(real_server), LIMITS) as opened:
        for path, body in ((DEFINITIONS, DEFINITION), (NAMESPACES, {"metadata": {"name": "iris"}})):
            assert (await opened.request(ApiRequest("POST", path, body=body))).code in (201, 409)
        await listed(opened, POOLS)
        real_server.erase(PREFIXES)
        for path in (POOLS, NODES, PODS):
            await listed(opened, path, lambda items: not items)
        yield opened


async def listed(api, path, condition=lambda _items: True):
    """Wait until a list is answered, and what is in it fits."""
    with anyio.fail_after(30):
        while True:
            with contextlib.suppress(ApiUnreachable):
                answer = await api.request(ApiRequest("GET", path))
                if answer.code == 200 and condition(answer.body["items"]):
                    return
            await anyio.sleep(0.02)


@pytest.fixture
async def drivers(real_server, api):
    """The drivers, as an administrator."""
    async with open_drivers(access_of(real_server), SETTINGS, limits=LIMITS) as opened:
        yield opened


async def node_of(api, pool, name="n1"):
    """Give a pool a ready node."""
    body = {
        "metadata": {"name": name, "labels": dict(pool.labels)},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
    made = await api.request(ApiRequest("POST", NODES, body=body))
    assert made.code == 201, made
    patch = {"status": body["status"]}
    request = ApiRequest("PATCH", f"{NODES}/{name}/status", body=patch, content_type=MERGE_PATCH)
    assert (await api.request(request)).code == 200


async def seen(events, condition):
    with anyio.fail_after(20):
        async for event in events:
            if condition(event):
                return event
    raise AssertionError("a watch never ends by itself")


async def test_a_pools_life(api, drivers):
    """Created once, seen with its node, deleted by its uid."""
    async with aclosing(drivers.node_pools.watch({})) as events:
        assert await anext(events) == Relisted(())
        pool = await drivers.node_pools.create(pool_spec())
        assert (await drivers.node_pools.create(pool_spec())).uid == pool.uid
        await seen(events, lambda event: isinstance(event, Upserted) and event.object.uid == pool.uid)
        await node_of(api, pool)
        ready = await seen(events, lambda event: event.object.ready_nodes == 1)
        assert ready.object.nodes[0].name == "n1"
        (listed,) = await drivers.node_pools.list({})
        assert listed.ready_nodes == 1
        with pytest.raises(Gone):
            await drivers.node_pools.delete(pool.name, "another")
        await drivers.node_pools.delete(pool.name, pool.uid)
        await seen(events, lambda event: isinstance(event, Removed) and event.object.uid == pool.uid)
        with pytest.raises(Gone):
            await drivers.node_pools.delete(pool.name, pool.uid)


async def test_a_pods_life(api, drivers):
    """Created once for its pool; what its status says is shown; deleted by its uid, with its grace."""
    with pytest.raises(Gone):
        await drivers.pods.create(pod_spec())
    await drivers.node_pools.create(pool_spec())
    async with aclosing(drivers.pods.watch({LABEL_SLICE: "slice-1"})) as events:
        assert await anext(events) == Relisted(())
        pod = await drivers.pods.create(pod_spec())
        assert (await drivers.pods.create(pod_spec())).uid == pod.uid
        with pytest.raises(Conflict):
            await drivers.pods.create(pod_spec(incarnation="2"))
        status = {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.0.1"}
        where = f"{PODS}/{pod.name}/status"
        patched = await api.request(ApiRequest("PATCH", where, body={"status": status}, content_type=MERGE_PATCH))
        assert patched.code == 200, patched
        event = await seen(events, lambda event: event.object.phase is PodPhase.RUNNING)
        assert event.object.address == "10.0.0.1"
        await drivers.pods.delete(pod.name, pod.uid, grace_s=0)
        await seen(events, lambda event: isinstance(event, Removed) and event.object.uid == pod.uid)


async def test_pages_and_labels(drivers):
    """A list of several pages is one list, ordered, and filtered by all labels."""
    for number in range(7):
        await drivers.node_pools.create(pool_spec(f"s{number}", **{"iris-scale-group": "ab"[number % 2]}))
    found = drivers._shell.caller
    found.settings = attrs.evolve(SETTINGS, page_limit=2)
    assert [each.name for each in await drivers.node_pools.list({})] == [f"s{number}" for number in range(7)]
    assert [each.name for each in await drivers.node_pools.list({"iris-scale-group": "b"})] == ["s1", "s3", "s5"]


async def test_a_forgotten_history(real_server, api):
    """A watch that comes back after a compaction is told 410, lists again, and misses nothing that lasts."""
    settings = attrs.evolve(SETTINGS, watch_timeout=10**9, watch_margin=10**10)
    async with (
        open_drivers(access_of(real_server), settings, limits=LIMITS) as drivers,
        aclosing(drivers.node_pools.watch({})) as events,
    ):
        assert await anext(events) == Relisted(())
        await drivers.node_pools.create(pool_spec("before"))
        await seen(events, lambda event: event.object.name == "before")
        await until(lambda: not drivers.statistics().api.open_watches)  # the server ended both, and nobody reads
        await drivers.node_pools.create(pool_spec("meanwhile"))
        await drivers.node_pools.create(pool_spec("later"))
        real_server.compact()
        real_server.restart_apiserver()
        await listed(api, POOLS)
        found = {(await seen(events, lambda event: isinstance(event, Upserted))).object.name for _ in range(2)}
        assert found == {"meanwhile", "later"}
        (watch,) = drivers.statistics().watches
        assert sum(source.expired for source in watch.sources.values()) >= 1
        await drivers.node_pools.create(pool_spec("after"))
        await seen(events, lambda event: event.object.name == "after")


async def test_rights(real_server, api):
    """Who may do nothing is told so, by calls and by watches."""
    async with open_drivers(access_of(real_server, "eve"), SETTINGS, limits=LIMITS) as drivers:
        for call in (drivers.node_pools.list({}), drivers.node_pools.create(pool_spec()), drivers.pods.list({})):
            with pytest.raises(Forbidden, check=that(names="eve")):
                await call
        with pytest.raises(Forbidden, check=that(names="eve")):
            await anext(drivers.pods.watch({}))


async def test_a_wrong_token(real_server):
    """401 here, 403 at CoreWeave: both mean the same."""
    access = attrs.evolve(access_of(real_server), credentials=Fixed(Header.of("Bearer", "CW-SECRET-wrong")))
    async with open_drivers(access, SETTINGS, limits=LIMITS) as drivers:
        with pytest.raises(Forbidden) as refused:
            await drivers.pods.list({})
        assert "CW-SECRET" not in str(refused.value)


async def test_what_is_invalid(drivers):
    """The server's own judgement, and ours before it, are one error."""
    await drivers.node_pools.create(pool_spec())
    for name in BAD_NAMES:
        with pytest.raises(InvalidSpec):
            await drivers.node_pools.create(attrs.evolve(pool_spec(), name=name))
    with pytest.raises(InvalidSpec, check=that(comes_from="ownership.create", names="API")):
        await drivers.pods.create(attrs.evolve(pod_spec(), image="not an image, "))


async def test_a_kubeconfig_with_a_certificate(real_server, api, tmp_path):
    """The whole way: file, authority, token; and nothing is left open at the server."""
    path = tmp_path / "config"
    config = {
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": f"https://127.0.0.1:{real_server.port}",
                    "certificate-authority": str(real_server.files.authority),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": real_server.tokens["admin"]}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    async with open_drivers(await find_access(path), SETTINGS, limits=LIMITS) as drivers:
        async for event in drivers.node_pools.watch({}):
            assert event == Relisted(())
            break
        await until(lambda: not drivers.statistics().api.open_watches)
