"""Real time as surroundings: chances that are drawn, and chances that are scripted."""

import anyio

from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.objects.serve.surroundings import MAX_TRACE, HostSurroundings


async def test_later() -> None:
    """What is to be called later is, and never before the call has returned."""
    called = anyio.Event()
    surroundings = HostSurroundings()
    began = surroundings.now
    surroundings.after(5 * MILLISECOND, called.set)
    assert not called.is_set()
    with anyio.fail_after(10):
        await called.wait()
    assert surroundings.now - began >= 4 * MILLISECOND


def test_chances() -> None:
    """Scripted ones come first, in order; then the rate counts, and the same seed draws the same."""
    one, other = (HostSurroundings(7, {"rare": 500}) for _ in range(2))
    one.script("rare", True, False)
    assert [one.chance("rare"), one.chance("rare")] == [True, False]
    assert [one.chance("rare") for _ in range(50)] == [other.chance("rare") for _ in range(50)]
    assert not one.chance("never")
    assert ("fault", "rare") in [line[1:] for line in one.trace]


def test_a_trace_has_an_end() -> None:
    """Only its last lines are kept."""
    surroundings = HostSurroundings()
    for number in range(MAX_TRACE + 5):
        surroundings.note(number)
    assert len(surroundings.trace) == MAX_TRACE
    assert surroundings.trace[-1][1] == MAX_TRACE + 4
