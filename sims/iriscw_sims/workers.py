"""Simulated workers: the process in each pod, the attempts that it runs, and the log store.

Theory of operation. A worker keeps the promises of :mod:`iriscw.jobs.ports`: it never starts a uid twice, it keeps
what ended until it is released, it reports what it has had and lost as MISSING, and without contact for its lease
(:attr:`iriscw_sims.pace.Pace.lease`) it kills its attempts. All else about it may go wrong: it crashes, starts anew in
its pod, hangs, lies about its machine.

What really runs is what the checks of jobs read, not what anybody reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

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
from iriscw.jobs.model import AwaitLogs, Ending, Observation, Observed, Orders, RunOrder, StopOrder, StreamUp, TaskState
from iriscw.runtime.vocabulary import SECOND, ActorPath
from iriscw.testing.simulation import SimOperation
from iriscw.worker.registry import MAX_RELEASED
from iriscw_sims.fills import KILLED, OUT_OF_MEMORY, Fills

if TYPE_CHECKING:
    from iriscw_sims.network import Connection
    from iriscw_sims.world import World


FLEET = ActorPath("/fleet")

LOGS_KEPT = 10_000
"""Logs that the store remembers the size of: more than are waited for at once."""


_OBSERVATION = tuple(field.name for field in attrs.fields(cast("Any", Observation)))


def changed(seen: Observation, **changes: Any) -> Observation:
    """Give an observation with some fields changed."""
    # As attrs.evolve does, without looking the fields up each time: observations are changed all the time.
    fields = {name: getattr(seen, name) for name in _OBSERVATION}
    fields.update(changes)
    return Observation(**fields)


@attrs.define(eq=False)
class SimAttempt:
    """One attempt on one worker: what runs, and what is said of it."""

    order: RunOrder
    seen: Observation
    alive: bool = True
    """Whether its process runs, or is about to."""
    log_bytes: int = 0


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
                if uid not in wanted:
                    self.ends(attempt, Ending.KILLED)
        for uid in orders.release:
            if uid in self.attempts and not self.attempts[uid].alive:
                self.released[uid] = self.attempts.pop(uid).order
                if len(self.released) > MAX_RELEASED:
                    del self.released[next(iter(self.released))]

    def _run(self, order: RunOrder) -> None:
        if order.uid in self.attempts:
            return
        if order.uid in self.released:
            self.say(Observed((Observation(order.uid, TaskState.ASSIGNED, Ending.MISSING),)))
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

    def _builds(self, attempt: SimAttempt) -> None:
        if attempt.alive:
            self._becomes(attempt, changed(attempt.seen, state=TaskState.BUILDING))
            self.world.simulation.call_after(self.world.workers.rng.randrange(SECOND), self._starts, attempt)

    def _starts(self, attempt: SimAttempt) -> None:
        if not attempt.alive:
            return
        world, rng = self.world, self.world.workers.rng
        world.job_checks.process_started(self, attempt)
        attempt.log_bytes = rng.randrange(1000)
        self._becomes(attempt, changed(attempt.seen, state=TaskState.RUNNING, started=True))
        cuda = self.fills.fails(attempt.order.spec.demand)
        if cuda:
            world.simulation.call_after(SECOND, self._fails, attempt, 1, cuda)
            return
        if world.chance("attempt out of memory"):
            delay = rng.randrange(SECOND, 15 * SECOND)
            world.simulation.call_after(delay, self._fails, attempt, KILLED, OUT_OF_MEMORY)
            return
        if world.chance("attempt never ends") and attempt.order.spec.timeout_ns:
            return
        ending = Ending.FAILED if world.chance("attempt fails") else Ending.SUCCEEDED
        most = 60 if rng.random() < 0.3 else 15
        world.simulation.call_after(rng.randrange(SECOND, most * SECOND), self.ends, attempt, ending)

    def _stop(self, stop: StopOrder) -> None:
        attempt = self.attempts.get(stop.uid)
        if attempt is not None and attempt.alive:
            delay = self.world.workers.rng.randrange(min(stop.grace_ns, 3 * SECOND) + 1)
            self.world.simulation.call_after(delay, self.ends, attempt, stop.ending)

    # What happens to attempts

    def _refuses(self, attempt: SimAttempt, reason: str) -> None:
        self.ends(attempt, Ending.REFUSED, reason=reason)

    def _fails(self, attempt: SimAttempt, exit_code: int, reason: str) -> None:
        self.ends(attempt, Ending.FAILED, exit_code=exit_code, reason=reason)

    def ends(self, attempt: SimAttempt, ending: Ending, *, exit_code: int | None = None, reason: str = "") -> None:
        """The attempt's process is over."""
        if not attempt.alive or not self.alive:
            return
        attempt.alive = False
        self.world.job_checks.process_ended(attempt, ending)
        if exit_code is None:
            exit_code = {Ending.SUCCEEDED: 0, Ending.FAILED: 1}.get(ending)
        self.world.workers.logs.upload(self, attempt)
        seen = changed(attempt.seen, ending=ending, exit_code=exit_code, reason=reason, log_offset=attempt.log_bytes)
        self._becomes(attempt, seen)

    def _becomes(self, attempt: SimAttempt, seen: Observation) -> None:
        attempt.seen = seen
        self.say(Observed((seen,)))

    def start_anew(self) -> None:
        """The worker's process crashes and starts again in its pod, with its notes: its attempts are lost."""
        for attempt in self.attempts.values():
            self.ends(attempt, Ending.MISSING)
        if self.connection is not None:
            self.connection.close()

    def die(self) -> None:
        """The pod is over, and all that ran in it."""
        if self.alive:
            for attempt in self.attempts.values():
                if attempt.alive:
                    attempt.alive = False
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
        self.stored[uid] = attempt.log_bytes
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
