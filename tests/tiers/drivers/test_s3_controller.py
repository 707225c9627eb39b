"""A controller with everything in a bucket: its node and disk may go, and its jobs stay."""

import shutil
import sys
from pathlib import Path

import anyio
import pytest
from s3_stage import AWS_SMALL, BUCKET, staged

from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.proto.iriscw import v1

sys.path.insert(0, str(Path(__file__).parents[2] / "controller"))

from controller_world import CONFIG, Drivers, World

pytestmark = pytest.mark.usefixtures("credentials")


class InBucket(World):
    """A controller whose journal has its second copy in a bucket, and whose bundles are there."""

    async def __aenter__(self):
        places = {"replica_prefix": f"s3://{BUCKET}/site", "bundle_prefix": f"s3://{BUCKET}/bundles"}
        config = build_config({**CONFIG, "controller": {**CONFIG["controller"], "durability": "replicated", **places}})
        self.controller = Controller(config, state_dir=self.state, drivers=Drivers(self.cloud))
        await self._stack.enter_async_context(self.controller)
        self.client = await self._stack.enter_async_context(self.channel(self.controller.admin_token))
        return self


async def test_jobs_outlive_the_disk(tmp_path, monkeypatch) -> None:
    """With nothing left but the bucket, an acknowledged job is known, runs, and ends; answers are lost meanwhile."""
    async with staged(AWS_SMALL, {"object reply lost": 30, "object throttled": 100}) as stage:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{stage.server.port}")
        async with InBucket(tmp_path / "state") as world:
            job = await world.submit(replicas=3)
            await world._stack.aclose()
            await anyio.to_thread.run_sync(shutil.rmtree, world.state)
            await world.__aenter__()
            assert (await world.status(job.job_id)).state is not v1.JobState.UNSPECIFIED
            async with world.worker():
                assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
        assert any(name.startswith("site/journal/") for name in stage.bodies())
