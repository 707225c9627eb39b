"""A controller with everything in a bucket: its node and disk may go, and its jobs stay."""

import functools
import shutil
import sys
from pathlib import Path

import anyio
import gs_stage
import pytest
import s3_stage

from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.proto.iriscw import v1

sys.path.insert(0, str(Path(__file__).parents[2] / "controller"))

from controller_world import CONFIG, Drivers, World

pytestmark = pytest.mark.usefixtures("credentials")


class InBucket(World):
    """A controller whose journal has its second copy in a bucket, and whose bundles are there."""

    bucket = ""
    """Its URL."""

    async def __aenter__(self):
        places = {"replica_prefix": f"{self.bucket}/site", "bundle_prefix": f"{self.bucket}/bundles"}
        config = build_config({**CONFIG, "controller": {**CONFIG["controller"], "durability": "replicated", **places}})
        self.controller = Controller(config, state_dir=self.state, drivers=Drivers(self.cloud))
        await self._stack.enter_async_context(self.controller)
        self.client = await self._stack.enter_async_context(self.channel(self.controller.admin_token))
        return self


class InS3(InBucket):
    bucket = f"s3://{s3_stage.BUCKET}"


class InGoogles(InBucket):
    bucket = f"gs://{gs_stage.BUCKET}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("staged", "variable", "world_of"),
    [
        (functools.partial(s3_stage.staged, s3_stage.AWS_SMALL), "AWS_ENDPOINT_URL", InS3),
        (functools.partial(gs_stage.staged, gs_stage.GOOGLE), "STORAGE_EMULATOR_HOST", InGoogles),
    ],
    ids=["s3", "gs"],
)
async def test_jobs_outlive_the_disk(tmp_path, monkeypatch, staged, variable, world_of) -> None:
    """With nothing left but the bucket, an acknowledged job is known, runs, and ends; answers are lost meanwhile."""
    async with staged({"object reply lost": 30, "object throttled": 100}) as stage:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{stage.server.port}")
        async with world_of(tmp_path / "state") as world:
            job = await world.submit(replicas=3)
            await world._stack.aclose()
            await anyio.to_thread.run_sync(shutil.rmtree, world.state)
            await world.__aenter__()
            assert (await world.status(job.job_id)).state is not v1.JobState.UNSPECIFIED
            async with world.worker():
                assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
        assert any(name.startswith("site/journal/") for name in stage.bodies())


async def test_the_configuration_says_where_the_bucket_is(tmp_path) -> None:
    """No variable is needed: journal and bundles are where ``object_storage_endpoint`` points."""
    async with s3_stage.staged(s3_stage.AWS_SMALL) as stage:
        there = {"object_storage_endpoint": f"http://127.0.0.1:{stage.server.port}", "object_storage_region": "eu-1"}
        places = {"replica_prefix": f"{InS3.bucket}/site", "bundle_prefix": f"{InS3.bucket}/bundles"}
        config = build_config(
            {
                "platform": {"coreweave": {"region": "LGA1", **there}},
                "controller": {"local": {"port": 0}, "durability": "replicated", **places},
                "defaults": {"bootstrap": {"controller_address": "127.0.0.1:1"}},
            }
        )
        world = InS3(tmp_path / "unused")
        async with Controller(config, state_dir=tmp_path / "state", drivers=Drivers(world.cloud)):
            pass
        assert any(name.startswith("site/journal/") for name in stage.bodies())
        asked = {
            each.header("authorization").partition("/aws4_request")[0].split("/")[2] for each in stage.server.served
        }
        assert asked == {"eu-1"}
