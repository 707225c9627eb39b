"""A task of which checkpoints are made while it runs: jobs, links and scheduler with scripted workers and agents."""

import attrs
import pytest
from jobs_world import ScriptedWorker
from suspend_bench import RUNS, Bench

from iriscw.client.wire import task_status
from iriscw.jobs import wire
from iriscw.jobs.keeping.going_back import may_go_back
from iriscw.jobs.keeping.messages import CheckpointMissed, CopyOverdue
from iriscw.jobs.lifecycle import Judgement
from iriscw.jobs.messages import AttemptsObserved, TerminateJob
from iriscw.jobs.model import AttemptEnd, Ending, Suspension, TaskState
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt, Frozen, FrozenAttempt
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask

EVERY_S = 120


class Copied(Bench):
    """A world whose one task is copied every two minutes, and tried again from there."""

    def __init__(self, **spec):
        spec = {"checkpoint_every_ns": EVERY_S * 10**9, "retry_from_checkpoint": True, "max_retries_failure": 9, **spec}
        super().__init__(script=lambda order: [(0.1, attrs.evolve(RUNS, folder="/f", log_offset=7))], **spec)

    @property
    def worker(self):
        """The worker that has it."""
        return self.world.workers[self.row.worker_id]

    def begun(self):
        """Wait until a copy is asked for; give the operation."""
        for _ in range(2 * EVERY_S):
            if any(isinstance(each.effect, FreezeAttempt) for each in self.world.freezes):
                break
            self.sim.advance(1)
        return self.effect(FreezeAttempt)

    def copy(self):
        """Have one made; give its effect."""
        operation = self.begun()
        effect = operation.effect
        assert effect.leave_running
        assert effect.carries_folder
        self.world.bodies.images[effect.key] = effect.uid
        operation.complete(FrozenAttempt(Frozen.FROZEN, f"ck-{effect.key}", "node"))
        self.sim.advance(1)
        return effect

    def asked(self, seconds=3 * EVERY_S):
        """Return how many more copies are asked for within that time."""
        before = [*self.world.freezes]
        self.sim.advance(seconds)
        new = [each.effect for each in self.world.freezes if each not in before]
        return sum(isinstance(effect, FreezeAttempt) and effect.leave_running for effect in new)

    def end(self, ending=Ending.FAILED, exit_code=-9, log_offset=50):
        """Have its life end."""
        known = self.worker.attempts[self.row.uid]
        self.worker.becomes(attrs.evolve(known, end=AttemptEnd(ending, exit_code), log_offset=log_offset))
        self.sim.advance(1)


def test_one_copy_at_a_time():
    """As long as one is under way no other is begun; a restarted controller asks for the same again."""
    bench = Copied()
    key = bench.begun().effect.key
    assert bench.asked() == 0
    bench.sim.crash()
    bench.sim.restart()
    for worker in bench.world.workers.values():
        worker.handle = None
    bench.sim.advance(1)
    assert bench.effect(FreezeAttempt).effect.key == key


@pytest.mark.parametrize("state", ["suspending", "suspended", "overdue", "suspect"])
def test_no_copy_of_what_does_not_run(state, monkeypatch):
    """Nor of what may not run any more: its files are not to be counted on."""
    bench = Copied(timeout_ns=60 * 10**9 if state == "overdue" else 0)
    if state == "suspending":
        bench.ask(SuspendTask(0, "s"))
    elif state == "suspended":
        bench.suspend()
    elif state == "overdue":
        monkeypatch.setattr(ScriptedWorker, "obey", lambda worker, orders: None)
    else:
        bench.sim.advance(EVERY_S // 2)
        place = (bench.row.worker_id, bench.worker.info.incarnation)
        bench.sim.state(f"/jobs/{bench.job}").suspects[place] = None
    assert bench.asked() == 0


def test_a_copy_of_which_nobody_knows_is_removed():
    """It may have made something. One that was not made has left nothing, and is told once."""
    bench = Copied()
    operation = bench.begun()
    operation.complete(FrozenAttempt(Frozen.UNKNOWN, reason="the agent is away"))
    bench.sim.advance(1)
    assert bench.effect(DropCheckpoint).effect.key == operation.effect.key
    bench.begun().complete(FrozenAttempt(Frozen.UNDONE, reason="no room"))
    bench.sim.advance(1)
    told = [(each.reason, each.again) for each in bench.sim.events if isinstance(each, CheckpointMissed)]
    assert told == [("the agent is away", False), ("no room", True)]
    assert not [each for each in bench.world.freezes if isinstance(each.effect, DropCheckpoint)]


def test_a_copy_that_takes_too_long_is_given_up():
    """And the limit of one is not that of the next."""
    bench = Copied()
    first = bench.begun()
    bench.sim.advance(3_601)
    assert bench.effect(DropCheckpoint).effect.key == first.effect.key
    bench.begun()
    bench.sim.tell(f"/jobs/{bench.job}", CopyOverdue(0, bench.row.uid, 1))
    bench.sim.advance(1)
    assert not [each for each in bench.world.freezes if isinstance(each.effect, DropCheckpoint)]
    assert bench.row.ending is None


def test_it_goes_back_and_its_log_goes_on():
    """As the same attempt, behind what the life before wrote; what that life's worker says late is not believed."""
    bench = Copied()
    bench.copy()
    uid = bench.row.uid
    bench.end(log_offset=50)
    assert (bench.row.uid, bench.row.ending) == (uid, None)
    bench.thaw()
    bench.sim.advance(1)
    resumption = bench.worker.granted.resumption
    assert (bench.phase, resumption.anew, resumption.log_offset) == (Suspension.NONE, True, 50)
    late = attrs.evolve(RUNS, uid=uid, end=AttemptEnd(Ending.FAILED, 1), log_offset=60)
    place = (bench.worker.info.worker_id, bench.worker.info.incarnation)
    bench.sim.tell(f"/jobs/{bench.job}", AttemptsObserved(*place, (late,)))
    bench.sim.advance(1)
    assert (bench.row.ending, bench.row.failures) == (None, 1)
    bench.end(log_offset=0)
    bench.thaw()
    assert (bench.worker.granted.resumption.log_offset, bench.row.failures) == (50, 2)


def test_what_is_told_of_them():
    """Those that are kept, what became of the latest, and from which it went on: also as clients read it."""
    bench = Copied()
    assert bench.row.copies is None
    first, second = bench.copy(), bench.copy()
    operation = bench.begun()
    assert (bench.row.copies.under_way, bench.row.copies.failure) == (True, "")
    operation.complete(FrozenAttempt(Frozen.UNDONE, reason="no room"))
    bench.sim.advance(1)
    bench.end()
    read = task_status(wire.task_status(bench.job, bench.row, "")).checkpoints
    names = [f"ck-{each.key}" for each in (second, first)]
    assert [each.checkpoint for each in read.kept] == names
    assert read.kept[1].taken_at_ms < read.kept[0].taken_at_ms < read.begun_at_ms < read.gone_back_at_ms
    assert (read.failure, read.being_made) == ("no room", False)
    assert (read.times_gone_back, read.gone_back_to) == (1, names[0])


def test_who_suspends_it_meanwhile_waits_for_the_copy():
    """Then it is suspended, and goes on as ever."""
    bench = Copied()
    operation = bench.begun()
    bench.ask(SuspendTask(0, "s"))
    assert bench.asked(5) == 0
    bench.world.bodies.images[operation.effect.key] = operation.effect.uid
    operation.complete(FrozenAttempt(Frozen.FROZEN, f"ck-{operation.effect.key}", "node"))
    bench.freeze()
    assert bench.phase is Suspension.SUSPENDED
    bench.ask(ResumeTask(0, "r"))
    bench.thaw()
    assert bench.phase is Suspension.NONE


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("verdict", [False, True])
def test_who_may_go_back(gang, verdict):
    """No member of a gang, and nothing of a job that has its verdict."""
    bench = Copied()
    ledger = bench.sim.state(f"/jobs/{bench.job}")
    pending = Judgement(TaskState.PENDING, failure=True)
    if verdict:
        bench.ask(TerminateJob(bench.job))
        ledger = bench.sim.state(f"/jobs/{bench.job}")
    if gang:
        ledger.spec = attrs.evolve(ledger.spec, group_by="slice-id")
    assert may_go_back(ledger, Ending.FAILED, pending, -9) is not (gang or verdict)


def test_one_that_overran_its_timeout_begins_from_nothing():
    """Also if its worker is lost before it is stopped: nobody is to stop the next life for that."""
    bench = Copied(timeout_ns=2 * EVERY_S * 10**9, max_retries_preemption=9)
    bench.copy()
    uid = bench.row.uid
    bench.sim.state(f"/jobs/{bench.job}").tasks[0].attempt.overran = True
    bench.end(Ending.WORKER_LOST, None)
    bench.sim.advance(5)
    assert bench.row.uid != uid


def test_a_checkpoint_to_which_it_goes_back_is_not_replaced_meanwhile():
    """A copy that was under way as a life ended is complete a moment later."""
    bench = Copied(keep_checkpoints=1)
    first = bench.copy()
    operation = bench.begun()
    bench.end()
    bench.world.bodies.images[operation.effect.key] = operation.effect.uid
    operation.complete(FrozenAttempt(Frozen.FROZEN, f"ck-{operation.effect.key}", "node"))
    bench.sim.advance(1)
    dropped = [each.effect.key for each in bench.world.freezes if isinstance(each.effect, DropCheckpoint)]
    assert first.key not in dropped
    bench.thaw()
    bench.sim.advance(1)
    assert bench.phase is Suspension.NONE
