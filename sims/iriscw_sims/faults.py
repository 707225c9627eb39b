"""Faults at a moment: each takes its victim out of the world as it is then.

A fault without a victim does nothing and does not count as fired. ``pick`` decides everything else, so that a plan
that is run again does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.restarts import CLOSES, Poison
from iriscw_sims.swarm import RESTART_FAULTS, Fault

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World


def strike(world: World, fault: Fault) -> None:
    """Let a fault happen, unless all is healed by now."""
    if not world.healed and _FAULTS[fault.kind](world, fault.pick):
        world.fired(fault.kind)


def _one(things: Sequence[Any], pick: int) -> Any:
    return things[pick % len(things)] if things else None


def _span(pick: int, least: int, most: int) -> int:
    """Give a duration between two numbers of seconds, ns."""
    return (least + (pick >> 8) % (most - least + 1)) * SECOND


def _crash(world: World, pick: int) -> bool:
    return world.crash(1 + (pick >> 8) % 60)


def _crash_between(world: World, pick: int) -> bool:
    world.crash_at_step = world.simulation.steps + 1 + pick % 400
    return True


def _stand_still(world: World, pick: int) -> bool:
    world.stall_next = _span(pick, 5, 100)
    return True


def _disk_stalls(world: World, pick: int) -> bool:
    journal = world.system.journal
    journal.stall()
    span = _span(pick, 1, 40)
    world.disturbed(span)
    world.simulation.call_after(span, journal.resume)
    return True


def _disk_full(world: World, pick: int) -> bool:
    journal = world.system.journal
    journal.fill()
    span = _span(pick, 1, 40)
    world.disturbed(span)
    world.simulation.call_after(span, journal.free)
    return True


def _poison(world: World, pick: int) -> bool:
    if world.system.crashed:
        return False
    paths = [path for path in world.system.tree.cells if path != "/"]
    path = _one(paths, pick)
    if path is None:
        return False
    world.system.tell(path, Poison())
    return True


def _worker(world: World, pick: int) -> SimWorker | None:
    worker: SimWorker | None = _one(world.workers.live, pick)
    return worker


def _stream_breaks(world: World, pick: int) -> bool:
    worker = _worker(world, pick)
    if worker is None or worker.connection is None:
        return False
    worker.connection.close()
    return True


def _half_open(upwards: bool) -> Callable[[World, int], bool]:
    def strike_one(world: World, pick: int) -> bool:
        worker = _worker(world, pick)
        if worker is None or worker.connection is None:
            return False
        connection = worker.connection
        (connection.up if upwards else connection.down).held = True
        world.simulation.call_after(_span(pick, 1, 60), connection.close)
        return True

    return strike_one


def _cut_off(world: World, pick: int) -> bool:
    worker = _worker(world, pick)
    if worker is None:
        return False
    worker.cut_off_until = world.simulation.now + _span(pick, 1, 120)
    if worker.connection is not None:
        connection = worker.connection
        connection.up.held = connection.down.held = True
        world.simulation.call_after(_span(pick >> 4, 1, 30), connection.close)
    return True


def _worker_crashes(world: World, pick: int) -> bool:
    worker = _worker(world, pick)
    if worker is None:
        return False
    world.workers.exit(worker, "Error")
    return True


def _worker_starts_anew(world: World, pick: int) -> bool:
    worker = _worker(world, pick)
    if worker is None:
        return False
    worker.start_anew()
    return True


def _worker_hangs(world: World, pick: int) -> bool:
    worker = _worker(world, pick)
    if worker is None:
        return False
    worker.hung_until = world.simulation.now + _span(pick, 1, 90)
    return True


def _node_dies(world: World, pick: int) -> bool:
    name = _node(world, pick)
    return name is not None and world.cloud.kill_node(name)


def _node_lost(world: World, pick: int) -> bool:
    name = _node(world, pick)
    span = _span(pick, 1, 60)
    return name is not None and world.cloud.struck(world.cloud.coreweave.lose_node_for(name, span), span)


def _node_cordoned(world: World, pick: int) -> bool:
    name = _node(world, pick)
    span = _span(pick, 5, 60)
    return name is not None and world.cloud.struck(world.cloud.coreweave.cordon(name, span), span)


def _node_interrupted(world: World, pick: int) -> bool:
    name = _node(world, pick)
    return name is not None and world.cloud.struck(world.cloud.coreweave.interrupt(name))


def _node_triaged(world: World, pick: int) -> bool:
    name = _node(world, pick)
    return name is not None and world.cloud.struck(world.cloud.coreweave.triage(name))


def _node(world: World, pick: int) -> str | None:
    name: str | None = _one(list(world.cloud.nodes), pick)
    return name


def _history_lost(world: World, pick: int) -> bool:
    """The API server forgets its past; half of the time its connections break as well."""
    server = world.cloud.server
    server.forget()
    for connection in list(server.connections) if pick & 1 else ():
        connection.breaks()
    return True


def _pod_removed(world: World, pick: int) -> bool:
    name = _one(list(world.cloud.pods), pick)
    if name is None:
        return False
    world.cloud.delete_pod_from_outside(name)
    return True


def _pool_removed(world: World, pick: int) -> bool:
    name = _one([name for name in world.cloud.pools if name in world.fleet_checks.promised], pick)
    if name is None:
        return False
    world.cloud.delete_pool_from_outside(name)
    return True


def _around_a_restart(kind: str) -> Callable[[World, int], bool]:
    def strike_one(world: World, pick: int) -> bool:
        return world.restarts.close(pick) if kind == CLOSES else world.restarts.lose(kind, pick)

    return strike_one


_FAULTS: dict[str, Callable[[World, int], bool]] = {
    "controller crashes": _crash,
    "controller crashes between two steps": _crash_between,
    "controller stands still": _stand_still,
    "disk stalls": _disk_stalls,
    "disk full": _disk_full,
    "actor poisoned": _poison,
    "stream breaks": _stream_breaks,
    "stream half open upwards": _half_open(upwards=True),
    "stream half open downwards": _half_open(upwards=False),
    "worker cut off": _cut_off,
    "worker crashes": _worker_crashes,
    "worker starts anew": _worker_starts_anew,
    "worker hangs": _worker_hangs,
    "node dies": _node_dies,
    "node out of reach": _node_lost,
    "node cordoned for a while": _node_cordoned,
    "node interrupted": _node_interrupted,
    "node in triage": _node_triaged,
    "api forgets its past": _history_lost,
    "pod removed from outside": _pod_removed,
    "pool removed from outside": _pool_removed,
    **{kind: _around_a_restart(kind) for kind in RESTART_FAULTS},
}
