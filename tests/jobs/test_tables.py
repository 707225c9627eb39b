"""The table of endings, written out a second time, by hand: whoever changes it has to mean it."""

from iriscw.jobs.lifecycle import ADVANCE, CONSEQUENCES, LOST
from iriscw.jobs.model import TASK_LIVE, Ending

ENDINGS = """
SUCCEEDED     none        SUCCEEDED
FAILED        failure     FAILED
TIMED_OUT     failure     FAILED
WORKER_LOST   preemption  WORKER_FAILED
MISSING       preemption  WORKER_FAILED
REFUSED       preemption  WORKER_FAILED
PREEMPTED     preemption  PREEMPTED
KILLED        preemption  WORKER_FAILED
GANG_STOPPED  none        PENDING
"""


def test_endings():
    """What each ending counts against, and what the task is when that budget is spent."""
    rows = {ending.value: (row.budget.value, row.spent.value) for ending, row in CONSEQUENCES.items()}
    assert rows == {name: (budget, spent) for name, budget, spent in map(str.split, ENDINGS.strip().splitlines())}
    assert {*CONSEQUENCES} == {*Ending}


def test_progress():
    """A live attempt goes from one of these states to a later one, never back; and who is lost delivers no log."""
    assert sorted(ADVANCE, key=ADVANCE.get) == [*TASK_LIVE]
    assert len({*ADVANCE.values()}) == len(ADVANCE)
    assert LOST == (Ending.WORKER_LOST, Ending.MISSING)
