"""The pipeline of the examples, written with the facade of fray: in this process, and on a cluster of this machine."""

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from iriscw import blocking
from iriscw.errors import ActorOver, CallLost
from iriscw.fray import FrayIrisClient

PIPELINE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "zephyr.py"
NAMES = runpy.run_path(str(PIPELINE), run_name="zephyr")
Dataset, ZephyrContext, ZephyrCoordinator, ZephyrWorker = (
    NAMES[each] for each in ("Dataset", "ZephyrContext", "ZephyrCoordinator", "ZephyrWorker")
)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster():
    """A cluster that all of these tests share."""
    with blocking.Cluster.local(nodes=2, boot_delay=0.0) as cluster:
        yield cluster


@pytest.mark.slow
def test_the_seeds_test_code(cluster, tmp_path):
    """It runs unchanged, and again: the actors of a pipeline end with it."""
    client = FrayIrisClient(controller_address=cluster.address, workspace=tmp_path)
    ctx = ZephyrContext(client=client, num_workers=2)
    ds = Dataset.from_list([1, 2, 3]).map(lambda x: x * 2)
    results = list(ctx.execute(ds))
    assert results == [2, 4, 6]
    assert list(ctx.execute(ds.filter(lambda x: x > 2).batch(5).map(sum))) == [10]
    client.shutdown()


@pytest.mark.slow
def test_a_worker_may_be_killed(cluster, tmp_path):
    """Nothing is lost, and the one that takes its place takes part: the last two items wait for each other."""

    def work(item):
        (tmp_path / f"{os.getpid()} {item}").touch()
        if item == 0 and len([*tmp_path.glob("* 0")]) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while item and not [*tmp_path.glob(f"* {3 - item}")]:
            time.sleep(0.01)
        return item

    with FrayIrisClient(cluster.address) as client:
        assert ZephyrContext(client).execute(Dataset.from_list(range(3)).map(work).reduce(sum)) == [3]
        assert len({each.name.partition(" ")[0] for each in tmp_path.iterdir()}) == 3


@pytest.mark.slow
def test_the_program(tmp_path):
    """It prints its result, with warnings as errors."""
    command = [sys.executable, "-W", "error", PIPELINE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == (f"sum: {sum(x * x for x in range(1000) if x % 3)}\n", 0)
    assert done.stderr.endswith("[####################] 29 of 29\n")


class Near(ZephyrWorker):
    """A worker that takes part from within this process."""

    def wait_ready(self):
        pass


class Mortal(Near):
    """A worker that dies with the first part that it is given, and comes back when it is let."""

    def __init__(self, error, returns):
        self.error, self.returns, self.lost = error, returns, threading.Event()

    def wait_ready(self):
        if self.lost.is_set():
            self.returns.wait(PATIENCE_S)

    def work(self, steps, items):
        self.lost.set()
        raise self.error("killed")


def test_what_is_lost_is_given_to_another():
    """Without waiting for the one that was killed; and if there is none that will ever come back, the pipeline ends."""
    returns, ds = threading.Event(), Dataset.from_list(range(20)).map(str).batch(7).map("".join)
    mortal = Mortal(CallLost, returns)
    try:
        assert ZephyrCoordinator().run(ds, [mortal, Near()]) == ["0123456", "78910111213", "141516171819"]
    finally:
        returns.set()
    assert mortal.lost.is_set()
    with pytest.raises(ActorOver):
        ZephyrCoordinator().run(ds, [Mortal(ActorOver, returns)])


def test_steps():
    """What each does, with few items, none, and an error."""
    run, ds = ZephyrCoordinator().run, Dataset.from_list(range(10))
    assert run(ds, [Near()]) == [*range(10)]
    assert run(ds.filter(lambda x: x % 4 == 0).reduce(max, combine=list), [Near()]) == [[0, 4, 8]]
    assert run(ds.filter(lambda x: x > 10).batch(2).reduce(max), [Near()]) == []
    with pytest.raises(ZeroDivisionError):
        run(ds.map(lambda x: 1 / x), [Near(), Near()])
