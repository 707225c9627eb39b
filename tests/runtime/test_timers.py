"""The heap of timers: order, ties, cancelled ones, and its size."""

from hypothesis import given, strategies as st
from puppet import Do, puppet

from iriscw.runtime import MILLISECOND, SECOND, CancelTimer, SetTimer
from iriscw.runtime.timers import SWEEP_FLOOR, TimerQueue
from iriscw.testing import SimSystem


def drain(queue, now):
    """Take all that is due."""
    taken = []
    while (entry := queue.pop(now)) is not None:
        taken.append(entry)
    return taken


@given(st.lists(st.integers(0, 20)))
def test_order(dues):
    """Entries come by due time, those of one time in the order in which they were set."""
    queue = TimerQueue()
    for number, due in enumerate(dues):
        queue.add(due, "cell", number, 0)
    taken = drain(queue, 20)
    assert [(entry[0], entry[3]) for entry in taken] == sorted((due, number) for number, due in enumerate(dues))
    assert len(queue) == 0


@given(st.lists(st.integers(0, 20)), st.integers(-1, 21))
def test_only_what_is_due(dues, now):
    """``pop`` gives what is due by now, to the nanosecond; ``next_due`` says what comes next."""
    queue = TimerQueue()
    for due in dues:
        queue.add(due, "cell", "key", 0)
    assert len(drain(queue, now)) == sum(due <= now for due in dues)
    later = [due for due in dues if due > now]
    assert queue.next_due == min(later, default=None)


@given(st.lists(st.integers(0, 20)))
def test_an_earlier_one_is_noticed(dues):
    """``earlier`` says that a sleeper has to look again: exactly when the next due time came forward."""
    queue = TimerQueue()
    for due in dues:
        queue.earlier = False
        before = queue.next_due
        queue.add(due, "cell", "key", 0)
        assert queue.earlier == (before is None or due < before)


def test_stale_entries_are_swept():
    """Past the floor, entries are swept once most are stale; the current ones stay in order."""
    queue = TimerQueue()
    count = 4 * SWEEP_FLOOR
    for number in range(count):
        queue.add(number, "cell", "key", number)
    current = {number for number in range(count) if number % 4 == 0}
    for _ in range(count - len(current)):
        queue.cancelled(lambda entry: entry[4] in current)
    left = [entry[4] for entry in drain(queue, count)]
    assert len(left) < count
    assert [number for number in left if number in current] == sorted(current)


def test_setting_again_and_again():
    """One key set a hundred thousand times leaves a heap of bounded size, and one timer that fires."""
    seen = []
    made = SimSystem()
    made.spawn("a", puppet(seen))
    made.run_until_idle()
    for _ in range(100):
        made.tell("/a", Do(tuple(SetTimer("k", SECOND, number) for number in range(1_000))))
        made.run_until_idle()
        assert len(made.simulation.dispatcher.timers) <= 3 * SWEEP_FLOOR + 1_000
    made.advance(2)
    assert seen == [999]


def test_cancelled_though_due():
    """A timer that is due already but not delivered is not seen once it was cancelled."""
    seen = []
    made = SimSystem()
    made.spawn("a", puppet(seen))
    made.tell("/a", Do((SetTimer("t", MILLISECOND, "due"), SetTimer("u", MILLISECOND, "kept"))))
    made.run_until_idle()
    made.simulation.clock.ns += 10 * MILLISECOND
    made.tell("/a", Do((CancelTimer("t"), CancelTimer("unknown"))))
    made.simulation.dispatcher.look_at_clock()  # both stand in the mailbox now, behind the cancel
    made.run_until_idle()
    assert seen == ["kept"]
    assert made.statistics().answers_stale == 1


def test_attentive_timers_are_replaced_too():
    """A key names one timer, on whichever clock it runs."""
    seen = []
    made = SimSystem()
    made.spawn("a", puppet(seen))
    made.tell("/a", Do((SetTimer("t", SECOND, "plain"), SetTimer("t", 2 * SECOND, "attentive", attentive=True))))
    made.advance(3)
    assert seen == ["attentive"]
