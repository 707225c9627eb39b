"""The smoke test of a real CoreWeave cluster, the proof that it works as a test, and that what it ships is current.

``coreweave_smoke.py`` says how it is run. Without a cluster (``IRIS_COREWEAVE_URL``) its test is skipped; the slow test
runs it, in a pytest of its own, against a real API server with a simulated CoreWeave.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

import iriscw
from iriscw.config.load import load_config
from iriscw_sims.coreweave.crd import POOLS

sys.path.insert(0, str(Path(__file__).parent))

import coreweave_smoke
from coreweave_smoke import CONFIG, MANIFESTS, URL, a_job_runs, its_machine_is_known, rendered, the_idle_slice_goes
from real_cluster import api_server, controller_address, coreweave_cluster, slices

NAMESPACE = "iris-test"


@pytest.mark.coreweave
@pytest.mark.skipif(URL not in os.environ, reason=f"{URL} names no controller: CoreWeave cannot be reached from here")
async def test_submit_and_succeed():
    """A job on an idle cluster gets a machine, runs there, and gives its value; the machine goes again."""
    async with iriscw.connect(os.environ[URL]) as client:
        worker = await a_job_runs(client)
        slice_id = await its_machine_is_known(client, worker)
        await the_idle_slice_goes(client, slice_id)


def test_the_manifests_are_current():
    """What is shipped is what the shipped configuration makes; run coreweave_smoke.py as a script to write it anew."""
    assert MANIFESTS.read_text(encoding="utf-8") == rendered()


def test_the_configuration_is_the_seeds():
    """Section 7 of seed 000, but for what it leaves to be chosen."""
    config = load_config(CONFIG)
    second = 10**9
    group = config.scale_groups["cpu_test"]
    assert config.platform.coreweave.namespace == NAMESPACE
    assert group.timeouts.boot_timeout == 1800 * second
    scaling = group.autoscaler
    assert (scaling.evaluation_interval, scaling.scale_up_delay, scaling.scale_down_delay) == (
        5 * second,
        5 * second,
        30 * second,
    )
    assert (group.min_slices, group.max_slices, group.resources.gpu_count) == (0, 2, 0)
    assert scaling.startup_grace_period == coreweave_smoke.JOB_S * second


def test_what_the_page_says_exists():
    """Files and variables that the page of the smoke test names are there."""
    page = (Path(__file__).parents[2] / "docs" / "coreweave.md").read_text(encoding="utf-8")
    section = page.partition("## The smoke test")[2].partition("\n## ")[0]
    named = re.findall(r"tests/e2e/[\w./-]+", section)
    assert len(named) >= 2
    assert all((Path(__file__).parents[2] / each).exists() for each in named)
    assert URL in section


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    """A real API server; the test is skipped where there is none."""
    with api_server(tmp_path_factory) as server:
        yield server


def in_a_hurry(text):
    """Return the smoke test's configuration for machines that are processes of this one: small ones, and quick."""
    for slow, quick in (
        ("5000 }", "1000 }"),
        ("30000 }", "3000 }"),
        ("startup_grace_period: { milliseconds: 2400000 }", "startup_grace_period: 60s"),
        ("timeouts:\n", "timeouts:\n    api_timeout: 2s\n"),
        ("port: 10000\n", "port: 10000\n    insecure_plaintext: true\n"),
        ("cpu: 4, ram: 16GB, disk: 50GB", "cpu: 1, ram: 2GB"),
    ):
        assert slow in text
        text = text.replace(slow, quick)
    return text


@pytest.mark.slow
async def test_the_smoke_test_itself(real_server, tmp_path):
    """It passes where the cluster works: as it is, by its marker, as people run it; its slice came, and is gone."""
    config, secrets = tmp_path / "cluster.yaml", str(tmp_path / "secrets")
    config.write_text(in_a_hurry(CONFIG.read_text(encoding="utf-8")))
    async with coreweave_cluster(real_server, tmp_path) as cluster:
        for words in (("--secrets-to", secrets), ("--apply", "--secrets-from", secrets, "--wait", "0s")):
            code, said = await cluster.iriscw("manifests", str(config), *words)
            assert code == 0, said
        address = await controller_address(cluster, NAMESPACE)
        variables = {
            URL: address,
            "IRIS_CONTROLLER_ADDRESS": address,
            "IRIS_TOKEN_FILE": str(tmp_path / "secrets" / "admin-token"),
        }
        came = asyncio.create_task(cluster.until(POOLS, lambda items: len(slices(items)) == 1))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", "-m", "coreweave", "-p", "no:cacheprovider", __file__),
            cwd=Path(__file__).parents[2],
            env={**os.environ, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert "1 passed" in said.decode()
        (pool,) = slices(await came)
        assert pool["metadata"]["name"].startswith("iris-cpu-test-")
        await cluster.until(POOLS, lambda items: not slices(items))
