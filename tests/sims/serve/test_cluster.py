"""A whole simulated CoreWeave behind the server: pools get nodes, nodes get pods, pods begin and end."""

import asyncio

import pytest
from serve_caller import MERGE, Caller

from iriscw._errors import InvalidArgument
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.guests import pod_address
from iriscw_sims.coreweave.settings import QUICK
from iriscw_sims.serve.cluster import BLOCK_ADDRESSES, WHOLE_GRACE, delays_of, of_processes
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing
from raised import that

PODS = "/api/v1/namespaces/iris/pods"
SPEED = 200
GPU_POD = {
    "metadata": {"name": "train"},
    "spec": {
        "restartPolicy": "Never",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "main",
                "image": "x",
                "command": ["sh", "-c", "sleep 60; exit 3"],
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
            }
        ],
    },
}


@pytest.fixture
async def cluster():
    """A cluster that is quick, with one pool."""
    pools = (PoolToBegin("h100", nodes=2),)
    async with SimServer(ServeSettings(timing=Timing.QUICK, speed=SPEED, pools=pools)) as server:
        yield server
        assert server.statistics().failures == 0


@pytest.fixture
async def caller(cluster):
    """A caller of it."""
    async with Caller(cluster) as calling:
        yield calling


async def seen(event, holds):
    """Wait for an object in a watch."""
    while True:
        told = await event()
        if holds(told["object"]):
            return told["object"]


def condition(item, kind):
    """Return the status of a condition."""
    found = [each["status"] for each in (item.get("status") or {}).get("conditions") or () if each["type"] == kind]
    return found[0] if found else ""


async def test_a_pod_runs_on_a_node_that_booted_for_it(cluster, caller):
    """From a pool without nodes to a pod's exit code, seen through watches alone."""
    await caller.done("POST", PODS, GPU_POD)
    async with asyncio.timeout(20), caller.watch("/api/v1/nodes") as node, caller.watch(PODS) as pod:
        names = {(await seen(node, lambda each: condition(each, "Ready") == "True"))["metadata"]["name"]}
        running = await seen(pod, lambda each: condition(each, "Ready") == "True")
        assert running["spec"]["nodeName"]
        assert (await caller.ask("GET", f"{PODS}/train/log"))[0] in (200, 500)
        over = await seen(pod, lambda each: each["status"]["phase"] == "Failed")
    assert names
    state = over["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")
    assert cluster.coreweave.is_whole("h100")
    assert (await caller.done("GET", f"{POOLS}/h100"))["status"]["currentNodes"] == 2


async def test_a_pool_can_be_scaled_and_deleted(caller, cluster):
    """By a merge patch; its nodes go with it."""
    async with asyncio.timeout(20), caller.watch("/api/v1/nodes") as node, caller.watch(POOLS) as pool:
        await seen(node, lambda each: condition(each, "Ready") == "True")
        await caller.done("PATCH", f"{POOLS}/h100", {"spec": {"targetNodes": 3}}, content_type=MERGE)
        await seen(pool, lambda each: (each.get("status") or {}).get("currentNodes") == 3)
        await caller.done("DELETE", f"{POOLS}/h100")
        while (await pool())["type"] != "DELETED":
            continue
    assert (await caller.done("GET", "/api/v1/nodes"))["items"] == []


async def test_a_pool_to_begin_with_has_to_be_one():
    """Its name is a name."""
    with pytest.raises(InvalidArgument, check=that(names="Not_A_Name")):
        SimServer(ServeSettings(pools=(PoolToBegin("Not_A_Name"),)))


def test_delays_follow_the_settings():
    """Quick or faithful, with quotas, and always with the events that people look at."""
    quick, faithful = delays_of(ServeSettings(timing=Timing.QUICK)), delays_of(ServeSettings(quotas={"b200-8x": 4}))
    assert quick.boot.most < faithful.boot.least
    assert faithful.quotas == {"b200-8x": 4}
    assert quick.normal_events
    assert faithful.normal_events


def test_clusters_of_processes_side_by_side_have_addresses_of_their_own(monkeypatch):
    """Workers listen at their nodes' addresses, on one machine, and tests run side by side."""
    firsts = []
    for pid in (4711, 4712):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        firsts.append(of_processes(QUICK).first_address)
    assert firsts[1] - firsts[0] == BLOCK_ADDRESSES
    assert len({pod_address("0123abcd-0", first) for first in (1, *firsts)}) == 3  # and pods at their own
    assert of_processes(QUICK).stop == WHOLE_GRACE
