"""One direction of a connection."""

from hypothesis import given, strategies as st

from iriscw.testing.simulation import Simulation
from iriscw_sims.channel import Channel


def make(latencies=(), rooms=()):
    """Return a simulation, a channel and what it delivered."""
    simulation, got = Simulation(0), []
    latencies, rooms = iter(latencies), iter(rooms)

    def deliver(item):
        room = next(rooms, True)
        if room:
            got.append(item)
        return room

    return simulation, Channel(simulation, lambda: next(latencies, 5), deliver), got


@given(st.lists(st.integers(0, 10**9), max_size=20))
def test_order_is_kept(latencies):
    """Whatever the latencies, items come out in the order in which they went in."""
    simulation, channel, got = make(latencies)
    for item in range(len(latencies)):
        channel.put(item)
    simulation.advance(2)
    assert got == list(range(len(latencies)))


def test_a_held_channel_delivers_when_it_is_released():
    """A half-open direction keeps what is inside."""
    simulation, channel, got = make()
    channel.held = True
    channel.put("a")
    simulation.advance(1)
    assert got == []
    channel.release()
    assert got == ["a"]


def test_a_closed_channel_loses_what_was_inside():
    """A break loses a suffix, and nothing is taken any more."""
    simulation, channel, got = make([0, 10**9])
    channel.put("a")
    channel.put("b")
    simulation.run_until_idle()
    channel.close()
    channel.put("c")
    simulation.advance(5)
    assert got == ["a"]


def test_without_room_an_item_waits():
    """An item that finds no room is delivered when the channel is pumped again, before later ones."""
    simulation, channel, got = make(rooms=[False, False])
    channel.put("a")
    channel.put("b")
    simulation.advance(1)
    assert got == []
    channel.pump()
    assert got == ["a", "b"]
