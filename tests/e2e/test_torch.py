"""PyTorch as it is, on a gang: ``torch.distributed`` finds its peers by the variables that iriscw sets."""

import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "freeze" / "programs"))  # for strange_programs

from strange_programs import fetched, libraries

from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.resources import Resources

PYTHON = "/usr/bin/python3"
PATIENCE_S = 300
"""Four processes import PyTorch on a busy machine."""

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(dist.get_rank(), dist.get_world_size(), total.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The variables with which the system's Python finds PyTorch, where it was fetched."""
    folder = fetched()
    if folder is None:
        pytest.skip("PyTorch is not here: tests/freeze/programs/install-programs fetches it")
    packages = str(folder / "usr/lib/python3/dist-packages")
    return {"PYTHONPATH": packages, "LD_LIBRARY_PATH": libraries(folder), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
async def test_torch_distributed_on_four_replicas(environment):
    """A program of three lines that knows nothing of iriscw sums over four processes on two workers."""
    resources = Resources(cpu="500m", memory="512MiB")
    async with Cluster.local(nodes=2, boot_delay=0.0, policy=lambda view: 2) as cluster:
        job = await cluster.client.submit(
            Command([PYTHON, "-c", TRAIN]),
            name="torch",
            replicas=4,
            resources=resources,
            coscheduling="group",
            environment=environment,
        )
        with anyio.fail_after(PATIENCE_S):
            await job.result()
            said = sorted([line.text async for line in job.logs() if line.text[:1].isdigit()])
    assert said == [f"{rank} 4 10.0" for rank in range(4)]
