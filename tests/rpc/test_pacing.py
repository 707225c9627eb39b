"""The turnstile lets few in per turn of the loop, in order, and never sleeps."""

import asyncio
import selectors
import socket
from collections.abc import Callable
from contextlib import ExitStack

from hypothesis import given, strategies as st

from iriscw.rpc.pacing import EVENTS_PER_TURN, FewAtATime, Turnstile, short_turned_loop


class Turns:
    """Numbers the loop's turns, and says in which one each newcomer got in."""

    def __init__(self) -> None:
        self.number = 0
        self.admitted: list[tuple[int, int]] = []

    def count(self) -> None:
        """Be the first function of every turn."""
        self.number += 1
        asyncio.get_running_loop().call_soon(self.count)

    def newcomer(self, index: int) -> Callable[[], None]:
        """Return what the turnstile runs."""
        return lambda: self.admitted.append((self.number, index))


async def crowd(per_turn: int, newcomers: int) -> tuple[Turns, Turnstile]:
    """Have all come in one turn; give in which turn each got in."""
    turns, turnstile = Turns(), Turnstile(per_turn)
    turns.count()
    for index in range(newcomers):
        turnstile.enter(turns.newcomer(index))
    while turnstile.statistics().waiting:  # noqa: ASYNC110 - turns are what is counted
        await asyncio.sleep(0)
    return turns, turnstile


@given(per_turn=st.integers(1, 7), newcomers=st.integers(0, 60))
def test_few_in_each_turn(per_turn: int, newcomers: int) -> None:
    """Whoever comes at once gets in by arrival, ``per_turn`` in each turn and no turn left out."""
    turns, turnstile = asyncio.run(crowd(per_turn, newcomers))
    assert [index for _, index in turns.admitted] == list(range(newcomers))
    first = turns.admitted[0][0] if newcomers else 0
    assert [turn - first for turn, _ in turns.admitted] == [index // per_turn for index in range(newcomers)]
    figures = turnstile.statistics()
    assert figures.admitted == newcomers
    assert figures.most_in_turn == min(per_turn, newcomers)
    assert figures.most_waiting == max(0, newcomers - per_turn)


@given(per_turn=st.integers(1, 7), weights=st.lists(st.integers(1, 20), max_size=30))
def test_what_weighs_more_counts_more(per_turn: int, weights: list[int]) -> None:
    """A turn takes newcomers as long as it has room, the last of them whole; all get in, in their order."""

    async def pass_all() -> Turns:
        turns, turnstile = Turns(), Turnstile(per_turn)
        turns.count()

        async def newcomer(index: int) -> None:
            await turnstile.passed(weights[index])
            turns.newcomer(index)()

        await asyncio.gather(*map(newcomer, range(len(weights))))
        return turns

    turns = asyncio.run(pass_all())
    assert [index for _, index in turns.admitted] == list(range(len(weights)))
    for turn in {number for number, _ in turns.admitted}:
        taken = [weights[index] for number, index in turns.admitted if number == turn]
        assert sum(taken[:-1]) < per_turn


async def test_one_at_a_time_does_not_wait() -> None:
    """A newcomer to an idle door is let in at once, and says so."""
    turnstile = Turnstile(1)
    for _ in range(3):
        assert turnstile.enter(lambda: None)
        await asyncio.sleep(0)
    assert turnstile.statistics().most_waiting == 0


async def test_latecomers_queue_behind() -> None:
    """Who comes while others wait does not overtake them, even where the turn has room."""
    turns, turnstile = Turns(), Turnstile(2)
    for index in range(5):
        turnstile.enter(turns.newcomer(index))
    await asyncio.sleep(0)
    turnstile.enter(turns.newcomer(5))
    while turnstile.statistics().waiting:  # noqa: ASYNC110 - turns are what is counted
        await asyncio.sleep(0)
    assert [index for _, index in turns.admitted] == list(range(6))


def ready_sockets(stack: ExitStack, count: int) -> list[socket.socket]:
    """Sockets on which something has come."""
    found = []
    for _ in range(count):
        near, far = socket.socketpair()
        stack.callback(near.close)
        stack.callback(far.close)
        far.send(b"x")
        found.append(near)
    return found


def test_few_sockets_at_a_time() -> None:
    """Of those that are ready, so many are reported by one look; each once before any is reported again."""
    count = 3 * EVENTS_PER_TURN + 1
    with ExitStack() as stack, FewAtATime() as selector:
        for near in ready_sockets(stack, count):
            selector.register(near.fileno(), selectors.EVENT_READ)
        looks = [[key.fd for key, _ in selector.select()] for _ in range(4)]
        assert [len(look) for look in looks] == [EVENTS_PER_TURN] * 3 + [1]
        assert len({fd for look in looks for fd in look}) == count
        assert len(selector.select(0)) == EVENTS_PER_TURN


def test_sockets_that_changed_since() -> None:
    """One that was closed, or is somebody else's by now, is not reported for what an earlier look saw."""
    with ExitStack() as stack, FewAtATime() as selector:
        for near in ready_sockets(stack, EVENTS_PER_TURN + 2):
            selector.register(near.fileno(), selectors.EVENT_READ)
        told = {key.fd for key, _ in selector.select()}
        gone, other = (fd for fd in list(selector.get_map()) if fd not in told)
        selector.unregister(gone)
        selector.unregister(other)
        selector.register(other, selectors.EVENT_WRITE, data="somebody else")
        assert selector.select() == []
        assert (other, "somebody else") in [(key.fd, key.data) for _ in range(3) for key, _ in selector.select(0)]


def test_timers_between_sockets() -> None:
    """A loop of short turns runs what is due between the sockets, not after all of them."""
    order: list[str] = []

    async def crowd_of_sockets() -> None:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            nears = ready_sockets(stack, 4 * EVENTS_PER_TURN)
            for near in nears:
                loop.add_reader(near, order.append, "socket")
            loop.call_soon(loop.call_soon, loop.call_soon, order.append, "timer")
            while len(order) < len(nears):  # noqa: ASYNC110 - turns are what is counted
                await asyncio.sleep(0)
            for near in nears:
                loop.remove_reader(near)

    with asyncio.Runner(loop_factory=short_turned_loop) as runner:
        runner.run(crowd_of_sockets())
    assert order.index("timer") <= 3 * EVENTS_PER_TURN
