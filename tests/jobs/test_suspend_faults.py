"""Suspended attempts under faults: seeds of freezes and thaws that fail or are late, between all other harm."""

from collections import Counter

import pytest
from jobs_world import GIB, command_spec
from test_jobs_under_faults import Trial

from iriscw._errors import IriscwError
from iriscw.cloud.model import Capacity
from iriscw.jobs.errors import SuspensionRefused
from iriscw.jobs.job import desired_attempts, ledger as ledgers
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.messages import SubmitJob
from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.effects import FreezeAttempt, Frozen, ThawAttempt, Thawed
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptGivenUp,
    AttemptResumed,
    AttemptSuspended,
    SuspensionUndone,
    ThawUndone,
)
from raised import that

SEEDS = 40


class MovingTrial(Trial):
    """Jobs that run for longer, and whose tasks are suspended and resumed by whoever likes."""

    def __init__(self, seed):
        super().__init__(seed)
        self.keys = 0
        self.kept = 0
        """Suspensions that were under way when a replay and a snapshot were compared."""

    def script(self, order):
        """Draw what an attempt does: it runs for long enough to be suspended."""
        return [(after_s + 40 * (seen.ending is not None), seen) for after_s, seen in super().script(order)]

    def submit(self, number):
        """Submit a job that is not a gang, mostly."""
        rng = self.rng
        if rng.randrange(4) == 0:
            super().submit(number)
            return
        spec = command_spec(
            f"moving{rng.randrange(6)}",
            replicas=rng.choice((1, 1, 3)),
            demand=Capacity(1000, GIB // 2),
            max_retries_failure=2,
            timeout_ns=rng.choice((0, 0, 15 * 10**9)),
        )
        try:
            answer = self.sim.ask("/jobs", SubmitJob(spec, f"moving{number}"), timeout_s=2.0)
        except IriscwError:
            return
        self.acknowledged[answer.job_id] = spec

    def desert(self):
        """A worker dies whose attempt is being frozen: just before that, or just after, and nobody has said so yet."""
        for worker in list(self.world.workers.values()):
            if any(seen.suspension is not Suspension.NONE for seen in worker.attempts.values()):
                for operation in self.world.freezes:
                    if isinstance(operation.effect, FreezeAttempt) and self.rng.randrange(3):
                        self.world.bodies.freeze(operation.effect, Frozen.FROZEN)  # the answer is late
                self.sim.advance(self.rng.choice((0, 0.5)))
                if self.world.workers.get(worker.info.worker_id) is worker:
                    del self.world.workers[worker.info.worker_id]
                    worker.hang_up()
                    self.tell_lost(worker, fenced=self.rng.randrange(4) > 0)
                    self.later(5, self.replace, worker.info)
                return

    def fault(self, number):
        """Suspend, resume, answer; or do some other harm."""
        for _ in range(6):
            self.rng.choice((self.suspend, self.suspend, self.resume, self.answer, self.answer, self.answer))()
            self.sim.advance(self.rng.random())
        if self.rng.randrange(3) == 0:
            self.desert()
        elif self.rng.randrange(2):
            super().fault(number)

    def terminate(self, number):
        """Terminate some job, now and then."""
        if self.rng.randrange(4) == 0:
            super().terminate(number)

    def asks(self, kind, tasks):
        """Ask something of one of these tasks; whatever is refused promises nothing."""
        if tasks:
            job_id, index = self.rng.choice(tasks)
            self.keys += 1
            try:
                self.sim.ask(f"/jobs/{job_id}", kind(index, f"key-{self.keys}"), timeout_s=2.0)
            except IriscwError:
                return

    def suspend(self):
        """Suspend some task that runs."""
        self.asks(SuspendTask, [worker.tasks[uid] for worker in self.world.workers.values() for uid in worker.running])

    def resume(self):
        """Have some task go on."""
        self.asks(ResumeTask, [(job_id, 0) for job_id in self.acknowledged if job_id not in self.ends])

    def answer(self):
        """Carry out something that was asked of those who freeze and thaw, by a controller that may be gone since."""
        freezes = self.world.freezes
        if freezes:
            self.carry_out(freezes.pop(self.rng.randrange(len(freezes))), well=False)

    def carry_out(self, operation, *, well):
        """Do it, and answer who asked if that still waits."""
        effect, bodies = operation.effect, self.world.bodies
        if isinstance(effect, FreezeAttempt):
            outcome = Frozen.FROZEN if well else self.rng.choice((*Frozen, Frozen.FROZEN, Frozen.FROZEN))
            operation.complete(bodies.freeze(effect, outcome))
        elif isinstance(effect, ThawAttempt):
            outcome = Thawed.THAWED if well else self.rng.choice((*Thawed, Thawed.THAWED))
            if not well and self.rng.randrange(8) == 0:
                operation.fail(SuspensionRefused("no agent"))
            else:
                if outcome is Thawed.REFUSED and self.rng.randrange(3) == 0:
                    bodies.thaw(effect, Thawed.UNKNOWN)  # somebody else has thawed it: its grant is taken
                operation.complete(bodies.thaw(effect, outcome))
        else:
            bodies.drop(effect)
            operation.complete()

    # Safety

    def check(self):
        """Beside all else: an attempt has one body, and what has none takes no room."""
        super().check()
        running = [uid for worker in self.world.workers.values() for uid in worker.running]
        assert len(running) == len(set(running)), f"two bodies of one attempt: {sorted(running)}"
        starts = self.world.starts
        assert len(starts) == len(set(starts)), "an attempt was started twice"

    def check_replay(self, path, state, fresh, module):
        """Suspensions leave nothing behind, and a replay knows as much."""
        if module is ledgers:
            assert (state.away, state.moves, state.drops) == ({}, {}, {}), path
        super().check_replay(path, state, fresh, module)

    # Liveness

    def heal(self):
        """Undo all harm; from here on all is carried out well, and whatever is suspended goes on."""
        super().heal()
        where = self.sim.state("/jobs/scheduler").inventory.where
        for job_id in self.acknowledged:
            ledger = self.sim.state(f"/jobs/{job_id}")
            if isinstance(ledger, JobLedger):
                assert not where.keys() & ledger.away.keys(), "INV-J3"
                super().check_replay(f"/jobs/{job_id}", ledger, self.empty(ledger), ledgers)
                self.kept += len(ledger.moves) + len(ledger.drops)
        self.tend()

    def tend(self):
        """Carry out what is asked, and have go on what does not."""
        for operation in list(self.world.freezes):
            self.carry_out(operation, well=True)
        self.world.freezes.clear()
        for job_id in self.acknowledged:
            ledger = self.sim.state(f"/jobs/{job_id}")
            for uid, index in getattr(ledger, "away", {}).items():
                move = ledger.moves[uid]
                if not move.wanted:
                    self.keys += 1
                    slot = self.sim.question(f"/jobs/{job_id}", ResumeTask(index, f"heal-{self.keys}"))
                    assert slot is not None
        self.later(2, self.tend)

    def check_laws(self):
        """No checkpoint is left."""
        super().check_laws()
        assert not self.world.bodies.images, "a checkpoint is left"


def run_all(seeds):
    """Run these seeds."""
    for seed in seeds:
        MovingTrial(seed).run()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_suspensions(seed):
    """Whatever happens, an attempt has one body and no room without one, and all ends once it is healed."""
    MovingTrial(seed).run()


def test_trials_do_what_they_claim():
    """Over some seeds attempts are suspended, undone, resumed and lost in between, and snapshots are made meanwhile."""
    records, kept = Counter(), 0
    for seed in range(8):
        trial = MovingTrial(seed)
        trial.run()
        kept += trial.kept
        for job_id in trial.acknowledged:
            records.update(type(each) for each in trial.sim.journal.read(f"/jobs/{job_id}"))
    assert kept > 0
    for kind in (AttemptSuspended, AttemptResumed, SuspensionUndone, AttemptGivenUp, AttemptDeserted, ThawUndone):
        assert records[kind] > 0, kind


def test_a_second_start_is_noticed(monkeypatch):
    """INV-J2: where the order has no grant in it, some seed starts an attempt anew that was suspended."""
    monkeypatch.setattr(desired_attempts, "resumption_of", lambda move, gpus: None)
    with pytest.raises(AssertionError, check=that(names="started")):
        run_all(range(SEEDS))
