"""A controller with client-go, which sends protobuf, against a served simulation: it makes what it wants, and leads."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from serve_caller import Caller

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing

REAL = Path(__file__).parents[2] / "kube" / "real"
DONE = """namespace
pod
pod changed
deployment
scale
service
claim
event
role
binding
budget
review
led
evicted
deleted
"""


@pytest.fixture(scope="session")
def controller_program():
    """The path of the controller; the test is skipped where it was not built."""
    finder = REAL / "build-controller"
    found = subprocess.run([finder, "--only-find"], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip(f"no controller: {found.stderr.strip()}")
    return found.stdout.strip()


async def test_a_controller_in_go_does_all_that_it_is_for(controller_program, tmp_path):
    """It sends no JSON unless it is a patch, and hears in its first request all of a version that it may ask for."""
    pools = (PoolToBegin("a", "cd-gp-i64"),)
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", speed=100, timing=Timing.QUICK, pools=pools)
    async with SimServer(settings) as server:
        pipe = asyncio.subprocess.PIPE
        words = (controller_program, str(tmp_path / "kubeconfig"), "made-by-go")
        process = await asyncio.create_subprocess_exec(
            *words, env={"HOME": str(tmp_path), "PATH": os.defpath}, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(90):
            out, err = await process.communicate()
        assert (process.returncode, out.decode()) == (0, DONE), err.decode()
        assert server.statistics().failures == 0
        async with Caller(server) as caller:
            lease = await caller.done("GET", "/apis/coordination.k8s.io/v1/namespaces/made-by-go/leases/controller")
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("", 1), "it was released"
