"""Faults at a moment: each takes its victim out of the world as it is then.

A fault without a victim does nothing and does not count as fired; one that has one says who it was, and for how long it
is in trouble. ``pick`` decides everything else, so that a plan that is run again does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.apiserver import KEEPALIVE
from iriscw_sims.outages import REVOKED
from iriscw_sims.restarts import CLOSES, Poison
from iriscw_sims.strangers import COPY, FOREIGN
from iriscw_sims.swarm import LOST_AMID_A_MOVE, RESTART_FAULTS, STOPS_AMID_A_MOVE, SUSPENDS, Fault

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

CONTROLLER, DISK, API = "controller", "disk", "api"


@attrs.frozen
class Hit:
    """Whom a fault hit.

    Attributes:
        about: ``worker/NAME``, ``node/NAME``, ``pod/NAME``, ``pool/NAME``, the path of an actor, or one of the above.
        lasts: For how long, ns; 0 if that is up to others, or has no end.
    """

    about: str
    lasts: int = 0


Strike: TypeAlias = Callable[["World", int], Hit | None]


def strike(world: World, fault: Fault) -> None:
    """Let a fault happen, unless all is healed by now."""
    hit = None if world.healed else _FAULTS[fault.kind](world, fault.pick)
    if hit is not None:
        world.fired(fault.kind, hit.about, hit.lasts)


def _one(things: Sequence[Any], pick: int) -> Any:
    return things[pick % len(things)] if things else None


def _span(pick: int, least: int, most: int) -> int:
    """Return a duration between two numbers of seconds, ns."""
    return (least + (pick >> 8) % (most - least + 1)) * SECOND


def _crash(world: World, pick: int) -> Hit | None:
    down_s = 1 + (pick >> 8) % 60
    return Hit(CONTROLLER, down_s * SECOND) if world.crash(down_s) else None


def _crash_between(world: World, pick: int) -> Hit:
    world.crash_at_step = world.simulation.steps + 1 + pick % 400
    return Hit(CONTROLLER)


def _stand_still(world: World, pick: int) -> Hit:
    world.stall_next = _span(pick, 5, 100)
    return Hit(CONTROLLER, world.stall_next)


def _disk_stalls(world: World, pick: int) -> Hit:
    journal = world.system.journal
    journal.stall()
    span = _span(pick, 1, 40)
    world.disturbed(span)
    world.simulation.call_after(span, journal.resume)
    return Hit(DISK, span)


def _disk_full(world: World, pick: int) -> Hit:
    journal = world.system.journal
    journal.fill()
    span = _span(pick, 1, 40)
    world.disturbed(span)
    world.simulation.call_after(span, journal.free)
    return Hit(DISK, span)


def _poison(world: World, pick: int) -> Hit | None:
    if world.system.crashed:
        return None
    paths = [path for path in world.system.tree.cells if path != "/"]
    path = _one(paths, pick)
    if path is None:
        return None
    world.system.tell(path, Poison())
    return Hit(path)


def _worker(world: World, pick: int) -> SimWorker | None:
    worker: SimWorker | None = _one(world.workers.live, pick)
    return worker


def _hit(worker: SimWorker, lasts: int = 0) -> Hit:
    return Hit(f"worker/{worker.worker_id}", lasts)


def _stream_breaks(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None or worker.connection is None:
        return None
    worker.connection.close()
    return _hit(worker)


def _half_open(upwards: bool) -> Strike:
    def strike_one(world: World, pick: int) -> Hit | None:
        worker = _worker(world, pick)
        if worker is None or worker.connection is None:
            return None
        connection = worker.connection
        (connection.up if upwards else connection.down).held = True
        span = _span(pick, 1, 60)
        world.simulation.call_after(span, connection.close)
        return _hit(worker, span)

    return strike_one


def _cut_off(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None:
        return None
    span = _span(pick, 1, 120)
    worker.cut_off_until = world.simulation.now + span
    if worker.connection is not None:
        connection = worker.connection
        connection.up.held = connection.down.held = True
        world.simulation.call_after(_span(pick >> 4, 1, 30), connection.close)
    return _hit(worker, span)


def _worker_crashes(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None:
        return None
    world.workers.exit(worker, "Error")
    return _hit(worker)


def _worker_starts_anew(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None:
        return None
    worker.start_anew()
    return _hit(worker)


def _worker_hangs(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None:
        return None
    span = _span(pick, 1, 90)
    worker.hung_until = world.simulation.now + span
    return _hit(worker, span)


def _on_a_node(act: Callable[[World, str, int], bool], least: int = 0, most: int = 0) -> Strike:
    """Return a fault of one node, which lasts between so many seconds; without them it has no end of its own."""

    def strike_one(world: World, pick: int) -> Hit | None:
        name = _one(list(world.cloud.nodes), pick)
        span = _span(pick, least, most) if most else 0
        return Hit(f"node/{name}", span) if name is not None and act(world, name, span) else None

    return strike_one


def _node_dies(world: World, name: str, _span: int) -> bool:
    return world.cloud.kill_node(name)


def _node_lost(world: World, name: str, span: int) -> bool:
    return world.cloud.struck(world.cloud.coreweave.lose_node_for(name, span), span)


def _node_cordoned(world: World, name: str, span: int) -> bool:
    return world.cloud.struck(world.cloud.coreweave.cordon(name, span), span)


def _node_interrupted(world: World, name: str, _span: int) -> bool:
    return world.cloud.struck(world.cloud.coreweave.interrupt(name))


def _node_triaged(world: World, name: str, _span: int) -> bool:
    return world.cloud.struck(world.cloud.coreweave.triage(name))


def _node_unready(world: World, name: str, span: int) -> bool:
    return world.cloud.struck(world.cloud.coreweave.unready(name, span), span)


def _node_fills(*, memory: bool) -> Callable[[World, str, int], bool]:
    def fill(world: World, name: str, span: int) -> bool:
        return world.cloud.struck(world.cloud.coreweave.fill(name, span, memory=memory), span)

    return fill


def _leap(pick: int) -> int:
    """Return by how much a clock jumps, ns: up to ten minutes, ahead or back."""
    return _span(pick, 1, 600) * (1 if pick & 1 else -1)


def _node_clock_jumps(world: World, pick: int) -> Hit | None:
    name = _one(list(world.cloud.nodes), pick >> 1)
    if name is None or not world.cloud.struck(world.cloud.coreweave.jump_clock(name, _leap(pick))):
        return None
    return Hit(f"node/{name}")


def _controllers_clock_jumps(world: World, pick: int) -> Hit:
    world.cloud.coreweave.jump_own_clock(_leap(pick))
    return Hit(API)


def _worker_out_of_memory(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    pod = world.cloud.pods.get(worker.pod_name) if worker is not None else None
    if worker is None or pod is None or not world.cloud.struck(world.cloud.coreweave.exhaust(pod.uid)):
        return None
    return _hit(worker)


def _scratch_full(world: World, pick: int) -> Hit | None:
    worker = _worker(world, pick)
    if worker is None:
        return None
    span = _span(pick, 5, 60)
    worker.fills.fill_scratch(span)
    return _hit(worker, span)


def _video_memory_held(world: World, pick: int) -> Hit | None:
    worker = _one([each for each in world.workers.live if each.capacity.gpu_count], pick)
    if worker is None:
        return None
    span = _span(pick, 5, 60)
    worker.fills.hold_video_memory(span)
    return _hit(worker, span)


def _history_lost(world: World, pick: int) -> Hit:
    """The API server forgets its past; half of the time its connections break as well."""
    server = world.cloud.server
    server.forget()
    for connection in list(server.connections) if pick & 1 else ():
        connection.breaks()
    return Hit(API)


def _api_away(world: World, pick: int) -> Hit:
    """Nothing gets through: by pick it hangs, or is refused at once."""
    span = _span(pick, 5, 150)
    world.cloud.server.outages.go_away(world.cloud.server, span, hangs=bool(pick & 1))
    return _disturbs(world, span)


def _no_writes(world: World, pick: int) -> Hit:
    span = _span(pick, 5, 150)
    world.cloud.server.outages.take_no_writes(span)
    return _disturbs(world, span)


def _expired(world: World, pick: int) -> Hit:
    span = _span(pick, 5, 150)
    world.cloud.server.outages.expire(span)
    return _disturbs(world, span)


def _revoked(world: World, pick: int) -> Hit:
    """By pick, of one resource, what reads, what writes, or both."""
    span, resource = _span(pick, 5, 150), _one(("nodepools", "nodes", "pods"), pick)
    world.cloud.server.outages.revoke(resource, _one(REVOKED, pick >> 4), span)
    return _disturbs(world, span)


def _disturbs(world: World, span: int) -> Hit:
    world.disturbed(span + KEEPALIVE)
    return Hit(API, span)


def _pool_replaced(world: World, pick: int) -> Hit | None:
    """A pool is removed, and somebody else takes its name."""
    name = _one([name for name in world.cloud.pools if name in world.fleet_checks.promised], pick)
    if name is None:
        return None
    world.cloud.strangers.inherits(name, _one((*FOREIGN, COPY), pick >> 4))
    world.cloud.delete_pool_from_outside(name)
    return Hit(f"pool/{name}")


def _pod_removed(world: World, pick: int) -> Hit | None:
    name = _one(list(world.cloud.pods), pick)
    if name is None:
        return None
    world.cloud.delete_pod_from_outside(name)
    return Hit(f"pod/{name}")


def _pool_removed(world: World, pick: int) -> Hit | None:
    name = _one([name for name in world.cloud.pools if name in world.fleet_checks.promised], pick)
    if name is None:
        return None
    world.cloud.delete_pool_from_outside(name)
    return Hit(f"pool/{name}")


def _around_a_restart(kind: str) -> Strike:
    def strike_one(world: World, pick: int) -> Hit | None:
        struck = world.restarts.close(pick) if kind == CLOSES else world.restarts.lose(kind, pick)
        return Hit(CONTROLLER) if struck else None

    return strike_one


def _suspends(world: World, pick: int) -> None:
    world.moving.suspend(pick)  # which tells when it takes place


def _lost_amid_a_move(world: World, pick: int) -> None:
    world.moving.lose(pick)


def _stops_amid_a_move(world: World, pick: int) -> None:
    world.move_checks.stops.append(pick % 30)


_FAULTS: dict[str, Strike] = {
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
    "node dies": _on_a_node(_node_dies),
    "node out of reach": _on_a_node(_node_lost, 1, 60),
    "node cordoned for a while": _on_a_node(_node_cordoned, 5, 60),
    "node interrupted": _on_a_node(_node_interrupted),
    "node in triage": _on_a_node(_node_triaged),
    "api forgets its past": _history_lost,
    "pod removed from outside": _pod_removed,
    "pool removed from outside": _pool_removed,
    "pool replaced by a stranger": _pool_replaced,
    "api out of reach": _api_away,
    "api takes no writes": _no_writes,
    "credentials expire": _expired,
    "right revoked": _revoked,
    **{kind: _around_a_restart(kind) for kind in RESTART_FAULTS},
    "node clock jumps": _node_clock_jumps,
    "controllers' clock jumps": _controllers_clock_jumps,
    "node short of memory": _on_a_node(_node_fills(memory=True), 5, 60),
    "node short of disk": _on_a_node(_node_fills(memory=False), 5, 60),
    "node not ready": _on_a_node(_node_unready, 1, 60),
    "worker out of memory": _worker_out_of_memory,
    "scratch disk full": _scratch_full,
    "video memory held": _video_memory_held,
    SUSPENDS: _suspends,
    LOST_AMID_A_MOVE: _lost_amid_a_move,
    STOPS_AMID_A_MOVE: _stops_amid_a_move,
}
