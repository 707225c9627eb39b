"""An attempt that is frozen by a real CRIU and goes on with another worker, over the real protocol."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

import os

from worker_world import TOKEN, Controller, serving, settings

from iriscw.agent.local import FreezeUndone, Local, ThawFailed, failure_of, new_id
from iriscw.agent.machine import this_machine
from iriscw.checkpoint.drivers.built_in import DISK
from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import CriuMissing, CriuOptions, CriuUnfit, FreezePlan, Numbers, RightsMissing, ThawPlan
from iriscw.processes.grants import GrantStanding, owner_of, standing_of
from iriscw.processes.status import read_identity
from iriscw.proto.iriscw import v1
from iriscw.task.result import load_result
from iriscw.worker.assembly import Worker
from raised import that

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("claims_of_ours")]

PATIENCE_S = 120.0
CLOSING = CriuOptions(tcp_close=True)


def counting(gate: Path, numbers: int):
    """Return a callable, by its value, that counts into the log until a file is there."""

    def count() -> tuple:
        import time

        import iriscw

        first, number = iriscw.context(), 0
        while number < numbers or not os.path.exists(gate):  # noqa: PTH110
            number += 1
            os.write(1, b"%d\n" % number)
            time.sleep(0.005)
        last = iriscw.context()
        return number, first.worker_id, last.worker_id, first.attempt_uid == last.attempt_uid, last.port("web")

    return count


def calling(gate: Path, token: str):
    """Return a callable that calls its controller over one channel until a file is there, and says how that went."""

    def call() -> tuple:

        import anyio

        import iriscw
        from iriscw.proto.iriscw import v1
        from iriscw.rpc.client import RpcChannel
        from iriscw.rpc.tokens import Secret

        async def main() -> tuple:
            good = again = 0
            request = v1.GetBundleRequest(bundle_id="b")
            async with RpcChannel(iriscw.context().controller_address, Secret(token)) as channel:
                while True:
                    last = os.path.exists(gate)  # noqa: ASYNC240, PTH110
                    method = "/iriscw.v1.WorkerService/GetBundle"
                    try:
                        async with channel.server_stream(method, request, v1.BundleChunk, timeout_s=60) as chunks:
                            data = b"".join([chunk.data async for chunk in chunks])
                    except iriscw.IriscwError as error:
                        if not error.retryable:
                            raise
                        again += 1
                        continue
                    assert data == b"bundle"
                    good += 1
                    os.write(1, b"%d\n" % good)
                    if last:
                        return good, again

        return anyio.run(main)

    return call


@pytest.fixture
async def local(tmp_path: Path):
    """What freezes and thaws on this machine, with a state of its own."""
    local = this_machine(tmp_path / "state", folders={"ram": tmp_path / "memory"})
    try:
        await local.machine.criu.ability()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    return local


async def freeze(local: Local, folder: Path, options: CriuOptions = CLOSING) -> str:
    """Freeze the attempt in a folder, as an agent does; give its checkpoint."""
    supervisor, _ = read_identity(folder)
    plan = FreezePlan(new_id("ck"), to_task(supervisor), DISK, options=options)
    failure = failure_of(await local.run(FreezeTree(plan)))
    if failure is not None:
        raise failure
    return plan.operation


async def thaw(local: Local, checkpoint: str) -> None:
    """Bring it back, or raise why not."""
    failure = failure_of(await local.run(ThawTree(ThawPlan(new_id("th"), checkpoint, numbers=Numbers.AUTO))))
    if failure is not None:
        raise failure


@asynccontextmanager
async def two_workers(cache: Path):
    """Two workers of one machine, each with a controller of its own."""
    first, second = Controller(), Controller()
    async with (
        serving(first) as one,
        serving(second) as two,
        Worker(settings(cache, two.address, worker_id="worker-2")) as worker,
    ):
        await second.until(lambda: second.outgoing is not None)
        yield first, one, second, worker


async def suspended(controller: Controller, local: Local, uid: str) -> tuple[Path, str]:
    """Suspend a running attempt: ask, freeze, hear of it."""
    await controller.send(suspend=v1.SuspendAttempt(attempt_uid=uid))
    await controller.until(lambda: controller.observed[uid].suspension == v1.Suspension.SUSPENDING)
    folder = next(path.parent for path in controller.cache.glob(f"*/*/attempts/{uid}/identity.json"))
    told, (supervisor, _) = controller.observed[uid], read_identity(folder)
    assert (told.folder, told.supervisor.pid, told.supervisor.start_ticks) == (
        str(folder),
        supervisor.pid,
        supervisor.start_ticks,
    )
    checkpoint = await freeze(local, folder)
    await controller.until(lambda: controller.observed[uid].suspension == v1.Suspension.SUSPENDED, PATIENCE_S)
    assert controller.observed[uid].folder == str(folder)
    return folder, checkpoint


async def resume(controller: Controller, uid: str, folder: Path, seen: v1.AttemptObserved, grant: str = "th-1") -> None:
    """Give leave, and wait until it is on offer."""
    resumption = v1.Resumption(grant=grant, folder=str(folder), started_at_ms=seen.started_at_ms, ports=seen.ports)
    controller.desired[uid] = v1.RunAttempt(attempt_uid=uid, task_id="job-a/0", resumption=resumption)
    await controller.send(run=controller.desired[uid])
    await controller.until(lambda: uid in controller.observed and controller.observed[uid].folder == str(folder))


async def test_an_attempt_goes_on_with_another_worker(tmp_path: Path, local: Local) -> None:
    """Its worker is gone meanwhile. Same uid and ports; its log goes on at its offset; its result comes."""
    cache, gate = tmp_path / "cache", tmp_path / "gate"
    async with two_workers(cache) as (first, one, second, _):
        first.cache = cache
        async with Worker(settings(cache, one.address)):
            await first.until(lambda: first.outgoing is not None)
            await first.run("a1", function=counting(gate, 20), ports=("web",))
            await first.until(lambda: first.log("a1").count("\n") > 5, PATIENCE_S)
            folder, checkpoint = await suspended(first, local, "a1")
            seen = first.observed["a1"]
            size = (folder / "stdout.log").stat().st_size
            await first.until(lambda: first.log_bytes["a1"] == size)
        assert first.goodbyes == ["the worker ends"]
        assert first.observed["a1"].suspension == v1.Suspension.SUSPENDED, "it does not end with its worker"
        with pytest.raises(ThawFailed, check=that(names="GuardRefused")):
            await thaw(local, checkpoint)
        # What the store of logs has of it is known to whichever worker comes next.
        second.logs["a1"], second.log_bytes["a1"] = bytearray(first.logs["a1"]), size
        await resume(second, "a1", folder, seen)
        await thaw(local, checkpoint)
        await second.until(lambda: second.observed["a1"].suspension == v1.Suspension.UNSPECIFIED, PATIENCE_S)
        await second.until(lambda: second.log_bytes["a1"] > size, PATIENCE_S)
        gate.touch()
        end = await second.ended("a1", PATIENCE_S)
        assert end.state == v1.TaskState.SUCCEEDED
        number, was, now, same, port = load_result(bytes(second.results["a1"]))
        assert (was, now, same, port) == ("worker-1", "worker-2", True, seen.ports["web"])
        assert second.log("a1").split() == [str(each) for each in range(1, number + 1)]
        assert second.logs_at_end["a1"] == end.log_end_offset
        with pytest.raises(ThawFailed):
            await thaw(local, checkpoint)  # once more, when it has ended: its files are there, and no grant
        await second.forget("a1")
        with anyio.fail_after(PATIENCE_S):
            while folder.exists() or [*cache.glob("worker-2/*/moved/*")]:  # noqa: ASYNC110  # a folder has no event
                await anyio.sleep(0.02)


async def test_a_leave_that_is_taken_back(tmp_path: Path, local: Local) -> None:
    """Stopped before it was thawed: it has ended as it was stopped, and a thaw after that finds no grant."""
    cache = tmp_path / "cache"
    async with two_workers(cache) as (first, one, second, _):
        first.cache = cache
        async with Worker(settings(cache, one.address)):
            await first.until(lambda: first.outgoing is not None)
            await first.run("a1", function=counting(tmp_path / "gate", 20), ports=("web",))
            await first.until(lambda: first.log("a1").count("\n") > 5, PATIENCE_S)
            folder, checkpoint = await suspended(first, local, "a1")
            await first.forget("a1")
            with anyio.fail_after(PATIENCE_S):
                while owner_of(folder) is None:  # noqa: ASYNC110  # a file has no event
                    await anyio.sleep(0.02)
        log = (folder / "stdout.log").read_bytes()
        await resume(second, "a1", folder, first.observed["a1"])
        assert owner_of(folder) == "worker-2/life-1"
        await second.stop("a1", reason=v1.StopReason.PREEMPTED)
        end = await second.ended("a1", PATIENCE_S)
        assert (end.state, end.was_started) == (v1.TaskState.PREEMPTED, True)
        assert standing_of(folder, "th-1") is GrantStanding.WITHDRAWN
        with pytest.raises(ThawFailed, check=that(names="GuardRefused")):
            await thaw(local, checkpoint)
        assert (folder / "stdout.log").read_bytes() == log


async def test_it_goes_on_where_it_was(tmp_path: Path, local: Local) -> None:
    """The same worker brings it back; a freeze that is given up before changes nothing."""
    cache, gate = tmp_path / "cache", tmp_path / "gate"
    controller = Controller()
    controller.cache = cache
    async with serving(controller) as server, Worker(settings(cache, server.address)):
        await controller.until(lambda: controller.outgoing is not None)
        await controller.run("a1", function=counting(gate, 20), ports=("web",))
        await controller.until(lambda: controller.log("a1").count("\n") > 5, PATIENCE_S)
        await controller.send(suspend=v1.SuspendAttempt(attempt_uid="a1"))
        await controller.until(lambda: controller.observed["a1"].suspension == v1.Suspension.SUSPENDING)
        await controller.send(continue_=v1.ContinueAttempt(attempt_uid="a1"))
        await controller.until(lambda: controller.observed["a1"].suspension == v1.Suspension.UNSPECIFIED)
        folder, checkpoint = await suspended(controller, local, "a1")
        await resume(controller, "a1", folder, controller.observed["a1"])
        await thaw(local, checkpoint)
        await controller.until(lambda: controller.observed["a1"].suspension == v1.Suspension.UNSPECIFIED, PATIENCE_S)
        gate.touch()
        end = await controller.ended("a1", PATIENCE_S)
    assert end.state == v1.TaskState.SUCCEEDED
    number, *_ = load_result(bytes(controller.results["a1"]))
    assert controller.log("a1").split() == [str(each) for each in range(1, number + 1)]


async def test_a_connection_to_the_controller_is_made_anew(tmp_path: Path, local: Local) -> None:
    """Who was in the middle of its calls sees a call or two that may be repeated, and nothing else."""
    cache, gate = tmp_path / "cache", tmp_path / "gate"
    controller = Controller()
    controller.cache, controller.bundles["b"] = cache, b"bundle"
    async with serving(controller) as server, Worker(settings(cache, server.address)):
        await controller.until(lambda: controller.outgoing is not None)
        await controller.run("a1", function=calling(gate, TOKEN.reveal()))
        await controller.until(lambda: controller.log("a1").count("\n") > 5, PATIENCE_S)
        with pytest.raises(FreezeUndone, check=that(names=("GateRefused", "connections"))):  # so it has one
            await freeze(local, cache / "worker-1/life-1/attempts/a1", CriuOptions())
        folder, checkpoint = await suspended(controller, local, "a1")
        before = controller.bundle_calls
        await resume(controller, "a1", folder, controller.observed["a1"])
        await thaw(local, checkpoint)
        await controller.until(lambda: controller.bundle_calls > before, PATIENCE_S)
        gate.touch()
        end = await controller.ended("a1", PATIENCE_S)
    assert end.state == v1.TaskState.SUCCEEDED, end
    good, again = load_result(bytes(controller.results["a1"]))
    assert good > 6
    assert again <= 2
