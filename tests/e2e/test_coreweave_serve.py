"""A controller on CoreWeave as people start it: two commands, a configuration, and a client.

The cloud is `iriscw sim serve`, whose pods run nothing. So no worker ever dials: what is shown is the way there, and
that nothing is left when nobody wants it any more.
"""

import json
import os
import signal
import subprocess
import sys

import anyio
import pytest

import iriscw
from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects

COMMAND = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
PODS, SECRETS = "/api/v1/namespaces/iris/pods", "/api/v1/namespaces/iris/secrets"
CONFIG = """
name: research
platform:
  coreweave: {{ region: LGA1, kubeconfig_path: {kubeconfig} }}
  timeouts: {{ api_timeout: 1s, init_timeout: 3s }}
  autoscaler: {{ scale_up_delay: 100ms, scale_down_delay: 500ms, evaluation_interval: 1s }}
defaults:
  bootstrap: {{ docker_image: registry.example/iris-worker:1 }}
scale_groups:
  h100_8x:
    accelerator_type: gpu
    accelerator_variant: H100
    resources: {{ cpu: 128, ram: 2048GB, gpu_count: 8 }}
    slice_template: {{ coreweave: {{ instance_type: gd-8xh100ib-i128 }} }}
"""


def start(*arguments, said):
    """Start a command that goes on, and read what it says until it says this."""
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ})
    for line in process.stderr:
        if said in line:
            return process
    raise AssertionError(f"{arguments} ended with {process.wait()}")


def stop(process):
    """End a command as a supervisor does, and give its exit code."""
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    process.stderr.close()
    return process.wait(timeout=30)


async def until(objects, path, condition):
    """Wait until the objects of ours are as they should be, and give them."""
    with anyio.fail_after(60):
        while True:
            found = await objects.list(path, "iris-managed=true")
            if condition(found):
                return found
            await anyio.sleep(0.1)


@pytest.mark.slow
async def test_a_job_on_a_simulated_cloud(tmp_path):
    """Submitted by a client, a job gets a pool, a node and a pod; terminated, all of it goes again."""
    kubeconfig, config, state = tmp_path / "kubeconfig", tmp_path / "coreweave.yaml", tmp_path / "state"
    config.write_text(CONFIG.format(kubeconfig=kubeconfig))
    cloud = start(
        *("sim", "serve", "--empty", "--quick", "--speed", "50", "--kubeconfig", str(kubeconfig)), said="Ctrl-C"
    )
    serve = ("controller", "serve", "--config", str(config), "--host", "127.0.0.1", "--port", "0")
    controller = start(*serve, "--state-dir", str(state), said="iriscw controller at")
    try:
        address = f"127.0.0.1:{(state / 'port').read_text().strip()}"
        token = (state / "secrets" / "admin-token").read_text().strip()
        async with (
            open_objects(await find_access(kubeconfig)) as objects,
            iriscw.connect(address, token) as client,
        ):
            resources = iriscw.Resources(cpu=1, memory="1GiB", gpu=8)
            job = await client.submit(iriscw.Command(["true"]), name="smoke", resources=resources)
            (pool,) = await until(objects, POOLS, lambda found: len(found) == 1)
            (pod,) = await until(objects, PODS, lambda found: found and found[0]["spec"].get("nodeName"))
            assert pool["metadata"]["name"].startswith("iris-h100-8x-")
            assert pool["spec"]["targetNodes"] == 1
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            assert (limits["nvidia.com/gpu"], limits["rdma/ib"]) == ("8", "1")
            assert pod["metadata"]["ownerReferences"][0]["uid"] == pool["metadata"]["uid"]
            (secret,) = await until(objects, SECRETS, lambda found: len(found) == 1)
            assert secret["metadata"]["name"] == pod["metadata"]["name"]
            assert secret["data"]["token"] not in json.dumps(pod)
            await job.terminate()
            for path in (POOLS, PODS, SECRETS, "/api/v1/nodes"):
                await until(objects, path, lambda found: not found)
    finally:
        codes = [stop(controller), stop(cloud)]
    assert codes == [0, 0]


@pytest.mark.slow
def test_the_local_platform_loads_no_kubernetes():
    """What talks to Kubernetes is imported when a configuration names the platform, and not before."""
    code = (
        "import sys, iriscw.controller.assembly, iriscw.worker.assembly;"
        "print(*[name for name in sys.modules if 'cloud.kube' in name or 'drivers.kube' in name or name == 'aiohttp'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
