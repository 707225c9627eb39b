"""Containers of the real runc behind the port ``Criu``: held, let run, ended; with CRIU or runc killed meanwhile."""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_containers, real_trees

from real_containers import Box, Runc, find_runc, runs
from real_trees import PATIENCE_S, why_not

from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.runtime.driver import RuntimeCriu
from iriscw.freeze.model import Container, CriuFailed, CriuOptions, DumpRequest, RestoreRequest, SweepRequest, TreeLeft
from iriscw.processes.identity import read_stat
from raised import that
from waiting import block_until

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
WITHIN_NS = int(PATIENCE_S * 1e9)


def unseen(progress):
    """Take progress."""


class Port:
    """The port, a container, and what a dump of it asks for."""

    def __init__(self, program, folder):
        self.runc = Runc(program, folder)
        self.box = Box(self.runc, "box")
        self.criu = RuntimeCriu(CriuSwrk(), folder / "doors", Path(program))
        self.container = Container("box", str(self.runc.root))
        self.images, self.work = folder / "images", folder / "work"
        for each in (self.images, self.work):
            each.mkdir(mode=0o700)

    async def held(self):
        """Dump it, and hold it."""
        root = identify_task(self.box.pid)
        folders = (str(self.images), str(self.work))
        request = DumpRequest("ck-1", root, *folders, CriuOptions(), WITHIN_NS, self.container)
        return await self.criu.dump(request, unseen)

    def recorded(self):
        """Return the number of the CRIU that runs."""
        return json.loads((self.work / "criu-run.json").read_text(encoding="utf-8"))["criu"]["pid"]

    async def sweep(self):
        """Do as the next life does."""
        return await self.criu.sweep(SweepRequest("ck-1", str(self.work), container=self.container))


@pytest.fixture
def port(tmp_path):
    """The port with a container that counts, or none, and why."""
    program, trouble = find_runc()
    if not program or why_not():
        pytest.skip(trouble or why_not())
    made = Port(program, tmp_path)
    yield made
    made.box.remove()


async def test_held_and_let_run(port):
    """It stands still while it is held; afterwards it counts on, and runc knows it as before. Both may be repeated."""
    held = await port.held()
    before = port.box.counts()
    assert (port.images / "inventory.img").exists()
    assert port.box.counts() == before
    for _ in range(2):
        await held.resume(WITHIN_NS)
    assert port.box.status() == "running"
    port.box.counts_on()
    assert port.box.unbroken()
    with pytest.raises(TreeLeft, check=that(comes_from="held.HeldContainer.end")):
        await held.end(WITHIN_NS)
    port.box.counts_on()
    assert not any((port.images.parent / "doors").iterdir())


async def test_held_and_ended(port):
    """It has ended, and runc has forgotten it. Ending may be repeated, and nothing of it can run on."""
    held = await port.held()
    for _ in range(2):
        await held.end(WITHIN_NS)
    assert port.box.status() == ""
    with pytest.raises(TreeLeft, check=that(comes_from="held.HeldContainer.resume")):
        await held.resume(WITHIN_NS)


async def test_a_runtime_that_is_killed_while_it_is_held(port):
    """What was decided is done without it: the container ends, and what runc had noted can be removed."""
    held = await port.held()
    runc = read_stat(port.recorded()).parent_pid
    os.kill(runc, signal.SIGKILL)
    await held.end(WITHIN_NS)
    assert port.box.status() == "stopped"
    assert port.runc("delete", "box").returncode == 0


@pytest.mark.parametrize("decided", ["resume", "end"])
async def test_a_criu_that_is_killed_while_it_holds(port, decided):
    """The kernel lets the container run: it can be let run, and is not ended although that was asked for."""
    held = await port.held()
    os.kill(port.recorded(), signal.SIGKILL)
    block_until(lambda: port.box.status() == "running", "it is not stopped")
    if decided == "end":
        with pytest.raises(TreeLeft, check=that(comes_from="held.HeldContainer.end")):
            await held.end(WITHIN_NS)
    await held.resume(WITHIN_NS)
    port.box.counts_on()
    assert port.box.unbroken()


@pytest.mark.parametrize("paused", [True, False])
async def test_a_control_group_that_was_left_frozen(port, paused):
    """By a CRIU that was killed: the sweep lets it run. One that was paused before stays so."""
    held = await port.held()
    os.kill(port.recorded(), signal.SIGKILL)
    await held.resume(WITHIN_NS)
    assert port.runc("pause", "box").returncode == 0  # as if CRIU had been killed while it froze the group
    (port.work / "container-run.json").write_text(json.dumps({"paused": paused}), encoding="utf-8")
    await port.sweep()
    assert port.box.status() == ("paused" if paused else "running")
    if not paused:
        port.box.counts_on()


async def test_a_life_that_ends_while_it_holds(port):
    """Its sockets are closed, as the kernel does: CRIU lets the container run, and the sweep finds nothing to do."""
    held = await port.held()
    criu = port.recorded()
    held._call.let_go()
    block_until(lambda: not runs(criu), "CRIU has ended by itself")
    assert await port.sweep() == ()
    port.box.counts_on()
    assert port.box.status() == "running"
    assert port.box.unbroken()
    assert await held._runtime.close(WITHIN_NS) == 1  # runc heard that its checkpoint failed, and ended by itself
    held._door.close()


async def test_a_dump_that_is_given_up(port):
    """Whenever it is cancelled, the container counts on, and a later dump finds it as it was."""
    for moment in (0.0, 0.05, 0.1, 0.2, 0.4):
        with anyio.move_on_after(moment):
            held = await port.held()
            with anyio.CancelScope(shield=True):
                await held.resume(WITHIN_NS)
        port.box.counts_on()
        assert port.box.status() == "running"
        for each in port.images.iterdir():
            each.unlink()
    held = await port.held()
    await held.resume(WITHIN_NS)
    assert port.box.unbroken()


async def test_a_restore_that_nobody_runs(port):
    """Without a runtime that was told so nothing comes back, and that is said at once."""
    words = ("th-1", str(port.images), str(port.work), CriuOptions(), (1,), 0, WITHIN_NS)
    request = RestoreRequest(*words, container=port.container, inner_pids=(1,))
    with pytest.raises(CriuFailed, check=that(comes_from="driver.RuntimeCriu.restore")):
        await port.criu.restore(request, unseen)
