"""The first answer to a hello, and a stream that gets none."""

import anyio
import pytest

from iriscw.dialling import stream
from iriscw.dialling.stream import NotWelcomed, first_answer

pytestmark = pytest.mark.anyio


class Call:
    """A call that has an answer, or none for ever."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.sent = []

    async def send(self, message):
        """Note what is sent."""
        self.sent.append(message)

    async def receive(self):
        """Return the next answer; None: the peer has ended the stream."""
        return self.answers.pop(0) if self.answers else await anyio.sleep_forever()


async def test_the_first_answer_follows_the_hello():
    """Whatever it is: the caller knows the messages of its service."""
    call = Call("welcome")
    assert await first_answer(call, "hello") == "welcome"
    assert call.sent == ["hello"]


@pytest.mark.parametrize("answers", [(), (None,)], ids=["silent", "ended"])
async def test_a_controller_that_does_not_answer_is_dialled_again(monkeypatch, answers):
    """One that says nothing in time, and one that ends the stream: an error that is worth another try."""
    monkeypatch.setattr(stream, "WELCOME_TIMEOUT_S", 0.05)
    with anyio.fail_after(10), pytest.raises(NotWelcomed) as error:
        await first_answer(Call(*answers), "hello")
    assert error.value.retryable
