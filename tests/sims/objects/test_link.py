"""A link is shared evenly, to the nanosecond."""

import heapq
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.link import Link

SECOND = 1_000_000_000


class Clock:
    """A clock with a queue."""

    def __init__(self):
        self.now = 0
        self._queue = []
        self._serial = 0

    def after(self, delay, function, *args):
        """Queue a call."""
        assert delay >= 0
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay, self._serial, function, args))

    def run(self, end=None):
        """Let time pass."""
        while self._queue and (end is None or self._queue[0][0] <= end):
            self.now, _, function, args = heapq.heappop(self._queue)
            function(*args)
        if end is not None:
            self.now = end


def fluid(bodies, bandwidth, stream):
    """Return when each of some bodies (begin in ns, bytes) is through, exactly, by moving all of them step by step."""
    now, waiting, left, done = Fraction(0), sorted(range(len(bodies)), key=lambda n: bodies[n][0]), {}, {}
    while waiting or left:
        rate = min(Fraction(bandwidth, len(left)), Fraction(stream)) / SECOND if left else Fraction(0)
        ends = min((amount / rate for amount in left.values()), default=None)
        begins = bodies[waiting[0]][0] - now if waiting else None
        step = min(each for each in (ends, begins) if each is not None)
        now += step
        left = {number: amount - step * rate for number, amount in left.items()}
        for number in [number for number, amount in left.items() if amount <= 0]:
            del left[number]
            done[number] = now
        while waiting and bodies[waiting[0]][0] <= now:
            number = waiting.pop(0)
            left[number] = Fraction(bodies[number][1])
            if not left[number]:
                del left[number]
                done[number] = now
    return done


@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 5000)), min_size=1, max_size=8),
    st.integers(1, 3000),
    st.integers(1, 3000),
)
def test_bodies_take_as_long_as_they_must(bodies, bandwidth, stream):
    """Every one is through when an exact calculation says so, but for a nanobyte lost at each beginning and end."""
    clock = Clock()
    link = Link(clock, bandwidth, stream)
    through = {}
    for number, (begin, length) in enumerate(bodies):
        clock.after(begin, link.start, length, lambda number=number: through.setdefault(number, clock.now))
    clock.run()
    assert link.active == 0
    events, sharers = 2 * len(bodies), len(bodies)
    for number, at in fluid(bodies, bandwidth, stream).items():
        assert -1 <= through[number] - at <= events * (sharers + 1)


@given(st.integers(1, 100), st.integers(0, 10_000), st.integers(0, 60))
def test_what_was_moved_at_a_cancellation(bandwidth, length, seconds):
    """As much as its share of the time: the others get that share from then on."""
    clock = Clock()
    link = Link(clock, 2 * bandwidth)
    told = []
    one = link.start(length, lambda: told.append("one"))
    link.start(10**9, lambda: told.append("other"))
    clock.run(seconds * SECOND)
    moved = link.cancel(one)
    assert moved in (min(length, bandwidth * seconds), min(length, bandwidth * seconds) - 1)
    assert link.cancel(one) == length
    assert link.active == 1
    if moved < length:
        clock.run((seconds + 1) * SECOND)
        assert "one" not in told


def test_ends_can_begin_others():
    """``through`` may start or cancel transfers of the same link."""
    clock = Clock()
    link = Link(clock, 100)
    ends = []

    def again():
        ends.append(clock.now)
        if len(ends) < 3:
            link.start(100, again)

    victim = link.start(100_000, ends.clear)
    link.start(50, lambda: (link.cancel(victim), link.start(100, again)))
    clock.run()
    assert ends == [2 * SECOND, 3 * SECOND, 4 * SECOND]


def test_nonsense_is_refused():
    """A link without bandwidth would never end."""
    for bandwidth, stream in ((0, 0), (-1, 0), (1, -1)):
        with pytest.raises(InvalidArgument):
            Link(Clock(), bandwidth, stream)
