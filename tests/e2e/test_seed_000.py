"""Seed 000, phases 0 to 5, on a real API server: from manifests to a task's result, and back to nothing.

What is real there, and what stands in for something else, says the module `real_cluster` beside this one.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import iriscw
from iriscw.rpc.tokens import read_token_file
from iriscw_sims.coreweave.crd import POOLS

sys.path.insert(0, str(Path(__file__).parent))

from real_cluster import (
    CONFIG,
    NODES,
    PODS,
    SECRETS,
    cluster,
    controller_address,
    phase_runs,
    real_server,
    slices,
    workers,
)

pytestmark = pytest.mark.slow

__all__ = ["cluster", "real_server"]


def hello():
    """What the seed's test submits: a value comes back, and who computed it."""
    return 42, os.environ["IRIS_WORKER_ID"]


async def test_from_manifests_to_a_result_and_back_to_nothing(cluster, tmp_path):
    """The whole life of a cluster, as the seed tells it."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG)

    # Phase 0: the cluster is prepared.
    code, said = await cluster.iriscw("manifests", str(config), "--secrets-to", str(tmp_path / "secrets"))
    assert code == 0, said
    apply = ("manifests", str(config), "--apply", "--secrets-from", str(tmp_path / "secrets"), "--wait", "0s")
    code, said = await cluster.iriscw(*apply)
    assert code == 0, said

    # Phase 1: the controller starts on its own node, and finds nothing to take up.
    address = await controller_address(cluster)
    token = read_token_file(tmp_path / "secrets" / "admin-token")
    async with iriscw.connect(address, token) as client:
        assert not slices(cluster.list(POOLS))

        # Phase 2: a job makes demand; demand makes one pool, which boots one node.
        job = await client.submit(hello, name="smoke")
        (pool,) = slices(await cluster.until(POOLS, lambda items: len(slices(items)) == 1))
        name = pool["metadata"]["name"]
        assert name.startswith("iris-cpu-test-")
        assert pool["spec"]["targetNodes"] == 1
        assert not pool["spec"]["autoscaling"]
        labels = {"iris-managed": "true", "iris-scale-group": "cpu_test", "iris-slice-id": name}
        uid = cluster.get("/api/v1/namespaces/iris")["metadata"]["uid"]
        for found in (pool["metadata"]["labels"], pool["spec"]["nodeLabels"]):
            assert {**labels, "iris-cluster": uid}.items() <= found.items()

        # Phase 3: the node is ready; the pod runs a worker, which registers.
        nodes = await cluster.until(
            NODES, lambda items: any(i["metadata"]["labels"].get("iris-slice-id") for i in items)
        )
        assert [item["metadata"]["labels"].get("iris-slice-id") for item in nodes].count(name) == 1
        (pod,) = workers(await cluster.until(PODS, lambda items: any(map(phase_runs, workers(items)))))
        assert pod["spec"]["nodeSelector"]["iris-slice-id"] == name
        assert pod["spec"]["containers"][0]["image"] == "iris-worker:1"

        # Phase 4: the task runs in a process of its own, on that worker; its result comes back.
        async with asyncio.timeout(60):
            ((value, worker),) = await job.result()
        assert value == 42
        assert worker == pod["metadata"]["labels"]["iris-worker-id"]

        # Phase 5: idle, the very slice goes: pod, token, pool and node; the controller's own node stays.
        await cluster.until(POOLS, lambda items: not slices(items))
        left = await cluster.until(NODES, lambda items: len(items) == 1)
        assert left[0]["metadata"]["labels"]["iris-role"] == "controller"
        await cluster.until(PODS, lambda items: not workers(items))
        await cluster.until(SECRETS, lambda items: not [i for i in items if i["metadata"]["name"].startswith(name)])

    # And the whole of it.
    code, said = await cluster.iriscw("down", str(config), "--delete-pools", "--yes")
    assert code == 0, said
    await cluster.until(POOLS, lambda items: not items)
    await cluster.until(NODES, lambda items: not items)
