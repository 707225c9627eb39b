"""Watches a world while it runs, and gives its timeline.

Theory of operation. :func:`watch` hangs itself behind what a :class:`~iriscw_sims.world.World` shows anyway: each
message as an actor takes it, each record as it becomes durable, each note of the cloud, each fault with whom it hit,
and after each step a look at a few values. It adds nothing to the trace and draws nothing at random, so a run that is
watched is the run that was not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.swarm import FAULTS, RESTART_FAULTS, Plan
from iriscw_sims.timeline.cloud_story import WHO, CloudStory
from iriscw_sims.timeline.fleet_story import FleetStory
from iriscw_sims.timeline.job_story import JobStory
from iriscw_sims.timeline.model import CONTROLLER, DISK, INVARIANT, WORLD, Level, Timeline, Tone
from iriscw_sims.timeline.recorder import Recorder
from iriscw_sims.world import Run, World

UP, DOWN, STILL = "up", "down", "stands still"

_DISK_FAULTS = {"disk stalls": "stalled", "disk full": "full"}
"""Faults of the controller's disk, and what it is meanwhile."""

_IS_DOWN = "controller down"
"""What the world counts whenever the controller goes down, whatever made it."""

_STOPS_LATER = {
    "crash behind a request": 2 * SECOND,
    "controller closes": 25 * SECOND,
    "controller crashes between two steps": 300 * SECOND,
}
"""Faults that stop the controller some time after they came true, and how much later at most."""

_WAITS_AT_MOST = 150 * SECOND
"""How long a fault around restarts waits for its moment: a minute for a victim, and as long as the controller stands
still or takes to close."""

_STOPPERS_KEPT = 100
"""Faults that are kept to be searched for the one that stopped the controller: more than a plan has within minutes."""

_OF_PLAN = dict.fromkeys((*FAULTS, _IS_DOWN))


def replay(seed: int, plan: Plan | None = None) -> tuple[Run, Timeline]:
    """Run a seed, or a plan with it, and give what came of it with its timeline."""
    world = World(seed, plan)
    watcher = watch(world)
    run = world.run()
    return run, watcher.finish(run)


def watch(world: World, recorder: Recorder | None = None) -> Watcher:
    """Take down from now on what happens in a world that has not run yet; default: all of it that there is room for."""
    return Watcher(world, recorder if recorder is not None else Recorder())


class Watcher:
    """Tells a recorder of what happens in a world."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        self._fleet, self._jobs = FleetStory(recorder), JobStory(recorder)
        self._cloud = CloudStory(recorder)
        self._messages: dict[type, Callable[[int, Any], None]] = {**self._fleet.delivered, **self._jobs.delivered}
        self._records: dict[type, Callable[[int, str, Any], None]] = {**self._fleet.durable, **self._jobs.durable}
        self._stoppers: deque[tuple[int, str]] = deque(maxlen=_STOPPERS_KEPT)
        """Faults of the controller, with their times."""
        self._down = False
        self._stalled = 0
        self._healed = False
        self._disk: dict[str, int] = {}
        """Faults of the disk, and until when they last."""
        recorder.enter(world.simulation.now, CONTROLLER, UP, "the run begins")
        recorder.lane(DISK)
        self._seen, world.simulation.seen = world.simulation.seen, self._message
        disk: Any = world.system.disk
        self._written, disk.written = disk.written, self._record
        self._noted, world.cloud.noted = world.cloud.noted, self._note
        for at, name in world.log:  # while the world was made, when nobody was told whom they hit
            recorder.fault(at, name, planned=name in _OF_PLAN)
        world.observers.append(self._fault)
        world.simulation.checkers.insert(0, self._look)

    def finish(self, run: Run | None = None) -> Timeline:
        """Return the timeline, once the world has run; ``run`` is what came of it, None if it ended in an error."""
        world, now = self._world, self._world.simulation.now
        self._look()
        for text in world.violations:
            name, _, what = text.partition(": ")
            subject = f"{INVARIANT}/{name}"
            why = "the run ends here"
            self._recorder.event(now, subject, what, why, level=Level.LANDMARK, tone=Tone.BROKEN)
        if run is not None and not world.violations:
            why = "all jobs ended, the fleet is at its smallest, nothing is left over"
            self._recorder.event(now, WORLD, "at rest", why, level=Level.LANDMARK, tone=Tone.GOOD)
        return self._recorder.finish(now, world.violations, healed=world.healed_at if world.healed else None)

    # What the world shows

    def _message(self, cell: Cell, message: Any) -> None:
        if self._seen is not None:
            self._seen(cell, message)
        tell = self._messages.get(type(message))
        if tell is not None:
            tell(self._world.simulation.now, message)

    def _record(self, path: str, record: Any) -> None:
        if self._written is not None:
            self._written(path, record)
        now = self._world.simulation.now
        tell = self._records.get(type(record))
        if tell is not None:
            tell(now, path, record)

    def _note(self, *what: object) -> None:
        if self._noted is not None:
            self._noted(*what)
        if what[:1] == (WHO,):
            self._cloud.noted(self._world.simulation.now, what)

    # What is looked at after each step

    def _look(self) -> None:
        world = self._world
        if world.stalled != self._stalled:
            self._stood_still()
        if world.system.crashed is not self._down:
            self._down = not self._down
            self._controller()
        if self._disk and world.simulation.now >= max(self._disk.values()):
            self._disk_writes("its trouble is over")
        if world.healed and not self._healed:
            self._healed = True
            self._heal()

    def _fault(self, name: str, about: str, lasts: int) -> None:
        at = self._world.simulation.now
        level = Level.DETAIL if name == _IS_DOWN else Level.CHANGE
        on = self._cloud.subject(about)
        self._recorder.fault(at, name, on=on, lasts=lasts, planned=name in _OF_PLAN, level=level)
        if about == CONTROLLER or name in _STOPS_LATER or name in RESTART_FAULTS:
            self._stoppers.append((at, name))
        if name in _DISK_FAULTS:
            known, until = self._disk.get(name, 0), at + lasts
            self._disk[name] = min(known, until) if known > at else until  # who ends first, ends others of its kind
            self._recorder.enter(at, DISK, _DISK_FAULTS[name], f"fault: {name}")
            self._recorder.event(at, DISK, _DISK_FAULTS[name], f"fault: {name}", tone=Tone.BAD)

    def _disk_writes(self, why: str) -> None:
        self._disk.clear()
        if self._recorder.leave(self._world.simulation.now, DISK, why):
            self._recorder.event(self._world.simulation.now, DISK, "writes again", why)

    def _controller(self) -> None:
        now, recorder = self._world.simulation.now, self._recorder
        if self._down:
            why = self._what_stopped_it(now)
            recorder.enter(now, CONTROLLER, DOWN, why)
            recorder.event(now, CONTROLLER, DOWN, why, level=Level.LANDMARK, tone=Tone.BAD)
            self._disk_writes("the controller that waited for it is down")
            return
        self._fleet.new_controller()
        why = "it is started again, with what is on its disk"
        recorder.enter(now, CONTROLLER, UP, why)
        recorder.event(now, CONTROLLER, UP, why, level=Level.LANDMARK, tone=Tone.GOOD)

    def _what_stopped_it(self, now: int) -> str:
        """Say which fault stopped the controller: one of this very moment, or else the latest that may have."""
        names = [name for at, name in self._stoppers if at == now]
        if names:
            return f"fault: {', '.join(dict.fromkeys(names))}"
        ago = [(now - at, name) for at, name in self._stoppers if now - at <= _STOPS_LATER.get(name, 0)]
        if not ago:  # a trap is counted when it springs, and its setting stops the controller
            planned = [(now - each.at, each.kind) for each in self._world.plan.faults if each.kind in RESTART_FAULTS]
            ago = [(lag, kind) for lag, kind in planned if 0 <= lag <= _WAITS_AT_MOST]
        if not ago:
            return "it was stopped"
        lag, name = min(ago)
        return f"fault: {name}, of {lag / SECOND:.1f} s before"

    def _stood_still(self) -> None:
        # The attentive clock counts a second of each stall, and so does World.stalled.
        now, lasted = self._world.simulation.now, self._world.stalled - self._stalled + SECOND
        self._stalled = self._world.stalled
        began = max(0, now - lasted)
        why = f"its process got no time for {lasted // SECOND} s"
        if self._recorder.enter(began, CONTROLLER, STILL, why):
            self._recorder.event(began, CONTROLLER, STILL, why, level=Level.LANDMARK, tone=Tone.BAD)
            self._recorder.enter(now, CONTROLLER, UP, "it goes on")
            self._recorder.event(now, CONTROLLER, "goes on", why, level=Level.LANDMARK)

    def _heal(self) -> None:
        self._disk_writes("all faults are ended")
        why = "from here on the world must come to rest"
        self._recorder.event(
            self._world.healed_at, WORLD, "all faults are ended", why, level=Level.LANDMARK, tone=Tone.GOOD
        )
