"""Heartbeats at the door: answered where they are read, and with the interval that the size of the fleet asks for."""

import anyio
import attrs
import pytest
from controller_world import FakeWorker, World

from iriscw._errors import MailboxFull
from iriscw.controller.heartbeats import Heartbeats
from iriscw.fleet.messages import WorkerHungUp
from iriscw.proto.iriscw import v1
from iriscw.runtime.edge.reference import ActorRef
from waiting import until


async def beat(worker: FakeWorker, first: int, count: int = 1) -> list[v1.HeartbeatAck]:
    """Send heartbeats; give what answers them, in their order."""
    for sequence in range(first, first + count):
        await worker.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence)))

    def acks() -> list[v1.HeartbeatAck]:
        said = [message.heartbeat_ack for message in worker.received if message.heartbeat_ack]
        return sorted((ack for ack in said if ack.sequence >= first), key=lambda ack: ack.sequence)

    await until(lambda: len(acks()) == count)
    return acks()


async def test_a_beat_wakes_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred of them in a row cost no message that is read, and none that is queued."""
    door = world.controller.features.parts["jobs"].workers
    taken, queued = [], []
    take, acknowledge = door._take, door._acknowledge

    async def taking(message: v1.WorkerMessage, connection: object) -> None:
        if message.heartbeat is not None:
            taken.append(message)
        await take(message, connection)

    async def acknowledging(sent: v1.Heartbeat, connection: object) -> None:
        queued.append(sent)
        await acknowledge(sent, connection)

    monkeypatch.setattr(door, "_take", taking)
    monkeypatch.setattr(door, "_acknowledge", acknowledging)
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        assert await beat(worker, 1, 200) == [v1.HeartbeatAck(sequence=number) for number in range(1, 201)]
        assert (taken, queued) == ([], [])


async def test_a_worker_whose_log_waits_for_the_disk_is_heard(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beats are answered meanwhile, and the fleet is told: a disk that stalls here ends no attempt there."""
    door = world.controller.features.parts["jobs"].workers
    stalled, told, on = anyio.Event(), [], anyio.Event()
    append, tell = door.intake._logs.append, door._tell_fleet

    async def stalling(*of: object) -> int | None:
        stalled.set()
        await on.wait()
        return await append(*of)

    monkeypatch.setattr(door.intake._logs, "append", stalling)
    monkeypatch.setattr("iriscw.controller.doors.workers.SEEN_INTERVAL_S", 0)
    monkeypatch.setattr(door, "_tell_fleet", lambda *of: (told.append(of), tell(*of)))
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        [uid] = worker.runs
        await worker.call.send(v1.WorkerMessage(log=v1.LogChunk(attempt_uid=uid, offset=0, data=b"line\n")))
        await stalled.wait()
        told.clear()
        assert len(await beat(worker, 1, 3)) == len(told) == 3
        on.set()
        await until(lambda: any(message.log_ack for message in worker.received))


@pytest.mark.parametrize("sent", [v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=1)), v1.WorkerMessage()])
async def test_an_actor_that_takes_no_message_ends_no_stream(
    world: World, monkeypatch: pytest.MonkeyPatch, sent: v1.WorkerMessage
) -> None:
    """The mailbox of the worker's actor is full: its beats are answered all the same, whoever reads them, and its end
    is taken.
    """
    door = world.controller.features.parts["jobs"].workers
    refused: list[object] = []

    def full(_ref: ActorRef, message: object, _key: object) -> None:
        refused.append(message)
        raise MailboxFull("1024 messages wait")

    monkeypatch.setattr("iriscw.controller.doors.workers.SEEN_INTERVAL_S", 0)
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        monkeypatch.setattr(ActorRef, "tell_latest", full)
        await worker.call.send(sent)
        await until(lambda: refused)
        [ack] = await beat(worker, 2)
        assert ack.sequence == 2
    await until(lambda: any(isinstance(message, WorkerHungUp) for message in refused))
    assert len(door.switchboard) == 0


async def test_another_interval_is_told_once(world: World) -> None:
    """With the welcome as the fleet is then, and with the answer to the next beat when it has changed."""
    door = world.controller.features.parts["jobs"].workers
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        shortest_ms = door._settings.heartbeats.shortest_ms
        [welcome] = [message.welcome for message in worker.received if message.welcome]
        assert welcome.heartbeat_interval_ms == shortest_ms
        assert [ack.heartbeat_interval_ms for ack in await beat(worker, 1, 2)] == [0, 0]
        door._settings = attrs.evolve(door._settings, heartbeats=Heartbeats(3 * shortest_ms, 9 * shortest_ms))
        assert [ack.heartbeat_interval_ms for ack in await beat(worker, 3, 3)] == [3 * shortest_ms, 0, 0]
