"""What attempts with a pod, or a container, of their own are told of GPUs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from iriscw.cloud.kube.tasks import TaskPod
from iriscw.cloud.model import Capacity, InvalidSpec
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.testing.conformance.task_runtime import facts
from iriscw.worker.ports import AttemptSpec, WorkerTrouble
from iriscw.worker.runtimes.pod import open_pod_runtime
from raised import that

VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "IRIS_GPU_INDICES")


class Refusing:
    """Reads what it is asked to make, and makes nothing."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.asked: list[tuple[TaskPod, dict]] = []

    def name(self, attempt_uid: str) -> str:
        return attempt_uid

    async def create(self, task: TaskPod) -> None:
        order = await anyio.Path(self.cache / task.folder / "order.json").read_text()
        self.asked.append((task, json.loads(order)["environment"]))
        raise InvalidSpec("not today")

    async def watch(self) -> AsyncIterator[object]:
        await anyio.sleep_forever()
        yield


@pytest.mark.parametrize(
    ("own", "given", "told"),
    [
        (("GPU-7", "GPU-2"), ("GPU-7", "GPU-2"), ["GPU-7,GPU-2", "GPU-7,GPU-2", "0,1"]),
        ((), (), ["", "void", ""]),
        (None, (), [None, None, None]),
    ],
)
async def test_gpus_of_a_container_and_of_a_pod(tmp_path: Path, own: tuple, given: tuple, told: list) -> None:
    """A container has those of its attempt, and counts them from 0. Of a pod's nobody but its node says anything."""
    driver = Refusing(tmp_path)
    (tmp_path / "tasks").mkdir()
    lease = LeaseFile(tmp_path / "tasks" / "lease")
    lease.hold(NEVER_NS)
    opened = open_pod_runtime(driver, lease, root=tmp_path / "attempts", cache_dir=tmp_path)
    numbers = tuple(int(each[-1]) for each in own or ())
    spec = AttemptSpec(facts(gpus=own, gpu_indices=numbers), argv=("true",), demand=Capacity(gpu_count=2))
    async with opened as runtime:
        with pytest.raises(WorkerTrouble, check=that(names="attempt-1")):
            await runtime.start(spec)
    lease.close()
    ((task, environment),) = driver.asked
    assert task.gpus == given
    assert [environment.get(name) for name in VARIABLES] == told
