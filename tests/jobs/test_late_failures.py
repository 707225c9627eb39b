"""What becomes of a stored attempt, and of its checkpoint, if something fails late."""

import pytest
from jobs_world import worker_info
from test_suspending import URL, Bench, stored

from iriscw.jobs.messages import TerminateJob
from iriscw.jobs.suspension.effects import CheckpointStored, StoreCheckpoint, ThawAttempt, Thawed
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask


@pytest.mark.parametrize("outcome", [Thawed.UNDONE, None, Thawed.DAMAGED])
def test_a_node_that_fails_late(outcome):
    """What the repository has is not lost for it: another node is tried (None: it has not answered within the limit).
    What is damaged there no other could bring back.
    """
    bench = Bench(workers=1)
    uid = bench.row.uid
    stored(bench)
    bench.lose("slice-0-0")
    bench.world.add(worker_info(5, cpus=1, node="b"), worker_info(6, cpus=1, node="c"))
    bench.world.share(b=URL, c=URL)
    bench.ask(ResumeTask(0, "r"))
    if outcome is None:
        first = bench.effect(ThawAttempt).effect.node
        bench.sim.advance(3_601)
    else:
        for _ in range(3):
            first = bench.thaw(outcome).node
            bench.sim.advance(6)
    if outcome is Thawed.DAMAGED:
        assert bench.row.uid != uid
        return
    assert bench.row.uid == uid
    assert {first, bench.thaw().node} == {"b", "c"}


def test_what_was_not_stored_is_stored_again():
    """After a while, each time later, by another order, and by a later life of the job too."""
    bench = Bench(workers=1)
    bench.ask(SuspendTask(0, "s", store=True))
    bench.freeze()
    keys = []
    for pause_s in (15, 30):
        operation = bench.effect(StoreCheckpoint)
        keys.append(operation.effect.key)
        operation.complete(CheckpointStored(reason="StoreUnreachable: no answer"))
        bench.sim.advance(pause_s - 2)
        assert (bench.row.suspension.storing, "no answer" in bench.row.reason) == (False, True)
        bench.sim.advance(2)
    bench.sim.crash()
    bench.sim.restart()
    bench.sim.advance(35)
    operation = bench.effect(StoreCheckpoint)
    keys.append(operation.effect.key)
    assert len({*keys}) == 3
    operation.complete(CheckpointStored(URL))
    bench.sim.advance(1)
    assert bench.row.suspension.repository == URL
    bench.ask(TerminateJob(bench.job))
    assert bench.drop().stores_failed == 2


def test_what_goes_on_is_not_stored_again():
    """Until nobody wants that any more."""
    bench = Bench(workers=1)
    bench.ask(SuspendTask(0, "s", store=True))
    bench.freeze()
    bench.lose("slice-0-0")
    bench.ask(ResumeTask(0, "r"))
    bench.effect(StoreCheckpoint).complete(CheckpointStored(reason="StoreUnreachable: no answer"))
    bench.sim.advance(60)
    assert not bench.row.suspension.storing
    bench.ask(SuspendTask(0, "again", store=True))
    bench.sim.advance(16)
    assert bench.row.suspension.storing
