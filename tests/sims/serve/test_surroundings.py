"""What controllers are given: their own randomness, chances at a rate, and a memory of notes."""

from iriscw_sims.serve.surroundings import NOTES_LIMIT, LiveSurroundings
from iriscw_sims.serve.timeline import Clock, Timeline


def surroundings(seed=1, **rates):
    """Return surroundings in which time stands still."""
    return LiveSurroundings(Timeline(Clock(7, lambda: 0, 1)), seed, rates)


def test_streams_follow_from_seed_and_name():
    """The same ones give the same numbers, whatever was asked for before; others give others."""

    def drawn(seed, name, before=()):
        mine = surroundings(seed)
        for other in before:
            mine.rng(other).random()
        return [mine.rng(name).random() for _ in range(3)]

    assert drawn(1, "boots") == drawn(1, "boots", before=("pulls", "quota"))
    assert drawn(1, "boots") != drawn(2, "boots")
    assert drawn(1, "boots") != drawn(1, "pulls")


def test_chances_come_true_at_their_rate():
    """Never without one, always with 1, about half the time with one half."""
    mine = surroundings(sure=1.0, even=0.5)
    assert not any(mine.chance("unnamed") for _ in range(100))
    assert all(mine.chance("sure") for _ in range(100))
    assert 350 < sum(mine.chance("even") for _ in range(1000)) < 650


def test_notes_are_kept_up_to_a_limit():
    """With their moment; the oldest go."""
    mine = surroundings()
    for number in range(NOTES_LIMIT + 5):
        mine.note("node", number)
    assert len(mine.notes) == NOTES_LIMIT
    assert mine.notes[0] == (7, ("node", 5))


def test_timers_are_the_timelines():
    """What is asked for later happens then."""
    timeline = Timeline(Clock(0, lambda: 0, 1))
    seen = []
    LiveSurroundings(timeline, 1).after(0, seen.append, "x")
    timer = timeline.take()
    timer.run()
    assert seen == ["x"]
