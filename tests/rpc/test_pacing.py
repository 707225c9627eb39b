"""The turnstile lets few in per turn of the loop, in order, and never sleeps."""

import asyncio
from collections.abc import Callable

from hypothesis import given, strategies as st

from iriscw.rpc.pacing import Turnstile


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
        """Give what the turnstile runs."""
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
