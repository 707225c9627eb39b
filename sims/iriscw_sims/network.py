"""Between workers and the controller: dialling, streams, and the doors' side of both.

Theory of operation. A worker dials; the door asks the worker's place in the fleet whether it may register. Accepted,
it has a :class:`Connection`, which carries heartbeats from then on and, once the link has opened its session, the
session's items. A connection breaks with all that is on its way, or becomes half open: one direction stands still
until it breaks. A worker whose connection ended dials again; so does one that the door refused, unless it is fenced:
then it ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from iriscw._errors import NoSuchActor
from iriscw.cloud.model import Attributes
from iriscw.fleet.messages import Accepted, WorkerDialled, WorkerHungUp, WorkerSeen
from iriscw.fleet.model import WorkerRefused
from iriscw.jobs.model import Observation, Observed, Orders, Redial, StreamUp
from iriscw.runtime.envelope import Slot
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.simulation import SimOperation
from iriscw_sims.attempts import changed
from iriscw_sims.channel import Channel
from iriscw_sims.freezing import machine_of

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

DIAL_POLL = 50 * MILLISECOND
DIAL_PATIENCE = 5 * SECOND
"""How long a door waits for the answer to a dial."""


class Connection:
    """One connection of one worker."""

    def __init__(self, network: Network, worker: SimWorker) -> None:
        self.network = network
        self.worker = worker
        self.operation: SimOperation | None = None
        self.closed = False
        simulation = network.world.simulation
        self.up = Channel(simulation, network.latency, self._deliver_up)
        self.down = Channel(simulation, network.latency, self._deliver_down)

    def attach(self, operation: SimOperation) -> None:
        """The link has opened its session: the worker says all that it knows."""
        self.operation = operation
        operation.on_fed = self._fed
        operation.on_room = self.up.pump
        operation.on_cancel = self.close
        self.worker.greet()
        self._fed()

    def _fed(self) -> None:
        if self.operation is None or self.closed:
            return
        for item in self.operation.take_fed():
            if isinstance(item, Orders):
                self.network.world.job_checks.ordered(self.worker, item)
            self.down.put(item)

    def _deliver_up(self, item: StreamUp | Observed | None) -> bool:
        world = self.network.world
        if world.system.crashed:
            return True
        if item is not None:
            assert self.operation is not None
            if not self.operation.send(self.network.stamped(item)):
                return False
            world.freezing.heard(self.worker)
        self.network.seen(self.worker)
        self.down.put(None)
        return True

    def _deliver_down(self, item: Orders | Redial | None) -> bool:
        worker, world = self.worker, self.network.world
        if world.simulation.now < worker.hung_until:
            world.simulation.call_after(worker.hung_until - world.simulation.now, self.down.pump)
            return False
        if worker.lease_over:
            # What waited here while the worker could not look is older than its lease: it must not be acted on.
            self.close()
            return True
        worker.last_heard = world.simulation.now
        if isinstance(item, Orders):
            worker.obey(item)
        elif isinstance(item, Redial):
            self.network.ask(worker, self)
        return True

    def close(self) -> None:
        """Break: what is on its way is lost."""
        if self.closed:
            return
        self.closed = True
        self.up.close()
        self.down.close()
        worker = self.worker
        if worker.connection is self:
            worker.connection = None
            self.network.dial_soon(worker)
        if self.operation is not None and not self.network.world.system.crashed:
            self.operation.complete()
        self.network.tell(worker, WorkerHungUp(worker.worker_id, worker.incarnation))


@attrs.define(eq=False)
class Dial:
    """A question that a door asked for a worker."""

    worker: SimWorker
    slot: Slot
    boot: int
    deadline: int
    connection: Connection | None
    """The connection it was asked for again, or None for a new one."""


class Network:
    """All connections, and the sessions that wait for one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("network")
        self.sessions: dict[tuple[str, str], SimOperation] = {}

    def latency(self) -> int:
        """Draw the latency of one item, ns."""
        return MILLISECOND + self.rng.randrange(199 * MILLISECOND)

    # Dialling

    def dial_soon(self, worker: SimWorker) -> None:
        """Have a worker dial, again and again until it is connected."""
        self.world.simulation.call_after(self.rng.randrange(100 * MILLISECOND, 3 * SECOND), self._dial, worker)

    def _dial(self, worker: SimWorker) -> None:
        if not worker.alive or worker.connection is not None:
            return
        if worker.reachable and not self.world.system.crashed:
            self.ask(worker, None)
        else:
            self.dial_soon(worker)

    def ask(self, worker: SimWorker, connection: Connection | None) -> None:
        """Ask the worker's place whether it may register."""
        question = WorkerDialled(
            worker.worker_id,
            worker.incarnation,
            worker.claims,
            Attributes({"python": "3.11"}),
            "10.0.0.1",
            node=machine_of(self.world, worker.worker_id),
        )
        world = self.world
        world.fleet_checks.dials(worker)
        try:
            slot = world.system.question(worker.path, question)
        except NoSuchActor:
            if connection is None:
                self.dial_soon(worker)
            return
        dial = Dial(worker, slot, world.system.boot, world.simulation.now + DIAL_PATIENCE, connection)
        world.simulation.call_after(DIAL_POLL, self._answered, dial)

    def _answered(self, dial: Dial) -> None:
        world, worker = self.world, dial.worker
        if not worker.alive:
            return
        gone = world.system.crashed or world.system.boot != dial.boot
        if not gone and not dial.slot.done and world.simulation.now < dial.deadline:
            world.simulation.call_after(DIAL_POLL, self._answered, dial)
            return
        answer: Any = None
        if dial.slot.done and not gone:
            answer = dial.slot.value if dial.slot.error is None else dial.slot.error
        if isinstance(answer, WorkerRefused) and answer.fenced:
            world.workers.exit(worker, "fenced off")
        elif isinstance(answer, Accepted):
            world.fleet_checks.registered(worker)
            if dial.connection is None and worker.reachable:
                self._connect(worker)
            elif dial.connection is None:
                self.dial_soon(worker)
        elif dial.connection is None and worker.connection is None:
            self.dial_soon(worker)

    def _connect(self, worker: SimWorker) -> None:
        older, worker.connection = worker.connection, None
        if older is not None:
            worker.connection = None
            older.close()
        connection = worker.connection = Connection(self, worker)
        worker.last_heard = self.world.simulation.now
        self.seen(worker)
        self._match(worker.worker_id, worker.incarnation)
        if self.world.chance("worker dials twice"):
            self.world.simulation.call_after(self.rng.randrange(SECOND), self._again, worker, connection)

    def _again(self, worker: SimWorker, connection: Connection) -> None:
        """A worker that believes its connection lost dials once more while the door still holds it."""
        if worker.connection is connection and worker.reachable and not self.world.system.crashed:
            self.ask(worker, None)

    # Sessions

    def open(self, operation: SimOperation) -> None:
        """A link waits for its worker."""
        session = operation.effect
        self.sessions[session.worker_id, session.incarnation] = operation
        operation.on_cancel = partial(self._given_up, operation)
        self._match(session.worker_id, session.incarnation)

    def _given_up(self, operation: SimOperation) -> None:
        """A link has stopped waiting: its worker never came."""
        session = operation.effect
        if self.sessions.get((session.worker_id, session.incarnation)) is operation:
            del self.sessions[session.worker_id, session.incarnation]

    def _match(self, worker_id: str, incarnation: str) -> None:
        operation = self.sessions.get((worker_id, incarnation))
        if operation is None or operation.ended or operation.system_restarted or operation.cancelled:
            return
        for worker in self.world.workers.live:
            connection = worker.connection
            mine = worker.worker_id == worker_id and worker.incarnation == incarnation
            if mine and connection is not None and connection.operation is None:
                del self.sessions[worker_id, incarnation]
                connection.attach(operation)
                return

    def stamped(self, item: StreamUp | Observed) -> StreamUp | Observed:
        """Say of each observation how much of its log is stored, as doors do."""
        stored = self.world.workers.logs.stored

        def stamp(seen: Observation) -> Observation:
            return changed(seen, logs_stored=stored.get(seen.uid, 0))

        if isinstance(item, StreamUp):
            return StreamUp(tuple(map(stamp, item.observed)))
        return Observed(tuple(map(stamp, item.observations)))

    # The controller

    def seen(self, worker: SimWorker) -> None:
        """Something came from a worker."""
        self.world.job_checks.contact(worker)
        self.tell(worker, WorkerSeen(worker.worker_id, worker.incarnation))

    def tell(self, worker: SimWorker, message: object) -> None:
        """Tell a worker's place something."""
        if not self.world.system.crashed:
            self.world.system.tell(worker.path, message)

    def controller_down(self) -> None:
        """All connections break."""
        self.sessions.clear()
        for worker in self.world.workers.live:
            if worker.connection is not None:
                worker.connection.close()
