"""Group commit: while the disk is busy with some jobs, the others gather and are accepted together."""

import threading
import time

from iriscw.bench.submissions import accept

SUBMITTERS = 64


class Gate:
    """A disk whose first commit takes until all submitters wait."""

    def __init__(self):
        self.commits = 0
        self.system = None
        self.all_waited = False

    def start(self, system):
        """Know the system whose askers are counted."""
        self.system = system

    def commit(self):
        """Hold the first commit of submissions back until all submitters wait for the disk, at most half a minute."""
        if self.system is None:
            return
        self.commits += 1
        if self.commits == 1:
            for _ in range(3_000):
                if len(self.system._driver.waiting) == SUBMITTERS:
                    self.all_waited = True
                    return
                threading.Event().wait(0.01)


async def test_one_commit_for_all_that_gathered(tmp_path):
    """While the first job is synced 63 more arrive; the second sync accepts all of them."""
    gate = Gate()
    accepted = await accept(tmp_path / "journal", gate.commit, SUBMITTERS, 1, gate.start)
    assert gate.all_waited
    assert accepted.jobs == SUBMITTERS
    assert accepted.commits == gate.commits <= 3
    assert accepted.largest_batch >= SUBMITTERS // 2


async def test_nothing_is_accepted_before_its_commit(tmp_path):
    """With one submitter each job is a commit of its own: an answer never leaves before the disk has it."""
    accepted = await accept(tmp_path / "journal", lambda: None, 1, 5)
    assert accepted.jobs_per_commit <= 1


async def test_a_slow_disk_makes_large_batches(tmp_path):
    """With a commit time of 20 ms a sync accepts many of 64 submitters' jobs, not one."""
    accepted = await accept(tmp_path / "journal", lambda: time.sleep(0.02), SUBMITTERS, 4)
    assert accepted.jobs_per_commit > 8
