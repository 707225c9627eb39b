"""Messages that are answered as they arrive: the same answers as by the method, and no byte of a window lost."""

from collections.abc import AsyncIterator
from functools import partial

import anyio
import pytest
from hypothesis import given, strategies as st
from rpc_echo import EchoReply, EchoRequest
from rpc_world import CHAT
from transport_world import FOUND_AND_SHRUNK, Ledger, Stage, perform, seeds

from iriscw.rpc.context import call_context
from iriscw.rpc.encoding import decode, encode
from iriscw.rpc.transport import AT_ONCE_BYTES, BoundedStream
from profiles import examples
from raised import that

SMALL, ODD, LARGE = 10, AT_ONCE_BYTES + 1, 100_000
"""Bytes: one that is answered at once, one that is a little too long for it, one that takes many frames."""


class Both(Ledger):
    """Answers what has an even number as it arrives, if it can, and the rest in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.in_turn = 0

    async def chat(self, messages: AsyncIterator[EchoRequest]) -> AsyncIterator[EchoReply]:
        """Echo every message, whichever way."""
        with self._running("chat"):
            async for message in messages:
                self.in_turn += 1
                yield _reply(message)
                call_context().answer_at_once(self.answer)

    def answer(self, data: bytes) -> bytes | None:
        """Echo the even ones."""
        message = decode(data, EchoRequest)
        if message.count % 2:
            return None
        self.at_once += 1
        return encode(_reply(message))


def _reply(message: EchoRequest) -> EchoReply:
    return EchoReply(text=f"{len(message.text)}", count=message.count, body=message.body)


async def _talk(stage: Stage, sizes: list[int], every_s: float) -> None:
    """Send messages of such sizes, and check that each is answered once, the method's own in their order."""
    replies: list[EchoReply] = []
    async with stage.channel().bidi(CHAT, EchoRequest, EchoReply, timeout_s=10_000) as call:

        async def hear() -> None:
            replies.extend([reply async for reply in call])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            for number, size in enumerate(sizes):
                await call.send(EchoRequest(text="x" * size, count=number, body=b"y" * (size if size == LARGE else 0)))
                await anyio.sleep(every_s)
            await call.end()
    assert sorted(each.count for each in replies) == list(range(len(sizes)))
    assert all(each.text == f"{sizes[each.count]}" for each in replies)
    odd = [each.count for each in replies if each.count % 2]
    assert odd == sorted(odd)
    await anyio.sleep(1)  # for what is still said of windows
    _check_windows(stage)


def _check_windows(stage: Stage) -> None:
    """Both sides agree on what the server may still send."""
    [server] = stage.server._http2
    client = stage.channels[0]._connector._protocol
    assert client is not None
    may_send = server.connection._connection.outbound_flow_control_window
    received = client.connection._connection._inbound_flow_control_window_manager
    assert may_send == received.current_window_size, "what is sent at once is not counted"


def _perform(sizes: list[int], seed: int = 0, every_s: float = 0.0) -> Both:
    both = Both()
    perform(partial(_talk, sizes=sizes, every_s=every_s), seed=seed, service=both)
    return both


@examples(15, FOUND_AND_SHRUNK)
@given(seeds, st.lists(st.sampled_from([0, SMALL, ODD, LARGE]), max_size=8), st.sampled_from([0, 0.01, 1]))
def test_every_message_is_answered_once(seed: int, sizes: list[int], every_s: float) -> None:
    """However large and small messages mix, and however long they are under way."""
    _perform(sizes, seed, every_s)


def test_small_messages_do_not_wake_the_method() -> None:
    """Of messages that come one by one the method sees the first, and those that are left to it."""
    both = _perform([SMALL] * 100, every_s=1)
    assert (both.at_once, both.in_turn) == (49, 51)


def test_nothing_is_put_between_the_frames_of_an_answer() -> None:
    """While a large answer is being sent, small messages are answered after it."""
    _perform([LARGE, LARGE, *[SMALL] * 20, LARGE, SMALL])


def test_what_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of the windows differ if what is sent at once is left out of them."""
    original = BoundedStream.answer

    def uncounted(stream: BoundedStream, data: bytes, window: int) -> bool:
        before = stream._h2_connection.outbound_flow_control_window
        answered = original(stream, data, window)
        stream._h2_connection.outbound_flow_control_window = before
        return answered

    monkeypatch.setattr(BoundedStream, "answer", uncounted)
    with pytest.raises(AssertionError, check=that(names="counted")):
        _perform([SMALL] * 5, every_s=1)
