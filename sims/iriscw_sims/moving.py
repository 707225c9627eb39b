"""Users who suspend tasks and have them go on, and what goes wrong for the attempts that they move.

Theory of operation. A user looks for a task that runs, asks to have it suspended, and some time later to have it go on;
sometimes at once, sometimes to have it stay after all. Who gets no answer asks again under the same key, as clients do.
When all is healed whatever is suspended is to go on: each is asked for until that is promised, and never again, so that
a promise that is forgotten shows.

The faults here need an attempt that is on its way. They wait for one up to :data:`PATIENCE`: it takes seconds to
suspend an attempt, and a fault at any moment would seldom meet it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from iriscw._errors import NoSuchActor
from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.jobs.model import RunOrder, Suspension
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask
from iriscw.runtime.envelope import Slot
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.freezing import STORED
from iriscw_sims.swarm import LOST_AMID_A_MOVE, SUSPENDS

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

POLL = 100 * MILLISECOND

PATIENCE = 120 * SECOND
"""How long a user looks for a task that runs, and a fault for an attempt that moves."""

ANSWER_PATIENCE = 10 * SECOND
"""How long a user waits for an answer."""

TRIES = 6

RETURNS = 5 * SECOND
"""Between two looks for what is still suspended when all is healed."""

LONGEST_AWAY_S = 60


@attrs.define(eq=False)
class Question:
    """A wish about a task, on its way in."""

    path: str
    message: SuspendTask | ResumeTask
    answered: Callable[[Any], None]
    """Given the answer, or the error that is one."""
    tries: int = 0


class Moving:
    """The users who move attempts, and the traps for these."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._numbers = 0
        self._promised: dict[str, None] = {}
        """The attempts that are to go on, now that all is healed, and that will."""
        self._asked: dict[str, None] = {}
        """Those of them for which that was asked and not answered."""

    # Wishes

    def suspend(self, pick: int) -> None:
        """Have some task that runs suspended: now, or as soon as one runs."""
        self._suspend(pick, self.world.simulation.now + PATIENCE)

    def _suspend(self, pick: int, deadline: int) -> None:
        world = self.world
        if world.healed:
            return
        orders = [each.attempt.order for each in world.job_checks.running.values()]
        # Of a gang nothing can be suspended, and what moves already is on its way: both are tried, but not often.
        orders = [order for order in orders if order.spec.group_by is None or pick % 8 == 0]
        moving = () if pick % 8 == 1 else world.move_checks.moving()
        orders = [order for order in orders if order.uid not in moving]
        if not orders:
            if world.simulation.now < deadline:
                world.simulation.call_after(SECOND, self._suspend, pick, deadline)
            return
        order = orders[(pick >> 4) % len(orders)]
        world.fired(SUSPENDS, f"job/{order.job_id}")
        self._numbers += 1
        key = f"suspend-{self._numbers}"
        tier, force = DISK if pick & 8 else RAM, bool(pick & 16)
        store = world.chance(STORED, f"job/{order.job_id}")

        def answered(value: Any) -> None:
            world.move_checks.promised(key, value, gang=order.spec.group_by is not None)

        path = f"/jobs/{order.job_id}"
        self._ask(Question(path, SuspendTask(order.index, key, tier, force, store=store), answered))
        away = (pick >> 12) % LONGEST_AWAY_S * SECOND
        world.simulation.call_after(away, self._resume, order, f"resume-{self._numbers}")
        if pick & 3 == 0:  # it is to stay after all: the wish to have it go on may be on its way, or come true
            stays = Question(path, SuspendTask(order.index, f"stay-{self._numbers}", tier, force), _nothing)
            world.simulation.call_after(away + (pick >> 20) % 4 * SECOND, self._ask, stays)

    def _resume(self, order: RunOrder, key: str) -> None:
        self._ask(Question(f"/jobs/{order.job_id}", ResumeTask(order.index, key), _nothing))

    def _ask(self, question: Question) -> None:
        if self.world.healed and isinstance(question.message, SuspendTask):
            return  # what is asked last is that all go on
        question.tries += 1
        slot: Slot | None = None
        if not self.world.system.crashed:
            try:
                slot = self.world.system.question(question.path, question.message)
            except NoSuchActor:
                slot = None
        self._wait(question, slot, self.world.simulation.now + ANSWER_PATIENCE)

    def _wait(self, question: Question, slot: Slot | None, deadline: int) -> None:
        simulation = self.world.simulation
        if slot is not None and not slot.done and simulation.now < deadline:
            simulation.call_after(POLL, self._wait, question, slot, deadline)
            return
        if slot is not None and slot.done and not getattr(slot.error, "retryable", False):
            question.answered(slot.value if slot.error is None else slot.error)
        elif question.tries < TRIES:
            simulation.call_after(SECOND, self._ask, question)
        else:
            question.answered(None)

    def heal(self) -> None:
        """From now on whatever is suspended is to go on; the job of one that cannot is stopped."""
        world = self.world
        for uid in world.move_checks.moving():
            known = world.job_checks.attempts[uid]
            if world.freezing.stranded(uid):  # nobody can say when there will be a worker: its user stops the job
                world.users.terminate(known.job_id)
                continue
            if uid in self._promised or uid in self._asked:
                continue
            self._asked[uid] = None
            message = ResumeTask(known.index, f"go-on-{uid}")
            self._ask(Question(f"/jobs/{known.job_id}", message, self._answered(uid)))
        world.simulation.call_after(RETURNS, self.heal)

    def _answered(self, uid: str) -> Callable[[Any], None]:
        def answered(value: Any) -> None:
            self._asked.pop(uid, None)
            if value is not None and not isinstance(value, Exception):
                self._promised[uid] = None

        return answered

    # Faults

    def lose(self, pick: int) -> None:
        """Have something happen to a worker whose attempt is on its way: now, or as soon as there is one."""
        self._lose(pick, self.world.simulation.now + PATIENCE)

    def _lose(self, pick: int, deadline: int) -> None:
        world = self.world
        if world.healed:
            return
        workers = [each for each in world.workers.live if _moves(each)]
        if not workers:
            if world.simulation.now < deadline:
                world.simulation.call_after(SECOND // 2, self._lose, pick, deadline)
            return
        worker = workers[(pick >> 4) % len(workers)]
        world.fired(LOST_AMID_A_MOVE, f"worker/{worker.worker_id}")
        match pick % 5:
            case 0:
                world.workers.exit(worker, "Error")
            case 1:
                worker.start_anew()
            case 2:
                world.cloud.delete_pod_from_outside(worker.pod_name)
            case 3:
                worker.cut_off_until = world.simulation.now + (1 + (pick >> 8) % 60) * SECOND
                if worker.connection is not None:
                    worker.connection.close()
            case _:
                if worker.slice_id in world.cloud.pools:
                    world.cloud.delete_pool_from_outside(worker.slice_id)


def _moves(worker: SimWorker) -> bool:
    return any(each.alive and each.seen.suspension is not Suspension.NONE for each in worker.attempts.values())


def _nothing(value: Any) -> None:
    """Nobody looks at this answer."""
