"""What becomes of a stored attempt, and of its checkpoint, if something fails late."""

import pytest
from jobs_world import worker_info
from test_suspending import URL, Bench, stored

from iriscw.jobs.suspension.effects import ThawAttempt, Thawed
from iriscw.jobs.suspension.messages import ResumeTask


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
