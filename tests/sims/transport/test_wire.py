"""One direction: order, time, and what is lost."""

import random

from hypothesis import given, strategies as st

from iriscw_sims.transport.loop import VirtualLoop
from iriscw_sims.transport.wire import HEADER_BYTES, MAX_SEGMENT_BYTES, Weather, Wire

sent = st.lists(st.binary(max_size=50), max_size=12)


def wire_of(seed: int, **weather: object) -> tuple[VirtualLoop, Wire, bytearray]:
    """A wire, and what it delivers."""
    loop = VirtualLoop()
    got = bytearray()
    return loop, Wire(loop, random.Random(seed), lambda: Weather(**weather)), got  # type: ignore[arg-type]


def run(loop: VirtualLoop) -> None:
    """Run for ten minutes."""
    loop.call_later(600, loop.stop)
    loop.run_forever()


@given(st.integers(0, 1000), sent)
def test_parcels_arrive_in_order(seed, parcels) -> None:
    """Whatever their latencies and cuts; signals keep their place among data."""
    loop, wire, got = wire_of(seed, latency_s=(0, 1), cuts=0.5)
    signals: list[int] = []
    for parcel in parcels:
        wire.send(got.extend, parcel)
        wire.send(lambda _: signals.append(len(got)))
    run(loop)
    assert bytes(got) == b"".join(parcels)
    assert signals == [sum(len(each) for each in parcels[: number + 1]) for number in range(len(parcels))]


@given(st.integers(0, 1000), sent, sent, st.booleans())
def test_a_cut_leaves_a_prefix(seed, before, after, stalled) -> None:
    """Of what was on its way, to the byte; what is sent later arrives after it."""
    loop, wire, got = wire_of(seed, latency_s=(0, 1), cuts=0.5)
    for parcel in before:
        wire.send(got.extend, parcel)
    if stalled:
        wire.stall()
        loop.call_later(5, wire.heal)
    ends: list[int] = []

    def cut() -> None:
        wire.cut()
        wire.send(lambda _: ends.append(len(got)))
        for parcel in after:
            wire.send(got.extend, parcel)

    loop.call_later(0.5, cut)
    run(loop)
    assert len(ends) == 1
    assert b"".join(before).startswith(got[: ends[0]])
    assert bytes(got[ends[0] :]) == b"".join(after)


@given(st.integers(0, 1000), sent)
def test_a_dead_wire_swallows(seed, parcels) -> None:
    """What was on its way and what comes later; it does not carry any more."""
    loop, wire, got = wire_of(seed, latency_s=(0.1, 1))
    for parcel in parcels:
        wire.send(got.extend, parcel)
    assert wire.carries
    wire.die()
    wire.send(got.extend, b"later")
    run(loop)
    assert not got
    assert not wire.carries


def test_a_stall_is_no_loss() -> None:
    """What is held comes after the stall, also after two, and no sooner."""
    loop, wire, got = wire_of(1, latency_s=(0, 0), cuts=0)
    at: list[float] = []
    wire.stall()
    wire.send(lambda data: (got.extend(data), at.append(loop.time())), b"held")
    loop.call_later(10, wire.heal)
    loop.call_later(10, wire.stall)
    loop.call_later(30, wire.heal)
    loop.call_later(30, wire.heal)
    run(loop)
    assert bytes(got) == b"held"
    assert 30 <= at[0] <= 50


def test_bandwidth() -> None:
    """Each segment takes its size and a header over the bandwidth, one after the other."""
    loop, wire, got = wire_of(1, latency_s=(0, 0), cuts=0, bytes_per_s=1e6)
    at: list[float] = []
    wire.send(lambda data: (got.extend(data), at.append(loop.time())), bytes(3 * MAX_SEGMENT_BYTES))
    run(loop)
    assert len(at) == 3
    assert abs(at[-1] - 3 * (MAX_SEGMENT_BYTES + HEADER_BYTES) / 1e6) < 1e-6
