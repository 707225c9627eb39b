"""The demo's controllers: whoever ends how, nothing is left of them."""

import contextlib
import os
import signal

import anyio
import pytest

from iriscw.cli.demo import controllers
from iriscw.cli.demo.controllers import ControllerFailed, DemoFleet, FirstController, interrupts_held
from iriscw.cli.demo.leftovers import processes_in
from iriscw.client.client import connect
from iriscw.client.submission import Command
from iriscw.cloud.drivers.local.folder import Folder
from iriscw.cloud.drivers.local.throwaway import PLATFORM_FOLDER, ThrowawayFolder
from iriscw.cluster import worker_processes_in
from iriscw.processes.identity import is_alive
from iriscw.resources import Resources
from iriscw.rpc.tokens import read_token_file
from raised import that

FLEET = DemoFleet(nodes=1, boot_delay_s=0.0)
SMALL = Resources(cpu="100m", memory="32MiB")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Folders for temporary files of the test's own."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


async def worker_of(first):
    """Have it run a job; give the process of the worker that did."""
    async with connect(first.address, read_token_file(first.token_file)) as client:
        job = await client.submit(Command(["true"]), name="j", resources=SMALL)
        await job.wait()
        names = [worker.worker_id for each in await client.slices() for worker in each.workers]
    (worker,) = worker_processes_in(first.folder, names).values()
    assert is_alive(worker)
    return worker


async def taken_over(first):
    """Kill it under a job, and have the next one bring that to its end."""
    async with connect(first.address, read_token_file(first.token_file)) as client:
        job = await client.submit(Command(["sh", "-c", "echo begun; sleep 3"]), name="j", resources=SMALL)
        async with contextlib.aclosing(job.logs(follow=True)) as lines:
            async for line in lines:
                assert line.text == "begun"
                break
        (before,) = await job.tasks()
        first.process.kill()
        first.process.wait()
        async with FLEET.cluster(first.folder) as cluster:
            assert cluster.address == first.address
            assert (await job.wait()).state == "SUCCEEDED"
            (after,) = await job.tasks()
            assert [each.uid for each in after.attempts] == [each.uid for each in before.attempts]


@pytest.mark.slow
def test_the_next_controller_goes_on_where_the_killed_one_was(temporary):
    """The job, its attempt and the address are the same; when both are over neither process nor file is left."""
    with contextlib.closing(FirstController.start(FLEET)) as first:
        anyio.run(taken_over, first)
    assert processes_in(temporary) == []
    assert [*temporary.iterdir()] == []


@pytest.mark.slow
def test_a_killed_one_that_nobody_followed_leaves_no_machines(temporary):
    """Closing ends the workers of a controller that was killed, and removes its folder."""
    with contextlib.closing(FirstController.start(FLEET)) as first:
        worker = anyio.run(worker_of, first)
        first.process.kill()
        first.process.wait()
        assert is_alive(worker)
    assert not is_alive(worker)
    assert processes_in(temporary) == []
    assert [*temporary.iterdir()] == []


@pytest.mark.slow
def test_it_ends_in_order_when_the_demo_is_gone(temporary):
    """Its standard input ends with the demo, however that ends; its machines have ended with it then."""
    with contextlib.closing(FirstController.start(FLEET)) as first:
        worker = anyio.run(worker_of, first)
        first.process.stdin.close()
        assert first.process.wait(60) == 0
        assert not is_alive(worker)
    assert [*temporary.iterdir()] == []


@pytest.mark.slow
def test_a_folder_in_use_is_left_to_the_next_cluster(temporary):
    """So it is when a third Ctrl-C cut the next controller's end short: whoever uses it is not disturbed."""
    with contextlib.closing(FirstController.start(FLEET)) as first:
        anyio.run(worker_of, first)
        first.process.kill()
        first.process.wait()
        with Folder(first.folder / PLATFORM_FOLDER).locked():
            first.close()
        assert [*temporary.iterdir()] == [first.folder]
        first._folder = ThrowawayFolder(first.folder, os.open(os.devnull, os.O_RDONLY))
    assert [*temporary.iterdir()] == []


def test_one_that_does_not_start_says_why(temporary, monkeypatch):
    """The end of what it wrote is in the error, and no folder is left."""
    monkeypatch.setattr(controllers, "MODULE", "iriscw.no_such_module")
    with pytest.raises(ControllerFailed, check=that(names="iriscw.no_such_module")):
        FirstController.start(FLEET)
    assert [*temporary.iterdir()] == []


def test_ctrl_c_does_not_cut_an_end_short():
    """What is under way comes to its end, and Ctrl-C is as it was; the interrupt is raised after that."""
    before, done = signal.getsignal(signal.SIGINT), []

    def ended():
        with interrupts_held():
            for number in range(3):
                signal.raise_signal(signal.SIGINT)
                done.append(number)

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert done == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts_held():
        pass
