"""Simulated workers: the process in each pod, the attempts that it runs, and the log store.

Theory of operation. A worker keeps the promises of :mod:`iriscw.jobs.ports`: it never starts a uid twice, it keeps
what ended until it is released, it reports what it has had and lost as MISSING, and without contact for its lease
(:attr:`iriscw_sims.pace.Pace.lease`) it kills its attempts. All else about it may go wrong: it crashes, starts anew in
its pod, hangs, lies about its machine.

What it promises of attempts that are suspended stands in ``docs/worker.md``: it says SUSPENDING before they may be
frozen, SUSPENDED when nothing of them runs, and offers a grant once before it says RESUMING. A grant that it is to
give back it takes from the folder, and says which that was; if somebody has taken it, the attempt runs. Who freezes and
thaws is another (:mod:`iriscw_sims.freezing`). Of what is suspended neither the lease nor the worker's end is an end.

What really runs is what the checks of jobs read, not what anybody reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from iriscw.cloud.model import (
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_SLICE,
    LABEL_WORKER,
    Capacity,
    Pod,
    Unavailable,
)
from iriscw.fleet.model import worker_path
from iriscw.jobs.model import (
    AttemptEnd,
    AwaitLogs,
    Ending,
    Observation,
    Observed,
    Orders,
    RunOrder,
    StopOrder,
    StreamUp,
    Suspension,
    TaskState,
)
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import SECOND, ActorPath
from iriscw.testing.simulation import SimOperation
from iriscw.worker.registry import MAX_RELEASED
from iriscw_sims.attempts import Program, Running, SimAttempt, changed
from iriscw_sims.fills import KILLED, OUT_OF_MEMORY, Fills

if TYPE_CHECKING:
    from iriscw_sims.network import Connection
    from iriscw_sims.world import World


FLEET = ActorPath("/fleet")

LOGS_KEPT = 10_000
"""Logs that the store remembers the size of: more than are waited for at once."""


RENDEZVOUS_PORT = 20_000
"""What each leader of a gang sets aside; nothing listens in this world."""


def folder_of(uid: str) -> str:
    """Return where the files of an attempt are, wherever it runs."""
    return f"/var/lib/iriscw/{uid}"


class SimWorker:
    """The worker in one pod."""

    def __init__(self, world: World, pod: Pod, capacity: Capacity) -> None:
        self.world = world
        self.pod_name = pod.name
        self.worker_id = pod.labels[LABEL_WORKER]
        self.incarnation = pod.labels[LABEL_INCARNATION]
        self.slice_id = pod.labels[LABEL_SLICE]
        self.group = pod.labels[LABEL_GROUP]
        self.path = worker_path(FLEET, self.group, self.worker_id)
        """Of its place in the fleet."""
        self.capacity = capacity
        self.lies = world.chance("worker lies")
        self.attempts: dict[str, SimAttempt] = {}
        self.released: dict[str, RunOrder] = {}
        self.connection: Connection | None = None
        self.fills = Fills(world)
        self.alive = True
        self.hung_until = 0
        self.cut_off_until = 0
        self.last_heard = world.simulation.now
        world.simulation.call_after(world.pace.heartbeat, self.beat)

    @property
    def claims(self) -> Capacity:
        """What it says its machine has."""
        if self.lies and not self.world.healed:
            return attrs.evolve(self.capacity, memory_bytes=self.capacity.memory_bytes // 2)
        return self.fills.left_of(self.capacity)

    @property
    def reachable(self) -> bool:
        """Whether it can open a connection now."""
        now = self.world.simulation.now
        return self.alive and now >= self.hung_until and now >= self.cut_off_until

    @property
    def lease_over(self) -> bool:
        """Whether it was without contact for its lease."""
        return self.world.simulation.now - self.last_heard >= self.world.pace.lease

    def beat(self) -> None:
        """Say that it is there; kill everything when nobody answered for a lease."""
        if not self.alive:
            return
        world = self.world
        world.simulation.call_after(world.pace.heartbeat, self.beat)
        if self.lease_over:
            for attempt in self.attempts.values():
                if not attempt.suspended:
                    self.ends(attempt, Ending.WORKER_LOST)
            if self.connection is not None:
                self.connection.close()
        if self.connection is not None and world.simulation.now >= self.hung_until:
            self.connection.up.put(None)

    # What the controller orders

    def greet(self) -> None:
        """Begin a stream: say all that is known."""
        self.say(StreamUp(tuple(attempt.seen for attempt in self.attempts.values())))

    def say(self, item: StreamUp | Observed) -> None:
        """Send an item, if there is a stream."""
        if self.connection is not None and self.connection.operation is not None:
            self.connection.up.put(item)

    def obey(self, orders: Orders) -> None:
        """Carry out orders."""
        for order in orders.run:
            self._run(order)
        for stop in orders.stop:
            self._stop(stop)
        if orders.complete:
            wanted = [order.uid for order in orders.run] + [stop.uid for stop in orders.stop]
            for uid, attempt in self.attempts.items():
                if uid not in wanted and not attempt.suspended:
                    self.ends(attempt, Ending.KILLED)
        for uid in orders.suspend:
            self._turns(uid, Suspension.NONE, Suspension.SUSPENDING)
        for uid in orders.go_on:
            self._turns(uid, Suspension.SUSPENDING, Suspension.NONE)
        for uid, grant in orders.withdraw:
            self._gives_back(uid, grant)
        for uid in orders.release:
            self._release(uid)

    def _release(self, uid: str) -> None:
        attempt = self.attempts.get(uid)
        if attempt is None or (attempt.alive and not attempt.suspended):
            return
        self.released[uid] = self.attempts.pop(uid).order
        if len(self.released) > MAX_RELEASED:
            del self.released[next(iter(self.released))]

    def _run(self, order: RunOrder) -> None:
        if order.resumption is not None:
            self._resumes(order)
            return
        if order.uid in self.attempts:
            self._waits_no_longer(self.attempts[order.uid], order)
            return
        if order.uid in self.released:
            self.say(Observed((Observation(order.uid, TaskState.ASSIGNED, AttemptEnd(Ending.MISSING)),)))
            return
        world, rng = self.world, self.world.workers.rng
        attempt = self.attempts[order.uid] = SimAttempt(order, Observation(order.uid, TaskState.ASSIGNED))
        full = self.fills.refuses()
        if full:  # the bundle is fetched until there is no room for the rest
            world.simulation.call_after(rng.randrange(SECOND), self._refuses, attempt, full)
            return
        if world.chance("attempt refused"):
            self._refuses(attempt, "")
            return
        world.simulation.call_after(rng.randrange(2 * SECOND), self._builds, attempt)

    def _waits_no_longer(self, attempt: SimAttempt, order: RunOrder) -> None:
        if order.gang is None or order.gang.waits:
            return
        attempt.order = order
        if attempt.held:
            attempt.held = False
            self._starts(attempt)

    def _builds(self, attempt: SimAttempt) -> None:
        if attempt.alive:
            self._becomes(attempt, changed(attempt.seen, state=TaskState.BUILDING))
            self.world.simulation.call_after(self.world.workers.rng.randrange(SECOND), self._starts, attempt)

    def _starts(self, attempt: SimAttempt) -> None:
        if not attempt.alive:
            return
        place = attempt.order.gang
        if place is not None and place.waits:
            attempt.held = True
            return
        world, rng = self.world, self.world.workers.rng
        world.job_checks.process_started(self, attempt)
        attempt.log_bytes = rng.randrange(1000)
        reached: dict[str, Any] = {"host": self.pod_name}
        if place is not None and place.leads:
            reached["rendezvous_port"] = RENDEZVOUS_PORT
        if attempt.order.spec.checkpoint_every_ns:
            reached["folder"] = folder_of(attempt.order.uid)
        self._becomes(attempt, changed(attempt.seen, state=TaskState.RUNNING, started=True, **reached))
        self._goes_on(attempt, self._draw(attempt))

    def _draw(self, attempt: SimAttempt) -> Program:
        """Decide what the user's code will do."""
        world, rng = self.world, self.world.workers.rng
        cuda = self.fills.fails(attempt.order.spec.demand)
        if cuda:
            return Program(Ending.FAILED, SECOND, 1, cuda)
        if world.chance("attempt out of memory"):
            return Program(Ending.FAILED, rng.randrange(SECOND, 15 * SECOND), KILLED, OUT_OF_MEMORY)
        if world.chance("attempt never ends") and attempt.order.spec.timeout_ns:
            return Program(None, 0)
        ending = Ending.FAILED if world.chance("attempt fails") else Ending.SUCCEEDED
        if world.plan.task_length is None:
            most = 60 if rng.random() < 0.3 else 15
            left = rng.randrange(SECOND, most * SECOND)
        else:
            left = rng.randint(*world.plan.task_length)
        if world.chance("attempt runs long"):  # long enough to be suspended more than once
            left += world.freezing.rng.randrange(30 * SECOND, 120 * SECOND)
        return Program(ending, left)

    def _goes_on(self, attempt: SimAttempt, program: Program) -> None:
        running = attempt.running = Running(program, self.world.simulation.now)
        if program.ending is not None:
            self.world.simulation.call_after(program.left, self._runs_out, attempt, running)

    def _runs_out(self, attempt: SimAttempt, running: Running) -> None:
        """The program ends by itself, unless it was frozen in the meantime."""
        program = running.program
        if attempt.running is running and program.ending is not None:
            self.ends(attempt, program.ending, exit_code=program.exit_code, reason=program.reason)

    def _stop(self, stop: StopOrder) -> None:
        attempt = self.attempts.get(stop.uid)
        if attempt is not None and attempt.alive:
            delay = self.world.workers.rng.randrange(min(stop.grace_ns, 3 * SECOND) + 1)
            self.world.simulation.call_after(delay, self.ends, attempt, stop.ending)

    # Being frozen, and coming back

    def _turns(self, uid: str, before: Suspension, after: Suspension) -> None:
        """Say that an attempt may be frozen, or not any more; as long as it runs."""
        attempt = self.attempts.get(uid)
        if attempt is None or attempt.running is None or attempt.seen.suspension is not before:
            return
        told = after is Suspension.SUSPENDING or attempt.order.spec.checkpoint_every_ns
        folder = folder_of(uid) if told else ""
        self._becomes(attempt, changed(attempt.seen, suspension=after, folder=folder))

    def freezes(self, attempt: SimAttempt) -> Program:
        """Somebody has frozen what runs of an attempt: give what is left of it. The worker finds out a moment later."""
        assert attempt.running is not None
        world = self.world
        program = attempt.running.frozen(world.simulation.now)
        attempt.running = None
        world.job_checks.process_frozen(attempt)
        world.simulation.call_after(world.freezing.rng.randrange(SECOND), self._is_gone, attempt)
        return program

    def _is_gone(self, attempt: SimAttempt) -> None:
        """Its process is gone, and left no end: that is one, unless it was to be frozen."""
        if not self.alive or not attempt.alive or attempt.running is not None:
            return
        if attempt.seen.suspension is Suspension.NONE:
            self.ends(attempt, Ending.MISSING)
        elif attempt.seen.suspension is Suspension.SUSPENDING:
            self.world.workers.logs.upload(self, attempt)
            said: dict[str, Any] = {"folder": folder_of(attempt.order.uid), "log_offset": attempt.log_bytes}
            self._becomes(attempt, changed(attempt.seen, suspension=Suspension.SUSPENDED, **said))

    def _resumes(self, order: RunOrder) -> None:
        """Take over what was suspended, here or elsewhere; that is never started."""
        known, resumption = self.attempts.get(order.uid), order.resumption
        assert resumption is not None
        if known is not None and resumption.anew and not known.suspended and known.order.resumption != resumption:
            if known.alive:  # an earlier life, whose lease is over: it is about to end
                self.world.simulation.call_after(SECOND, self._resumes_then, order, known)
                return
            known = None
        if known is not None and (not known.suspended or known.order.resumption == order.resumption):
            self.say(Observed((known.seen,)))
            return
        self.released.pop(order.uid, None)
        said: dict[str, Any] = {"life": resumption.grant} if order.spec.checkpoint_every_ns or resumption.anew else {}
        attempt = self.attempts[order.uid] = SimAttempt(
            order, Observation(order.uid, TaskState.RUNNING, started=True, suspension=Suspension.RESUMING, **said)
        )
        self.say(Observed((attempt.seen,)))
        self.world.simulation.call_after(self.world.freezing.rng.randrange(SECOND), self._offers, attempt)

    def _resumes_then(self, order: RunOrder, before: SimAttempt) -> None:
        if self.alive and self.attempts.get(order.uid) is before:
            self._resumes(order)

    def _offers(self, attempt: SimAttempt) -> None:
        """Put the grant into the attempt's folder, and say that it is there."""
        if not self.alive or not attempt.returning:
            return
        refusal = self.world.freezing.offer(self, attempt)
        if refusal:
            self.ends(attempt, Ending.WORKER_LOST, reason=refusal)
        else:
            self._becomes(attempt, changed(attempt.seen, folder=folder_of(attempt.order.uid)))

    def _gives_back(self, uid: str, grant: str) -> None:
        """Have a grant taken back, if that can still be."""
        attempt = self.attempts.get(uid)
        if attempt is None:
            return
        resumption = attempt.order.resumption
        if not attempt.returning or resumption is None or resumption.grant != grant:
            self.say(Observed((attempt.seen,)))
            return
        self.world.simulation.call_after(self.world.freezing.rng.randrange(SECOND), self._takes_back, attempt, grant)

    def _takes_back(self, attempt: SimAttempt, grant: str) -> None:
        if self.alive and attempt.returning and self.world.freezing.withdraw(attempt):
            said: dict[str, Any] = {"folder": "", "withdrawn": grant}
            self._becomes(attempt, changed(attempt.seen, suspension=Suspension.SUSPENDED, **said))

    def thaws(self, attempt: SimAttempt, program: Program, log_bytes: int) -> None:
        """Somebody has brought an attempt back: it goes on where it stood, and writes on."""
        world, resumption = self.world, attempt.order.resumption
        world.job_checks.process_thawed(self, attempt)
        if resumption is not None and resumption.anew:
            log_bytes = max(resumption.log_offset, world.workers.logs.stored.get(attempt.order.uid, 0))
            if program.ending is Ending.FAILED and world.freezing.rng.random() < 0.5:  # not what failed the last life
                program = Program(Ending.SUCCEEDED, program.left)
        attempt.log_bytes = log_bytes + world.freezing.rng.randrange(1000)
        folder = folder_of(attempt.order.uid) if attempt.order.spec.checkpoint_every_ns else ""
        self._becomes(attempt, changed(attempt.seen, suspension=Suspension.NONE, folder=folder))
        self._goes_on(attempt, program)

    # What happens to attempts

    def _refuses(self, attempt: SimAttempt, reason: str) -> None:
        self.ends(attempt, Ending.REFUSED, reason=reason)

    def ends(self, attempt: SimAttempt, ending: Ending, *, exit_code: int | None = None, reason: str = "") -> None:
        """The attempt's process is over."""
        if not attempt.alive or not self.alive:
            return
        if attempt.returning:
            attempt.revoked = self.world.freezing.withdraw(attempt)
        attempt.alive, attempt.running = False, None
        self.world.job_checks.process_ended(attempt, ending)
        if exit_code is None:
            exit_code = {Ending.SUCCEEDED: 0, Ending.FAILED: 1}.get(ending)
        self.world.workers.logs.upload(self, attempt)
        end = AttemptEnd(ending, exit_code, Fault("", reason) if reason else None)
        said: dict[str, Any] = {"end": end, "log_offset": attempt.log_bytes}
        self._becomes(attempt, changed(attempt.seen, suspension=Suspension.NONE, folder="", **said))

    def _becomes(self, attempt: SimAttempt, seen: Observation) -> None:
        attempt.seen = seen
        self.say(Observed((seen,)))

    def start_anew(self) -> None:
        """The worker's process crashes and starts again in its pod, with its notes: its attempts are lost."""
        for attempt in self.attempts.values():
            if attempt.seen.suspension is Suspension.NONE:
                self.ends(attempt, Ending.MISSING)
            elif attempt.running is not None:  # nobody saw its end: it may have been frozen
                attempt.running = None
                self.world.job_checks.process_ended(attempt, Ending.MISSING)
                self._is_gone(attempt)
        if self.connection is not None:
            self.connection.close()

    def die(self) -> None:
        """The pod is over, and all that ran in it."""
        if self.alive:
            for attempt in self.attempts.values():
                runs = attempt.running is not None or attempt.seen.suspension is Suspension.NONE
                over, attempt.alive, attempt.running = attempt.alive and runs, False, None
                if over:
                    self.world.job_checks.process_ended(attempt, Ending.WORKER_LOST)
            self.alive = False
            if self.connection is not None:
                self.connection.close()


class Logs:
    """The log store: how many bytes of each attempt's log it holds."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stored: dict[str, int] = {}
        self.waiting: dict[str, list[SimOperation]] = {}
        self.rng = world.stream("logs")

    def upload(self, worker: SimWorker, attempt: SimAttempt) -> None:
        """Have the log of an attempt stored, some time."""
        if self.world.chance("log lost"):
            return
        most = 30 if self.world.chance("log slow") else 2
        self.world.simulation.call_after(self.rng.randrange(most * SECOND), self._store, worker, attempt)

    def _store(self, worker: SimWorker, attempt: SimAttempt) -> None:
        if not worker.alive:
            return
        uid = attempt.order.uid
        self.stored[uid] = max(attempt.log_bytes, self.stored.get(uid, 0))  # one that moved on has written more since
        while len(self.stored) > LOGS_KEPT:
            del self.stored[next(iter(self.stored))]
        for operation in self.waiting.pop(uid, []):
            operation.complete(self.stored[uid])

    def wait(self, operation: SimOperation) -> None:
        """Answer :class:`AwaitLogs`."""
        effect: AwaitLogs = operation.effect
        if self.world.chance("log store fails"):
            self.world.simulation.call_after(SECOND, operation.fail, Unavailable("the log store does not answer"))
        elif self.stored.get(effect.uid, 0) >= effect.offset:
            operation.complete(self.stored[effect.uid])
        else:
            self.waiting.setdefault(effect.uid, []).append(operation)
            self.world.simulation.call_after(effect.bound_ns, self._give_up, operation)

    def _give_up(self, operation: SimOperation) -> None:
        operation.complete(self.stored.get(operation.effect.uid, 0))


class Workers:
    """All workers, by the names of their pods."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("workers")
        self.logs = Logs(world)
        self.by_pod: dict[str, SimWorker] = {}

    def start(self, pod: Pod, capacity: Capacity) -> None:
        """A pod runs: its worker begins, and dials."""
        worker = self.by_pod[pod.name] = SimWorker(self.world, pod, capacity)
        self.world.network.dial_soon(worker)

    def kill(self, pod_name: str, reason: str) -> None:
        """No process of this pod runs any more."""
        worker = self.by_pod.pop(pod_name, None)
        if worker is not None:
            self.world.simulation.note("worker ends", pod_name, reason)
            worker.die()

    def exit(self, worker: SimWorker, reason: str) -> None:
        """A worker ends by itself, and its pod with it."""
        if worker.alive:
            self.kill(worker.pod_name, reason)
            self.world.cloud.end_pod(worker.pod_name, reason)

    @property
    def live(self) -> list[SimWorker]:
        """All workers whose pods run."""
        return list(self.by_pod.values())
