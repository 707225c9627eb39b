"""Connections and sessions meet, whoever comes first, once each."""

import anyio
import anyio.lowlevel
import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.controller.doors.streams import MAX_OUTGOING, Switchboard, WorkerConnection
from iriscw.fleet.model import WorkerInfo
from iriscw.jobs.model import Observed
from iriscw.proto.iriscw import v1

INFO = WorkerInfo("w-0", "i", "w", "g", Capacity(), Attributes(), "")
KEY = ("w-0", "i")


def connection() -> WorkerConnection:
    """A connection of one worker."""
    return WorkerConnection.make(v1.Hello(), INFO)


async def test_session_first() -> None:
    """A session waits for its worker, and for a fresh connection after one that it served."""
    board = Switchboard()
    found: list[WorkerConnection] = []

    async def serve() -> None:
        found.append(await board.connected(KEY))
        found.append(await board.connected(KEY))

    first, second = connection(), connection()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        board.plug(first)
        await anyio.wait_all_tasks_blocked()
        assert found == [first]
        assert board.unplug(first)
        assert board.plug(second) is None
    assert found == [first, second]
    first.end()
    second.end()


async def test_later_connection_takes_the_place() -> None:
    """The later connection is given what it supersedes; the earlier one's end changes nothing any more."""
    board = Switchboard()
    first, second = connection(), connection()
    board.plug(first)
    assert board.plug(second) is first
    assert not board.unplug(first)
    assert (await board.connected(KEY), len(board), board.find("w-0")) == (second, 1, second)
    first.end()
    second.end()


async def test_a_worker_is_found_by_its_name() -> None:
    """The latest of its incarnations that are connected; nobody else's, and none that has gone. No other is looked at:
    who asks for each worker of a fleet would look at the square of it.
    """

    class NotWalked(dict):
        """A table that nobody goes through."""

        def items(self):
            raise AssertionError("all connections were looked at")

    board = Switchboard()
    board._connections = NotWalked()
    older, newer, other = (
        WorkerConnection.make(v1.Hello(), attrs.evolve(INFO, worker_id=worker_id, incarnation=incarnation))
        for worker_id, incarnation in (("w-0", "i"), ("w-0", "j"), ("w-1", "i"))
    )
    for each in (older, newer, other):
        board.plug(each)
    assert (board.find("w-0"), board.find("w-1"), board.find("w-2")) == (newer, other, None)
    assert list(board) == [older, newer, other]
    board.unplug(newer)
    assert board.find("w-0") is older
    board.unplug(older)
    assert (board.find("w-0"), len(board)) == (None, 1)
    for each in (older, newer, other):
        each.end()


async def test_what_there_is_room_for_takes_no_turn() -> None:
    """Nobody else's turn comes in between while there is room; beyond, a sender waits, and the order is kept."""
    each = connection()
    messages = [v1.ControllerMessage(forget=v1.ForgetAttempt(attempt_uid=str(n))) for n in range(MAX_OUTGOING + 1)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        turns = 0
        for message in messages[:-1]:
            await each.send(message)
        assert turns == 0
        tasks.start_soon(each.send, messages[-1])
        received = [await each.outgoing.receive() for _ in messages]
        tasks.cancel_scope.cancel()
    assert received == messages
    each.end()


async def test_end() -> None:
    """After the end nobody waits: what is sent is dropped, and that the stream is over is noted."""
    each = connection()
    each.end()
    await each.send(v1.ControllerMessage())
    await each.report(Observed(()))
    each.send_last(v1.ControllerMessage())
    assert each.over.is_set()


async def test_last_word_to_a_worker_that_does_not_read() -> None:
    """A worker that does not read is not waited for."""
    each = connection()
    for _ in range(MAX_OUTGOING):
        await each.send(v1.ControllerMessage())
    each.send_last(v1.ControllerMessage())
    assert each.over.is_set()
    each.end()
