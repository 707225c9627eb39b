"""An attempt that is frozen with its folder, and goes on where that is not: with the real CRIU, worker and supervisor.

Another node is this one without the folder, and with a worker that knows nothing of the first.
"""

import shutil
import sys
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_trees

from real_trees import why_not

from iriscw.agent.local import Local
from iriscw.agent.machine import this_machine
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import CriuOptions, FreezePlan, Numbers, Outcome, ThawPlan
from iriscw.processes.ends import EndKind
from iriscw.processes.grants import owner_of
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.testing.conformance.task_runtime import facts
from iriscw.worker.inotify import FileWatch
from iriscw.worker.ports import AttemptSpec, Whereabouts
from iriscw.worker.runtimes.process import ProcessRuntime

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

PATIENCE_S = 120.0
MINUTE_NS = 60_000_000_000

COUNTING = """
import os, time
log = open("log", "a", buffering=1)
random = open("random", "w+b")
random.write(bytes(100)); random.flush()
reading, writing = os.pipe()
gone = open("gone", "w+"); os.unlink("gone"); gone.write("kept"); gone.flush()
number = 0
while not os.path.exists("enough"):
    number += 1
    print(number, flush=True)
    log.write(f"{number}\\n")
    random.seek(number % 90); random.write(b"x"); random.flush()
    time.sleep(0.005)
gone.seek(0)
open("result", "w").write(f"{number} {gone.read()} {os.getcwd()}")
"""


class Node:
    """A worker of a machine, and what freezes and thaws there."""

    def __init__(self, state: Path, worker: str, local: Local) -> None:
        life = state / worker / "1"
        life.mkdir(parents=True)
        self.lease = LeaseFile(life / "lease")
        self.lease.hold(NEVER_NS)
        self.lease.write()
        self.watch = FileWatch()
        self.runtime = ProcessRuntime(
            life / "attempts", one_log=True, lease=self.lease, owner=f"{worker}/1", watch=self.watch
        )
        self.local = local

    def close(self) -> None:
        self.watch.close()
        self.lease.close()


@pytest.fixture
async def nodes(tmp_path, monkeypatch):
    """Two of them, in one state folder as the workers of a cluster have."""
    if why_not():
        pytest.skip(why_not())
    monkeypatch.setenv("IRISCW_RAM_DIR", str(tmp_path / "ram"))
    (tmp_path / "kept").mkdir()
    local = this_machine(tmp_path / "freezing", repository=f"file://{tmp_path / 'kept'}")
    made = [Node(tmp_path / "workers", worker, local) for worker in ("a", "b")]
    yield made
    for node in made:
        for attempt in await node.runtime.adopt():
            await attempt.stop(0)
        node.close()
    await local.machine.tiers.aclose()


def numbers(path: Path) -> list[int]:
    """Return what was counted into a file so far."""
    return [int(line) for line in path.read_bytes().split(b"\n")[:-1]]


async def counts_on(path: Path) -> None:
    """Wait until it has counted further; no number is missing or there twice."""
    before = len(numbers(path))
    with anyio.fail_after(PATIENCE_S):
        while len(numbers(path)) < before + 3:  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)
    assert numbers(path) == [*range(1, len(numbers(path)) + 1)]


async def suspended(node: Node, attempt, checkpoint: str) -> None:
    """Freeze an attempt with its folder, and have its worker let it go."""
    plan = FreezePlan(
        checkpoint, to_task(attempt.supervisor), "disk", carries_folder=True, options=CriuOptions(tcp_close=True)
    )
    end = await node.local.run(FreezeTree(plan))
    assert end.outcome is Outcome.FROZEN, end
    with anyio.fail_after(PATIENCE_S):
        assert (await attempt.wait()).kind is EndKind.LOST
    await node.runtime.let_go(attempt.uid)


async def resumed(node: Node, folder: Path, checkpoint: str, grant: str):
    """Have it go on with a worker, as a controller does: granted first, then thawed."""
    await node.runtime.permit("a1", folder, grant, Whereabouts(node.runtime.owner, "c:1", "10.0.0.2"))
    found = []

    async def thawed() -> None:
        found.append(await node.runtime.thawed("a1", grant))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            serving = anyio.CancelScope()

            async def serve() -> None:
                with serving:
                    await node.watch.serve()

            tasks.start_soon(serve)
            async with anyio.create_task_group() as both:
                both.start_soon(thawed)
                plan = ThawPlan(f"th-{grant}", checkpoint, numbers=Numbers.AUTO)
                end = await node.local.run(ThawTree(plan))
                if end.outcome is not Outcome.THAWED:
                    both.cancel_scope.cancel()
            serving.cancel()
    return end, found[0] if found else None


async def test_an_attempt_goes_on_where_its_folder_was_not(nodes) -> None:
    """Its folder comes with it: what it wrote before and after is one log, and its result is where it looks for it.

    The checkpoint is in the repository alone meanwhile. It goes back, too, to where an older state of its folder lies;
    and what nobody granted takes nothing away.
    """
    a, b = nodes
    spec = AttemptSpec(facts("a1"), argv=(sys.executable, "-c", COUNTING))
    attempt = await a.runtime.start(spec)
    folder, log = attempt.folder.path, attempt.folder.stdout
    await anyio.to_thread.run_sync(log.touch)
    await counts_on(log)
    await suspended(a, attempt, "ck-1")
    moved = await a.local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "repository")))
    assert moved.outcome is Outcome.MOVED, moved
    frozen_at = len(numbers(log))
    kept = folder.parent.parent / "kept"
    folder.rename(kept)
    folder.parent.rmdir()

    assert await b.local.fetch("ck-1", "disk") is not None
    end, moved = await resumed(b, folder, "ck-1", "g1")
    assert end.outcome is Outcome.THAWED, end
    assert owner_of(folder) == "b/1"
    await counts_on(log)
    await counts_on(folder / "work" / "log")
    assert len(numbers(log)) > frozen_at
    assert [path.name for path in folder.parent.iterdir()] == ["a1"]
    await suspended(b, moved, "ck-2")
    newest = numbers(log)

    shutil.rmtree(folder)  # as on the first node: what it had there is old
    kept.rename(folder)
    assert len(numbers(log)) == frozen_at
    ungranted = await a.local.run(ThawTree(ThawPlan("th-none", "ck-2", numbers=Numbers.AUTO)))
    assert (ungranted.outcome, ungranted.kind) == (Outcome.FAILED, "GuardRefused"), ungranted
    assert len(numbers(log)) == frozen_at, "what was there before is there again"

    end, back = await resumed(a, folder, "ck-2", "g2")
    assert end.outcome is Outcome.THAWED, end
    assert numbers(log)[: len(newest)] == newest
    await counts_on(log)
    again = await a.local.run(ThawTree(ThawPlan("th-again", "ck-2", numbers=Numbers.AUTO)))
    assert (again.outcome, again.kind) == (Outcome.FAILED, "GateRefused"), again
    (folder / "work" / "enough").touch()
    with anyio.fail_after(PATIENCE_S):
        ended = await back.wait()
    assert (ended.kind, ended.code) == (EndKind.EXITED, 0)
    count, word, place = (folder / "work" / "result").read_text().split()
    assert (int(count), word, place) == (numbers(log)[-1], "kept", str(folder / "work"))
    assert numbers(log) == [*range(1, int(count) + 1)]
    await back.remove()
    assert not folder.exists()


async def test_an_attempt_that_stayed_goes_on_in_its_own_folder(nodes) -> None:
    """Nothing is unpacked where the folder that was packed still is."""
    a, _ = nodes
    attempt = await a.runtime.start(AttemptSpec(facts("a1"), argv=(sys.executable, "-c", COUNTING)))
    folder, log = attempt.folder.path, attempt.folder.stdout
    await counts_on(log)
    await suspended(a, attempt, "ck-1")
    inode = folder.stat().st_ino
    end, back = await resumed(a, folder, "ck-1", "g1")
    assert end.outcome is Outcome.THAWED, end
    assert folder.stat().st_ino == inode
    await counts_on(log)
    await back.stop(0)


async def test_what_cannot_be_carried_is_not_frozen(nodes) -> None:
    """It runs on, and the error names what is in the way."""
    a, _ = nodes
    attempt = await a.runtime.start(AttemptSpec(facts("a1"), argv=(sys.executable, "-c", COUNTING)))
    log = attempt.folder.stdout
    await counts_on(log)
    plan = FreezePlan("ck-1", to_task(attempt.supervisor), "disk", carries_folder=True)
    plan = attrs.evolve(plan, root=to_task(attempt.process))
    end = await a.local.run(FreezeTree(plan))
    assert (end.outcome, end.kind) == (Outcome.UNDONE, "FolderUnfit"), end
    await counts_on(log)
    await attempt.stop(0)
