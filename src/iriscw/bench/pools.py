"""What slices cost the controller and the API, at any number of pools: ``iriscw bench pools``.

The whole world runs: the real fleet, the driver's own logic, the simulated CoreWeave behind a simulated API server, and
workers; nothing fails, and no jobs run. A policy says how many slices there should be, so that all of them come, stay
and go when it is wanted. Counts are the same in every run. CPU time is that of the thread within the controller's
decisions; the world's own is left out, and so are checks.

*Requests* are what the driver sends, the opening of watches and what they bring aside. The controller's own beside its
drivers are not part of that world, so they are counted by what they are made for: the Secret of each pod, made and
removed, and the Events that are told on pools. An *event*, in small letters, is an item that a watch brings to
``/fleet``.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from iriscw.bench.plane import Figures, MeasurementFailed
from iriscw.cloud.effects import CreateNodePool, CreatePod, DeletePod
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_GROUP, Attributes, Capacity
from iriscw.fleet.groups.experience import SHORT_LIFE
from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import GroupConfig, SliceState
from iriscw.fleet.policy import GroupView
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND, ActorPath, Arrived
from iriscw_sims.load import BUSY
from iriscw_sims.pace import TIMING
from iriscw_sims.swarm import GIB, Plan
from iriscw_sims.world import World

GOALS: Figures = {"requests_per_pool_life": 12}
"""What a slice may ask of the API from its first request to its last."""

POOLS_PER_GROUP = 50
"""Slices of one scale group: it asks for 16 a minute, so that many come in two minutes and a half."""

GROUP_PREFIX = "pools"

WARM_UP_S = 60.0
"""Virtual seconds until a controller of an empty fleet is at rest."""

LOST_S = 10.0
"""Virtual seconds in which a loss is seen and answered; what CoreWeave does of its own takes one."""

FLEET = ActorPath("/fleet")

PATIENCE_S = 3_600.0
"""Virtual seconds after which something that should have come has not."""

_LEAVING = (SliceState.DRAINING, SliceState.DELETING)

LOOK_S = 1.0
"""Virtual seconds between two looks whether it has."""

OURS = tuple(
    tracemalloc.Filter(True, f"*/iriscw/{part}/*") for part in ("fleet", "jobs", "runtime", "cloud", "journal")
)
"""Memory of the controller: its actors, what its driver holds of the cluster, and entries of its journal."""


@attrs.define
class Tally:
    """What was counted since the last :meth:`Pools.begin`."""

    decisions: int = 0
    events: int = 0
    messages: int = 0
    """From actor to actor, and from outside."""
    cpu_s: float = 0.0
    most_messages: int = 0
    """That one decision told."""
    requests: Counter[str] = attrs.field(factory=Counter)
    """By method and kind."""


class Pools:
    """A fleet whose slices come and go as it is told.

    Args:
        pools: how many slices there may be.
        per_group: of one scale group.
    """

    def __init__(self, pools: int, per_group: int = POOLS_PER_GROUP) -> None:
        self.pools = pools
        self.wanted = 0.0
        """Which part of them there should be."""
        sizes = [min(per_group, pools - first) for first in range(0, pools, per_group)]
        groups = tuple(_group(f"{GROUP_PREFIX}{number}", size) for number, size in enumerate(sizes))
        self.world = World(1, Plan(1, groups, (), (), (), 0), BUSY, policy=self._policy)
        simulation: Any = self.world.simulation
        simulation.checkers.clear()
        simulation.seen = self._seen
        self.tally = Tally()
        self.performed: list[tuple[Any, int, int]] = []
        """What the controller asked for, with the decisions since the last event, and when in virtual time."""
        self._since_event = 0
        self._step: Callable[[], bool] = simulation.step
        simulation.step = self._timed
        system: Any = self.world.system
        perform, send = system.perform, self.world.cloud.server.send

        def performed(operation: Any) -> None:
            self.performed.append((operation.effect, self._since_event, simulation.now))
            perform(operation)

        def sent(request: ApiRequest, answered: Any) -> None:
            self.tally.requests[f"{request.method} {_kind(request.path)}"] += 1
            send(request, answered)

        system.perform = performed
        server: Any = self.world.cloud.server
        server.send = sent
        simulation.advance(WARM_UP_S)  # orphans that a simulated cloud begins with are gone

    def _policy(self, view: GroupView) -> int:
        return round(self.wanted * view.max_slices)

    def _seen(self, cell: Cell, message: Any) -> None:
        self.tally.decisions += 1
        self._since_event += 1
        if type(message) is Arrived and cell.path == FLEET:
            self.tally.events += 1
            self._since_event = 0

    def _timed(self) -> bool:
        tree, dispatcher = self.world.system.tree, self.world.simulation.dispatcher
        if not dispatcher.ready:  # an event of the world's, or nothing
            return self._step()
        before, began = tree.sent, time.thread_time()
        stepped = self._step()
        self.tally.cpu_s += time.thread_time() - began
        self.tally.messages += tree.sent - before
        self.tally.most_messages = max(self.tally.most_messages, tree.sent - before)
        return stepped

    def begin(self) -> Tally:
        """Begin to count anew; give what will be counted."""
        gc.collect()
        self.tally, self.performed = Tally(), []
        return self.tally

    def ready(self) -> int:
        """Return how many slices are ready, as the fleet shows it."""
        rows = self.world.system.state("/fleet").rows.values()
        return sum(row.state is SliceState.READY for row in rows)

    def names(self) -> list[str]:
        """Return the names of the pools of the fleet that exist."""
        return [name for name in self.world.cloud.pools if name.startswith(f"iris-{GROUP_PREFIX}")]

    def after_event(self, kind: type) -> int:
        """Return how many decisions the first effect of a kind came after the event before it.

        Raises:
            MeasurementFailed: there was none.
        """
        for effect, since_event, _ in self.performed:
            if type(effect) is kind:
                return since_event
        raise MeasurementFailed(f"no {kind.__name__} was asked for")

    def rest(self, of: float | None = None) -> None:
        """Let time pass until as many slices are ready as are wanted, there is no other, and nothing is asked.

        Raises:
            MeasurementFailed: it does not come to that.
        """
        if of is not None:
            self.wanted = of
        wanted = round(self.wanted * self.pools)
        spent = 0.0
        while not (self.ready() == len(self.names()) == wanted and not self.world.cloud.in_flight):
            if spent >= PATIENCE_S:
                raise MeasurementFailed(f"{self.ready()} slices of {wanted} are ready, {len(self.names())} are there")
            self.world.simulation.advance(LOOK_S)
            spent += LOOK_S


def _kind(path: str) -> str:
    """Return the plural of what a request is about."""
    parts = path.strip("/").split("/")
    known = ("nodepools", "nodes", "pods", "secrets", "events")
    return next((part for part in parts if part in known), "other")


def _group(name: str, most: int) -> GroupConfig:
    return GroupConfig(
        name=name,
        per_worker=Capacity(4000, 16 * GIB),
        attributes=Attributes({"zone": "z0", "device-type": "cpu"}),
        instance_type="cd-gp-i64",
        max_slices=most,
        timing=TIMING,
    )


def life(pools: int) -> list[Figures]:
    """Have all slices come, stay, lose nothing, and go; then come, and the controller start anew, and lose all at once.

    Gives the figures of their lives, of the restart and of the loss.
    """
    fleet = Pools(pools)
    booting = fleet.begin()
    fleet.rest(1.0)
    going = fleet.begin()
    fleet.rest(0.0)
    told = sum(_is_told(each) for each in fleet.world.system.events)
    requests = booting.requests + going.requests
    requests["POST secrets"] = requests["DELETE secrets"] = requests["POST pods"]
    requests["POST events"] = told
    lives: Figures = {
        "pools": pools,
        "requests_per_pool_life": requests.total() / pools,
        **{f"requests_{name.lower().replace(' ', '_')}": count / pools for name, count in sorted(requests.items())},
        "events_per_pool_life": (booting.events + going.events) / pools,
        "decisions_per_event": (booting.decisions + going.decisions) / (booting.events + going.events),
        "messages_per_event": (booting.messages + going.messages) / (booting.events + going.events),
        "controller_cpu_us_per_event": 1e6 * (booting.cpu_s + going.cpu_s) / (booting.events + going.events),
        "most_messages_of_a_decision": max(booting.most_messages, going.most_messages),
    }
    fleet.rest(1.0)
    return [lives, restart(fleet), loss(fleet)]


def _is_told(event: Any) -> bool:
    """Whether the controller writes an Event of it on the pool, in a life without trouble."""
    if type(event) is not SliceChanged:
        return False
    state, was = event.row.state, event.was
    ready = state is SliceState.READY and was is not SliceState.READY
    return ready or (state in _LEAVING and was not in _LEAVING)


def restart(fleet: Pools) -> Figures:
    """Kill the controller of a fleet that is at rest, and start it again: until all slices are ready again."""
    world = fleet.world
    tally = fleet.begin()
    world.crash(1)
    world.simulation.advance(2.0)
    fleet.rest()
    return {
        "pools": fleet.pools,
        "decisions_per_pool": tally.decisions / fleet.pools,
        "requests": tally.requests.total(),
        "requests_that_change_something": sum(n for what, n in tally.requests.items() if not what.startswith("GET")),
        "most_messages_of_a_decision": tally.most_messages,
        "controller_cpu_ms_per_pool": 1e3 * tally.cpu_s / fleet.pools,
    }


def loss(fleet: Pools, lost: int = 500) -> Figures:
    """Have pools go at once, from outside: until the first replacements are asked for, and until all are there.

    A group that lost slices asks for no other before its pause is over. How long after that it does is what counts.
    """
    world = fleet.world
    groups = world.plan.groups
    world.simulation.advance(SHORT_LIFE / SECOND)  # slices that live for less are no loss: their group has to rest
    names = fleet.names()[:lost]
    tally = fleet.begin()
    for name in names:
        world.cloud.delete_pool_from_outside(name)
    paused: dict[str, int] = {}
    first: dict[str, int] = {}
    hit = dict.fromkeys(name.split("-")[1] for name in names)
    spent = 0.0
    while len(first) < len(hit):
        if spent >= PATIENCE_S:
            raise MeasurementFailed(f"{len(first)} of {len(hit)} groups have asked for another slice")
        world.simulation.advance(LOOK_S)
        spent += LOOK_S
        for group in groups:
            closure = world.system.state(f"/fleet/{group.name}").sight.closure
            if closure is not None and closure.until is not None and group.name not in paused:
                paused[group.name] = closure.until
        for effect, _, at in fleet.performed:
            if type(effect) is CreateNodePool:
                first.setdefault(effect.spec.labels[LABEL_GROUP], at)
    late = [at - paused[name] for name, at in first.items()]
    asked = tally.requests.total()
    fleet.rest()
    return {
        "pools": fleet.pools,
        "lost": len(names),
        "groups_hit": len(hit),
        "decisions_per_lost": tally.decisions / len(names),
        "requests_until_first_replacements": asked,
        "latest_first_replacement_after_its_pause_s": max(late) / SECOND,
        "most_messages_of_a_decision": tally.most_messages,
        "controller_cpu_ms_per_lost": 1e3 * tally.cpu_s / len(names),
    }


def reactions() -> Figures:
    """Count the decisions from what a watch brings to what follows from it, in a fleet of a single slice."""
    fleet = Pools(1)
    fleet.begin()
    fleet.rest(1.0)
    made = fleet.after_event(CreatePod)
    fleet.begin()
    fleet.world.cloud.delete_pool_from_outside(*fleet.names())
    fleet.world.simulation.advance(LOST_S)
    return {
        "pools": 1,
        "decisions_from_ready_nodes_to_pod": made,
        "decisions_from_lost_pool_to_its_deletion": fleet.after_event(DeletePod),
    }


def memory(pools: int) -> Figures:
    """Return what each ready slice takes in the controller: actors, and bytes that it allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        fleet = Pools(pools)
        empty, actors = _held(), len(fleet.world.system.tree.cells)
        fleet.rest(1.0)
        full, more = _held(), len(fleet.world.system.tree.cells) - actors
    finally:
        tracemalloc.stop()
    return {"pools": pools, "actors_per_pool": more / pools, "bytes_per_pool": (full - empty) / pools}


def _held() -> int:
    gc.collect()
    kept = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(each.size for each in kept.statistics("filename"))


@attrs.frozen
class PoolSizes:
    """At which numbers of pools the figures are taken.

    Args:
        lives: from small to large.
        memory: likewise; allocations are traced, which takes four times as long.
    """

    lives: tuple[int, ...] = (50, 500, 5_000)
    memory: tuple[int, ...] = (50, 500)


FULL = PoolSizes()
QUICK = PoolSizes(lives=(10, 50), memory=(10,))


def run(progress: Callable[[str], None], sizes: PoolSizes = FULL) -> dict[str, Any]:
    """Measure everything and give the report of ``iriscw bench pools -o json``.

    Raises:
        MeasurementFailed: slices did not come, or did not go.
    """
    figures: dict[str, list[Figures]] = {"life": [], "restart": [], "loss": [], "reactions": [], "memory": []}
    for pools in sizes.lives:
        progress(f"{pools} pools")
        for name, found in zip(("life", "restart", "loss"), life(pools), strict=True):
            figures[name].append(found)
    progress("reactions")
    figures["reactions"].append(reactions())
    for pools in sizes.memory:
        progress(f"memory of {pools} pools")
        figures["memory"].append(memory(pools))
    return {"figures": figures, "goals": GOALS}
