"""The smoke test of a cluster on the real CoreWeave, after seed 000, section 7: what it needs, and its steps.

CoreWeave's own API cannot be reached from where iriscw is tested, so this has never run there; a slow test runs the
same steps against a real API server with a simulated CoreWeave (``test_coreweave_smoke.py``). Whoever has a cluster:

1. Put a registry, and types of node that you have quota for, into ``coreweave/cluster.yaml``; build and push the images
   (docs/coreweave.md, step 1).
2. Install, with tokens and certificates; ``coreweave/manifests.yaml`` shows what that makes::

       iriscw manifests tests/e2e/coreweave/cluster.yaml --secrets-to secrets
       iriscw manifests tests/e2e/coreweave/cluster.yaml --apply --secrets-from secrets

3. Open the way to the controller in one terminal, and run the test in another. A bare-metal node boots for 14 to 30
   minutes, so its dot takes as long::

       iriscw connect tests/e2e/coreweave/cluster.yaml --port 10000
       IRIS_COREWEAVE_URL=https://127.0.0.1:10000 .ci/run

   or only this: ``... -m pytest -m coreweave -o faulthandler_timeout=6000 tests/e2e/test_coreweave_smoke.py``.
4. ``iriscw down tests/e2e/coreweave/cluster.yaml --delete-pools``.

``python tests/e2e/coreweave_smoke.py`` writes ``coreweave/manifests.yaml`` anew; a test compares.
"""

from __future__ import annotations

import os
import platform
import sys
import uuid
from pathlib import Path

import anyio

import iriscw
from iriscw.config.load import load_config
from iriscw.deploy.installation import installation_of
from iriscw.deploy.rendering import render
from iriscw.deploy.writing import stream

HERE = Path(__file__).parent / "coreweave"
CONFIG, MANIFESTS = HERE / "cluster.yaml", HERE / "manifests.yaml"

URL = "IRIS_COREWEAVE_URL"
"""The controller's address; token, authority and name come from the file that ``iriscw connect`` leaves, or from the
variables that it sets."""

JOB_S = 2400
"""Until the job has ended: the 40 minutes that a bare-metal node may take."""

GONE_S = 900
"""Until the idle slice is gone: half a minute idle, and what CoreWeave takes to give a node back."""

LOOK_S = 1.0

GROUP = "cpu_test"
SMALL = iriscw.Resources(cpu=1, memory="1GiB")


def rendered() -> str:
    """Write what ``iriscw manifests`` makes of the configuration."""
    installation = installation_of(load_config(CONFIG))
    return stream(installation, render(installation))


def hello() -> tuple[int, str, str]:
    """Be the smallest task: give a value, which worker computed it, and by which Python."""
    return 42, os.environ["IRIS_WORKER_ID"], platform.python_version()


async def a_job_runs(client: iriscw.Client) -> str:
    """Submit a job, wait for its machine, and get its value back. Give the worker that computed it."""
    before = await client.slices(GROUP)
    job = await client.submit(hello, name=f"coreweave-smoke-{uuid.uuid4().hex[:8]}", resources=SMALL)
    status = await job.wait(timeout_s=JOB_S)
    assert status.state == "SUCCEEDED", f"{status.reason}; slices before: {before}, now: {await client.slices()}"
    ((value, worker, version),) = await job.result(timeout_s=60)
    assert value == 42
    assert version.split(".")[:2] == platform.python_version().split(".")[:2]
    return worker


async def its_machine_is_known(client: iriscw.Client, worker: str) -> str:
    """Find the slice that the worker belongs to. Give its id."""
    (found,) = [each for each in await client.slices(GROUP) if worker in [each.worker_id for each in each.workers]]
    return found.slice_id


async def the_idle_slice_goes(client: iriscw.Client, slice_id: str) -> None:
    """Wait until the very slice is gone that nobody wants any more."""
    with anyio.fail_after(GONE_S):
        while slice_id in [each.slice_id for each in await client.slices()]:  # noqa: ASYNC110 - clients are not told
            await anyio.sleep(LOOK_S)


if __name__ == "__main__":
    MANIFESTS.write_text(rendered(), encoding="utf-8")
    sys.stderr.write(f"{MANIFESTS}\n")
