"""Tasks with pods of their own, on a real API server: the manifests' rights suffice, and nothing is left.

Real and stand-in as in ``test_seed_000.py``. The worker talks to the API with its own ServiceAccount's token and no
more rights than were rendered; the task's supervisor is the first process of what stands for its container.
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
    Cluster,
    cluster,
    controller_address,
    phase,
    real_server,
    slices,
    workers,
)

from raised import that

pytestmark = pytest.mark.slow

__all__ = ["cluster", "real_server"]


def hello():
    """What the job submits: a value comes back, with who computed it and where."""
    task = iriscw.context()
    return 42, os.environ["IRIS_WORKER_ID"], os.environ["IRIS_ADVERTISE_HOST"] == task.facts.advertise_host


def tasks(items):
    """Return the pods of tasks among pods."""
    return [item for item in items if item["metadata"]["labels"].get("iris-managed") == "task"]


async def test_a_task_runs_in_its_own_pod(cluster: Cluster, tmp_path) -> None:
    """From rendered manifests to a result that was computed in a pod that the worker made, and back to nothing."""
    text = CONFIG.replace(
        "    max_slices: 2\n", "    max_slices: 2\n    task_runtime: pod\n    task_image: iris-task:1\n"
    )
    config = tmp_path / "cluster.yaml"
    config.write_text(text)
    apply = ("manifests", str(config), "--apply", "--secrets-from", str(tmp_path / "secrets"), "--wait", "0s")
    for words in (("manifests", str(config), "--secrets-to", str(tmp_path / "secrets")), apply):
        code, said = await cluster.iriscw(*words)
        assert code == 0, said

    address = await controller_address(cluster)
    async with iriscw.connect(address, read_token_file(tmp_path / "secrets" / "admin-token")) as client:
        wanted = iriscw.Resources(cpu=1, memory="1GiB")
        with pytest.raises(iriscw.errors.InvalidArgument, check=that(names="image")):
            await client.submit(hello, name="none", resources=wanted, image="two words")
        job = await client.submit(hello, name="smoke", resources=wanted, image="ghcr.io/ada/own:7")
        watching = asyncio.create_task(cluster.until(PODS, tasks))
        async with asyncio.timeout(90):
            ((value, worker, same),) = await job.result()
        assert (value, same) == (42, True)
        (pod,) = tasks(await watching)
        (owner,) = pod["metadata"]["ownerReferences"]
        (of_worker,) = workers(cluster.list(PODS))
        assert (
            worker == of_worker["metadata"]["labels"]["iris-worker-id"] == pod["metadata"]["labels"]["iris-worker-id"]
        )
        assert (owner["kind"], owner["uid"]) == ("Pod", of_worker["metadata"]["uid"])
        assert pod["spec"]["nodeName"] == of_worker["spec"]["nodeName"]
        assert pod["spec"]["containers"][0]["image"] == "ghcr.io/ada/own:7"
        assert of_worker["spec"]["serviceAccountName"] == "iris-worker"
        assert of_worker["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"

        # The attempt is over and forgotten: its pod goes, then the idle slice with all of it.
        await cluster.until(PODS, lambda items: not tasks(items))
        await cluster.until(POOLS, lambda items: not slices(items))
        await cluster.until(NODES, lambda items: len(items) == 1)
        assert [phase(item) for item in cluster.list(PODS)] == ["Running"]  # the controller's
