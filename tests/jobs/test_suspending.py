"""A task that is suspended and resumed, row by row: jobs, links and scheduler with scripted workers and agents."""

from itertools import pairwise

import attrs
import pytest
from jobs_world import ScriptedWorker, command_spec, worker_info
from suspend_bench import RUNS, Bench

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import WorkerLost, WorkerReady
from iriscw.jobs.errors import GangNotSuspendable, SuspensionRefused, TaskEnded, TaskNotRunning
from iriscw.jobs.messages import DescribeJob, TerminateJob
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Suspension, TaskState
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import CheckpointLeft, PhaseOver, ResumeTask, SuspendTask
from raised import that


def test_a_task_goes_on_with_another_worker():
    """Its slice goes away meanwhile. It is the same attempt; in between it has no worker and takes no room."""
    bench = Bench()
    before = bench.row
    assert (bench.row.suspension, bench.room()) == (None, 1)
    assert bench.ask(SuspendTask(0, "s", labels=(("a", "b"),))).phase is Suspension.SUSPENDING
    assert bench.suspended() == (0, 0)  # it runs yet
    frozen = bench.freeze()
    assert bench.suspended() == (1, 1)
    assert (frozen.uid, frozen.worker_id, frozen.labels) == (before.uid, before.worker_id, (("a", "b"),))
    row = bench.row
    assert (row.state, row.worker_id, row.suspension.phase) == (TaskState.RUNNING, "", Suspension.SUSPENDED)
    assert (row.suspension.node, row.suspension.key, row.uid) == ("node", "s", before.uid)
    assert (bench.room(), bench.world.workers[before.worker_id].attempts) == (0, {})
    bench.lose(before.worker_id)
    assert bench.row == row
    bench.resume()
    assert bench.drop().key == frozen.key
    after = bench.row
    assert (after.uid, after.attempt.number) == (before.uid, before.attempt.number)
    assert after.attempt.started_wall_ns == before.attempt.started_wall_ns
    assert after.worker_id not in ("", before.worker_id)
    assert (bench.room(), bench.world.bodies.images) == (1, {})
    assert bench.suspended() == (0, 0)


def test_it_goes_on_again_and_again():
    """On the only worker there is: each time under another grant, and in the end as the same attempt."""
    bench = Bench(workers=1)
    uid = bench.row.uid
    for number in range(3):
        bench.suspend(f"s{number}")
        bench.resume(f"r{number}")
        bench.drop()
    assert (bench.row.uid, len(bench.world.bodies.leaves), bench.world.starts) == (uid, 3, [uid])


def test_asking_twice_is_asking_once():
    """The same key gives what has become of it; another one what is. Asking again takes back that it goes on."""
    bench = Bench(workers=1)
    assert bench.ask(ResumeTask(0, "r")).phase is Suspension.NONE
    first = bench.ask(SuspendTask(0, "s"))
    assert bench.ask(SuspendTask(0, "s")).key == bench.ask(SuspendTask(0, "t")).key == first.key == "s"
    bench.freeze()
    bench.sim.tell("/jobs/scheduler", WorkerLost("slice-0-0", "a", "away", False))
    assert bench.ask(ResumeTask(0, "r")).resuming
    assert not bench.ask(SuspendTask(0, "t")).resuming
    bench.sim.tell("/jobs/scheduler", WorkerReady(bench.world.workers["slice-0-0"].info))
    bench.sim.advance(5)
    assert bench.phase is Suspension.SUSPENDED
    bench.resume("r2")
    assert bench.ask(SuspendTask(0, "s")).phase is Suspension.NONE, "what was asked for has been, and is over"


def test_a_resume_that_is_repeated_late():
    """Somebody else has suspended it again by then: it stays, and who repeats it hears what is."""
    bench = Bench(workers=1)
    bench.suspend("s1")
    bench.resume("r2")
    bench.drop()
    bench.suspend("s3")
    bench.ask(ResumeTask(0, "r2"))
    bench.sim.advance(5)
    assert (bench.phase, bench.row.suspension.resuming) == (Suspension.SUSPENDED, False)
    bench.resume("r3")


@pytest.mark.parametrize("outcome", [Frozen.UNDONE, Frozen.UNKNOWN])
def test_a_freeze_that_is_undone(outcome):
    """Its worker goes on with it, and it may be suspended again. What nobody can say may have left a checkpoint."""
    bench = Bench()
    bench.ask(SuspendTask(0, "s"))
    operation = bench.effect(FreezeAttempt)
    (worker,) = [each for each in bench.world.workers.values() if each.running]
    assert worker.attempts[operation.effect.uid].suspension is Suspension.SUSPENDING
    operation.complete(attempt_of(outcome))
    bench.sim.advance(1)
    assert (bench.row.suspension.phase, bench.row.suspension.reason) == (Suspension.NONE, "too many threads")
    assert worker.attempts[operation.effect.uid].suspension is Suspension.NONE
    if outcome is Frozen.UNKNOWN:
        assert bench.drop().checkpoint == ""
    bench.suspend("t")


def attempt_of(outcome):
    """Return an answer of that outcome."""
    return FrozenAttempt(outcome, reason="too many threads")


def test_a_worker_that_dies_behind_the_freeze():
    """Nobody has said yet that it is frozen: what became of it counts. It has no room meanwhile, and goes on."""
    bench = Bench()
    uid, worker_id = bench.row.uid, bench.row.worker_id
    bench.ask(SuspendTask(0, "s"))
    operation = bench.effect(FreezeAttempt)
    answer = bench.world.bodies.freeze(operation.effect, Frozen.FROZEN)
    bench.sim.advance(1)
    bench.lose(worker_id)
    assert (bench.phase, bench.row.worker_id, bench.room()) == (Suspension.SUSPENDING, "", 0)
    operation.complete(answer)
    bench.resume()
    assert bench.row.uid == uid


def test_one_that_came_back_is_suspended_while_its_worker_is_away():
    """The stream begins anew with all that is wanted, its old leave with it: by that it does not come back."""
    bench = Bench(workers=1)
    uid = bench.row.uid
    bench.suspend("s1")
    bench.resume("r1")
    bench.drop()
    (worker,) = bench.world.workers.values()
    bench.ask(SuspendTask(0, "s2"))
    operation = bench.effect(FreezeAttempt)
    worker.hang_up()
    answer = bench.world.bodies.freeze(operation.effect, Frozen.FROZEN)
    bench.sim.advance(1)
    bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(1)
    operation.complete(answer)
    bench.sim.advance(1)
    assert (bench.phase, bench.row.uid) == (Suspension.SUSPENDED, uid)
    bench.resume("r2")
    assert bench.row.uid == uid


def test_what_it_has_to_know_survives_its_worker():
    """Its ports and when it was started, as its worker told them before it died: it goes on with them."""
    bench = Bench(script=lambda order: [(0.1, attrs.evolve(RUNS, ports=(("http", 8080),), process_started_wall_ns=7))])
    uid, worker_id = bench.row.uid, bench.row.worker_id
    bench.ask(SuspendTask(0, "s"))
    operation = bench.effect(FreezeAttempt)
    answer = bench.world.bodies.freeze(operation.effect, Frozen.FROZEN)
    bench.lose(worker_id)
    operation.complete(answer)
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(1)
    (order,) = [each.granted for each in bench.world.workers.values() if each.granted is not None]
    leave = order.resumption
    assert (order.uid, leave.folder, leave.ports) == (uid, f"/{uid}", (("http", 8080),))
    assert leave.started_wall_ns == 7


def test_its_gpus_are_shown_and_become_others():
    """It gets as many as it had; what was on those comes to the ones that its next worker has for it, try after try."""
    bench = Bench(script=lambda order: [(0.1, attrs.evolve(RUNS, gpus=("GPU-0", "GPU-1")))])
    assert bench.row.attempt.gpus == ("GPU-0", "GPU-1")
    bench.ask(SuspendTask(0, "s"))
    assert bench.freeze().gpus == ("GPU-0", "GPU-1")
    assert bench.phase is Suspension.SUSPENDED
    assert bench.row.attempt.gpus == ("GPU-0", "GPU-1")
    bench.world.other_gpus = {"GPU-0": "GPU-7"}
    bench.ask(ResumeTask(0, "r"))
    first = bench.thaw(Thawed.UNDONE)
    bench.sim.advance(60)
    second = bench.thaw()
    (order,) = [each.granted for each in bench.world.workers.values() if each.granted is not None]
    assert order.resumption.gpus == ("GPU-0", "GPU-1")
    assert first.gpus == second.gpus == (("GPU-0", "GPU-7"),)
    assert bench.row.attempt.gpus == ("GPU-7", "GPU-1")
    bench.drop()
    bench.suspend("s2")
    bench.world.other_gpus = {}
    bench.ask(ResumeTask(0, "r2"))
    assert bench.thaw().gpus == ()


@pytest.mark.parametrize("wrote", [0, 5])
def test_the_log_of_what_is_stopped_while_suspended(wrote):
    """It is complete with the last byte that its worker told of, also if that is none."""
    bench = Bench(script=lambda order: [(0.1, attrs.evolve(RUNS, log_offset=wrote))])
    bench.world.logs_stored = wrote
    bench.suspend()
    bench.ask(TerminateJob(bench.job))
    bench.sim.advance(1)
    assert (bench.row.logs_complete, bench.row.attempt.log_offset, bench.row.reason) == (True, wrote, "")


class Deserted(Bench):
    """A world whose attempt wrote a log, lost its worker while it was frozen, and is on its way back elsewhere."""

    def __init__(self):
        super().__init__(script=lambda order: [(0.1, attrs.evolve(RUNS, log_offset=5))])
        self.world.logs_stored = 5
        worker_id = self.row.worker_id
        self.ask(SuspendTask(0, "s"))
        operation = self.effect(FreezeAttempt)
        answer = self.world.bodies.freeze(operation.effect, Frozen.FROZEN)
        self.lose(worker_id)
        operation.complete(answer)
        self.ask(ResumeTask(0, "r"))
        self.sim.advance(1)
        assert self.phase is Suspension.RESUMING

    def worker(self):
        """Return the worker that has it, and its attempt there."""
        ((worker, seen),) = [(each, seen) for each in self.world.workers.values() for seen in each.attempts.values()]
        return worker, seen


def test_the_log_of_one_that_lost_its_worker_while_it_was_frozen():
    """Nobody knows how long it is until it runs again: if it is stopped before that, it is not called complete."""
    bench = Deserted()
    bench.ask(TerminateJob(bench.job))
    bench.sim.advance(1)
    assert (bench.row.state, bench.row.attempt.log_offset, bench.row.logs_complete) == (TaskState.KILLED, 0, False)
    bench.sim.crash()
    bench.sim.restart()
    assert not bench.row.logs_complete, "also by what is on the disk"


@pytest.mark.parametrize("said", [{"log_offset": 5}, {"end": AttemptEnd(Ending.SUCCEEDED, 0)}])
def test_the_log_of_one_that_came_back_and_ended_at_once(said):
    """Its new worker has seen it run, though it never said so before the end: it tells how long the log is."""
    bench = Deserted()
    worker, seen = bench.worker()
    over = attrs.evolve(
        seen, **{"end": AttemptEnd(Ending.SUCCEEDED), "suspension": Suspension.NONE, "folder": "", **said}
    )
    worker.becomes(over)
    bench.sim.advance(1)
    assert (bench.row.state, bench.row.logs_complete) == (TaskState.SUCCEEDED, True)


def test_a_worker_that_dies_before_the_freeze():
    """It is lost, as any other, and its task begins anew."""
    bench = Bench()
    uid, worker_id = bench.row.uid, bench.row.worker_id
    bench.ask(SuspendTask(0, "s"))
    operation = bench.effect(FreezeAttempt)
    bench.lose(worker_id)
    assert bench.row.uid == uid
    operation.complete(bench.world.bodies.freeze(operation.effect, Frozen.FROZEN))
    bench.sim.advance(1)
    assert (bench.row.uid != uid, bench.row.preemptions) == (True, 1)


def test_a_thaw_that_fails():
    """It is tried again, under the same leave and by another order; the third time it is given up, and begins anew."""
    bench = Bench()
    uid = bench.row.uid
    bench.suspend()
    bench.ask(ResumeTask(0, "r"))
    keys = []
    for _ in range(3):
        keys.append(bench.thaw(Thawed.UNDONE).key)
        bench.sim.advance(6)
    assert len({*keys}) == 3
    assert (len(bench.world.bodies.leaves), bench.world.bodies.offered) == (1, {})
    assert (bench.row.uid != uid, bench.row.preemptions) == (True, 1)
    assert "could not be brought back, 3 times" in bench.row.earlier[0].reason
    bench.drop()


def test_a_machine_that_does_not_take_it():
    """Its worker gives the grant back, and it waits as before, with the reason; that machine is tried again later, each
    time later, under another grant. It is not lost.
    """
    bench = Bench()
    uid = bench.row.uid
    bench.suspend()
    bench.ask(ResumeTask(0, "r"))
    pauses = []
    for _ in range(4):
        asked = bench.world.sim.simulation.now
        bench.thaw(Thawed.REFUSED)
        row = bench.row
        assert (row.suspension.phase, row.worker_id, bench.room()) == (Suspension.SUSPENDED, "", 0)
        assert "node did not take it: GateRefused: files" in row.reason
        while bench.phase is Suspension.SUSPENDED:
            bench.sim.advance(1)
        pauses.append(bench.world.sim.simulation.now - asked)
    assert all(later > 1.5 * sooner for sooner, later in pairwise(pauses))
    keys = {bench.effect(ThawAttempt).effect.key}
    bench.sim.crash()
    bench.sim.restart()
    bench.sim.tell("/jobs/scheduler", WorkerReady(bench.world.workers["slice-0-0"].info))
    bench.sim.tell("/jobs/scheduler", WorkerReady(bench.world.workers["slice-1-1"].info))
    for worker in bench.world.workers.values():
        worker.connected, worker.handle = False, None
        bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(40)
    assert bench.thaw().key in keys
    assert (bench.row.uid, bench.phase) == (uid, Suspension.NONE)
    assert len(bench.world.bodies.leaves) == 5
    bench.drop()


URL = "s3://checkpoints/a"


def stored(bench):
    """Have the task suspended to the repository; give what was asked of the agent."""
    bench.ask(SuspendTask(0, "s", store=True))
    assert bench.freeze().carries_folder
    assert (bench.row.suspension.phase, bench.row.suspension.storing) == (Suspension.SUSPENDED, True)
    operation = bench.effect(StoreCheckpoint)
    operation.complete(CheckpointStored(URL))
    bench.sim.advance(1)
    assert (bench.row.suspension.node, bench.row.suspension.repository) == ("", URL)
    return operation.effect


def test_it_goes_on_on_another_node():
    """On any that has the repository with its checkpoint, as long as its agent is there: its folder comes with it, and
    others reach it elsewhere. What is left is removed where it was brought.
    """
    bench = Bench(workers=1)
    effect = stored(bench)
    assert effect.node == "node"
    bench.lose("slice-0-0")
    bench.world.add(worker_info(5, cpus=1, node="apart"), worker_info(6, cpus=1, node="b"))
    bench.world.share(node=URL, apart="s3://other")
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(30)
    assert f"room on a machine that has {URL}" in bench.row.reason
    bench.world.share(apart="s3://other", b=URL)
    bench.sim.advance(1)
    assert (bench.row.worker_id, bench.row.suspension.node) == ("slice-6-6", "b")
    order = bench.world.workers["slice-6-6"].granted
    assert order.resumption.host == ""
    assert bench.thaw().node == "b"
    assert bench.phase is Suspension.NONE
    drop = bench.drop()
    assert (drop.repository, drop.tried) == (URL, ("b",))
    bench.suspend("again")
    assert (bench.row.suspension.node, bench.row.suspension.repository) == ("node", "")


def test_a_node_that_does_not_take_it_is_followed_by_another():
    """At once: only that one is not tried for a while. All that were tried may have copies."""
    bench = Bench(workers=1)
    stored(bench)
    bench.lose("slice-0-0")
    bench.world.add(worker_info(5, cpus=1, node="b"), worker_info(6, cpus=1, node="c"))
    bench.world.share(b=URL, c=URL)
    bench.ask(ResumeTask(0, "r"))
    first = bench.thaw(Thawed.REFUSED).node
    second = bench.thaw().node
    assert {first, second} == {"b", "c"}
    assert bench.drop().tried == (first, second)


def test_a_node_that_is_lost_amid_the_thaw_is_followed_by_another():
    """What the repository has outlives the machine: the attempt is still the same, and no budget is charged."""
    bench = Bench(workers=1)
    stored(bench)
    bench.lose("slice-0-0")
    bench.world.add(worker_info(5, cpus=1, node="b"))
    bench.world.share(b=URL)
    uid = bench.row.attempt.uid
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(1)
    given = bench.world.workers["slice-5-5"].granted.resumption.grant
    bench.lose("slice-5-5")
    assert (bench.row.attempt.uid, bench.phase, bench.row.preemptions) == (uid, Suspension.SUSPENDED, 0)
    assert "b: " in bench.row.reason
    bench.sim.crash()
    bench.sim.restart()
    bench.world.add(worker_info(6, cpus=1, node="c"))
    bench.world.share(c=URL)
    assert bench.thaw().node == "c"
    assert (bench.row.attempt.uid, bench.phase, bench.row.preemptions) == (uid, Suspension.NONE, 0)
    again = bench.world.workers["slice-6-6"].granted.resumption
    assert (again.grant != given, again.anew) == (True, True)  # it may have lived on b
    assert bench.drop().tried == ("b", "c")


@pytest.mark.parametrize("ended", [CheckpointStored(reason="NoRoom: full"), SuspensionRefused("no agent")])
def test_what_cannot_be_stored_stays_where_it_is(ended):
    """And it says why. What is to go on waits for the end of that; its worker is one of its own machine then."""
    bench = Bench()
    bench.ask(SuspendTask(0, "s", store=True))
    bench.freeze()
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(5)
    assert "goes on after that" in bench.row.reason
    bench.sim.crash()
    bench.sim.restart()
    for worker in bench.world.workers.values():
        worker.connected, worker.handle = False, None
        bench.sim.tell("/jobs/scheduler", WorkerReady(worker.info))
        bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(40)
    operations = [each for each in bench.world.freezes if isinstance(each.effect, StoreCheckpoint)]
    assert len({each.effect.key for each in operations}) == 1
    if isinstance(ended, Exception):
        operations[-1].fail(ended)
    else:
        operations[-1].complete(ended)
    bench.sim.advance(1)
    bench.world.freezes[:] = [each for each in bench.world.freezes if each not in operations]
    assert bench.thaw().node == "node"
    assert bench.phase is Suspension.NONE


def test_a_grant_that_was_taken_before_it_could_be_given_back():
    """It runs there, whatever was said of its thaw; nobody else is given it."""
    bench = Bench()
    bench.suspend()
    bench.ask(ResumeTask(0, "r"))
    operation = bench.effect(ThawAttempt)
    (worker,) = [each for each in bench.world.workers.values() if each.attempts]
    worker.connected = False
    worker.hang_up()
    operation.complete(ThawedAttempt(Thawed.REFUSED, "GateRefused: no"))
    bench.sim.advance(1)
    assert "gives it back" in bench.row.reason
    bench.world.bodies.thaw(operation.effect, Thawed.UNKNOWN)
    bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(60)
    assert (bench.phase, bench.row.worker_id) == (Suspension.NONE, worker.info.worker_id)
    assert len(bench.world.bodies.leaves) == 1


def test_only_where_its_checkpoint_is():
    """A worker with room on another machine is of no use; the fleet is asked for none, as it would come there too."""
    bench = Bench(workers=1)
    bench.suspend()
    bench.lose("slice-0-0")
    bench.world.add(worker_info(7, cpus=1, node="elsewhere"))
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(60)
    assert (bench.phase, bench.row.suspension.resuming) == (Suspension.SUSPENDED, True)
    assert "room on node" in bench.row.reason
    bench.world.add(worker_info(8, cpus=1))
    bench.thaw()
    assert bench.row.worker_id == "slice-8-8"


def test_a_crash_before_the_order_has_left(monkeypatch):
    """The worker that was named has not heard of it: it is told again, and not taken for one that lost it."""
    bench = Bench(workers=1)
    uid = bench.row.uid
    bench.suspend()
    worker = bench.world.workers["slice-0-0"]
    monkeypatch.setattr(ScriptedWorker, "obey", lambda worker, orders: None)
    bench.ask(ResumeTask(0, "r"))
    bench.sim.advance(1)
    assert bench.phase is Suspension.RESUMING
    bench.sim.crash()
    worker.connected, worker.handle = False, None
    monkeypatch.undo()
    bench.sim.restart()
    bench.sim.tell("/jobs/scheduler", WorkerReady(worker.info))
    bench.sim.advance(1)
    bench.world.reconnect("slice-0-0")
    bench.sim.advance(40)
    bench.thaw()
    assert bench.row.uid == uid
    assert len(bench.world.bodies.leaves) == 1


def test_a_job_that_is_stopped_while_its_task_is_suspended():
    """It ends at once, nobody has to be asked, and its checkpoint is removed; if that fails somebody is told."""
    bench = Bench()
    bench.suspend()
    bench.ask(TerminateJob(bench.job))
    bench.sim.advance(1)
    assert bench.ask(DescribeJob()).state is JobState.KILLED
    operation = bench.effect(DropCheckpoint)
    operation.fail(SuspensionRefused("no agent"))
    bench.sim.advance(1)
    (left,) = [event for event in bench.sim.events if isinstance(event, CheckpointLeft)]
    assert (left.checkpoint, left.reason) == (operation.effect.checkpoint, "SuspensionRefused: no agent")
    with pytest.raises(TaskEnded):
        bench.ask(ResumeTask(0, "r"))


def test_time_counts_only_while_it_runs():
    """An hour of suspension is none of its timeout; what is left of that is."""
    bench = Bench(timeout_ns=100 * 10**9)
    bench.suspend()
    bench.sim.advance(3_600)
    bench.resume()
    bench.sim.advance(50)
    assert bench.row.ending is None
    bench.sim.advance(60)
    assert bench.ask(DescribeJob()).state is JobState.FAILED


def test_an_agent_that_never_answers():
    """Beyond the limit it is undone, and its worker goes on with it."""
    bench = Bench()
    bench.ask(SuspendTask(0, "s"))
    bench.effect(FreezeAttempt)
    bench.sim.advance(3_601)
    assert (bench.phase, bench.row.suspension.reason) == (Suspension.NONE, "not done within 3600 s")


def test_an_agent_that_never_answers_for_a_worker_that_is_gone():
    """Nobody can say whether there is a checkpoint: beyond the limit the attempt is lost, and the task begins anew."""
    bench = Bench()
    uid = bench.row.uid
    bench.ask(SuspendTask(0, "s"))
    assert bench.effect(FreezeAttempt)
    bench.lose(bench.row.worker_id)
    bench.sim.advance(3_601)
    assert (bench.row.uid != uid, bench.row.suspension, bench.row.preemptions) == (True, None, 1)


def test_a_worker_that_never_offers_the_grant(monkeypatch):
    """Beyond the limit the grant is taken back: what nobody has begun to bring back is not lost."""
    bench = Bench()
    bench.suspend()
    uid = bench.row.attempt.uid
    with monkeypatch.context() as deaf:
        deaf.setattr(ScriptedWorker, "obey", lambda worker, orders: None)
        bench.ask(ResumeTask(0, "r"))
        bench.sim.advance(3_601)
    assert (bench.phase, bench.row.ending) == (Suspension.RESUMING, None)
    worker = bench.world.workers[bench.row.worker_id]
    worker.hang_up()
    bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(60)
    bench.thaw()
    assert (bench.row.attempt.uid, bench.phase, bench.row.preemptions) == (uid, Suspension.NONE, 0)


def test_what_cannot_be_suspended():
    """Each refusal has its name."""
    bench = Bench()
    with pytest.raises(InvalidArgument, check=that(names="1")):
        bench.ask(SuspendTask(1, "s"))
    gang = bench.world.submit(command_spec("gang", replicas=1, group_by="slice-id"))
    waits = bench.world.submit(command_spec("waits", demand=Capacity(9_000)))
    bench.sim.advance(1)
    with pytest.raises(GangNotSuspendable):
        bench.sim.ask(f"/jobs/{gang}", SuspendTask(0, "s"))
    with pytest.raises(TaskNotRunning):
        bench.sim.ask(f"/jobs/{waits}", SuspendTask(0, "s"))
    bench.suspend()
    bench.ask(ResumeTask(0, "r"))
    bench.effect(ThawAttempt)
    with pytest.raises(SuspensionRefused, check=that(names="brought")):
        bench.ask(SuspendTask(0, "t"))


def test_nobody_freezes_what_its_worker_was_not_told(monkeypatch):
    """Its end would be taken for one: the freeze is asked for when the worker has said that it knows."""
    bench = Bench()
    with monkeypatch.context() as deaf:
        deaf.setattr(ScriptedWorker, "obey", lambda worker, orders: None)
        bench.ask(SuspendTask(0, "s"))
        (worker,) = [each for each in bench.world.workers.values() if each.running]
        worker.say(worker.attempts[bench.row.uid])
        bench.sim.advance(5)
        assert (bench.phase, bench.world.freezes) == (Suspension.SUSPENDING, [])
    worker.hang_up()
    bench.world.reconnect(worker.info.worker_id)
    bench.sim.advance(1)
    bench.world.reconnect(worker.info.worker_id)
    bench.freeze()
    assert bench.phase is Suspension.SUSPENDED


def test_a_worker_that_has_not_said_so_yet():
    """It is a checkpoint, and its worker keeps it until it has said that nothing of it runs."""
    bench = Bench()
    bench.ask(SuspendTask(0, "s"))
    operation = bench.effect(FreezeAttempt)
    operation.complete(FrozenAttempt(Frozen.FROZEN, f"ck-{operation.effect.key}", "node"))
    bench.sim.advance(1)
    assert (bench.phase, bench.room()) == (Suspension.SUSPENDING, 1)
    bench.world.bodies.freeze(operation.effect, Frozen.FROZEN)
    bench.sim.advance(1)
    assert (bench.phase, bench.room()) == (Suspension.SUSPENDED, 0)


def test_a_reason_does_not_repeat_the_phase():
    """It says what is waited for or went wrong; what is suspended, and where, stands beside it."""
    bench = Bench(workers=1)
    told = [bench.ask(SuspendTask(0, "s")).reason]
    operation = bench.effect(FreezeAttempt)
    told.append(bench.row.suspension.reason)
    operation.complete(bench.world.bodies.freeze(operation.effect, Frozen.FROZEN))
    bench.sim.advance(1)
    told.append(bench.row.suspension.reason)
    bench.lose("slice-0-0")
    told.append(bench.ask(ResumeTask(0, "r")).reason)
    bench.world.add(worker_info(1, cpus=1))
    operation = bench.effect(ThawAttempt)
    told.append(bench.row.suspension.reason)
    operation.complete(bench.world.bodies.thaw(operation.effect, Thawed.UNDONE))
    bench.sim.advance(1)
    told.append(bench.row.suspension.reason)
    waits = "waits for a worker with room on node"
    assert told[:-1] == ["its worker prepares it", "", "", waits, ""]
    assert told[-1].startswith("try 1 of 3 did not bring it back: ")


def test_what_is_published_for_those_who_count():
    """Each phase once, with what came of it and how long it lasted; of one that ends in it, that."""
    bench = Bench(workers=1)
    bench.suspend("s1")
    bench.sim.advance(100)
    bench.resume("r1")
    bench.ask(SuspendTask(0, "s2"))
    bench.freeze(Frozen.UNDONE)
    bench.suspend("s3")
    bench.ask(TerminateJob(bench.job))
    bench.sim.advance(1)
    over = [event for event in bench.sim.events if isinstance(event, PhaseOver)]
    assert [(each.phase, each.outcome) for each in over] == [
        (Suspension.NONE, "asked"),
        (Suspension.SUSPENDING, "suspended"),
        (Suspension.SUSPENDED, "resuming"),
        (Suspension.RESUMING, "resumed"),
        (Suspension.NONE, "asked"),
        (Suspension.SUSPENDING, "undone"),
        (Suspension.NONE, "asked"),
        (Suspension.SUSPENDING, "suspended"),
        (Suspension.SUSPENDED, "ended"),
    ]
    assert 100 <= over[2].lasted_ns / 10**9 < 110
