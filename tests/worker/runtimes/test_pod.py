"""Attempts as pods, on a served simulation whose pods are real processes: the contract, adoption, ends from outside."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_world import pod_world

from iriscw.testing.conformance.task_runtime import TaskRuntimeConformance

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path):
    async with pod_world(tmp_path) as made:
        yield made


class TestPodRuntime(TaskRuntimeConformance):
    """The public suite, on pods."""

    @pytest.fixture
    async def runtime(self, world):
        async with world.runtime() as made:
            yield made
