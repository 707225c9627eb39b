"""An agent over the simulated machine of ``tests/freeze``: its ports are stepped on the event loop, nothing is real but
the journal, the tree, the socket and the folders.
"""

import contextlib
import inspect
import sys
from pathlib import Path

import anyio
import anyio.lowlevel

sys.path.insert(0, str(Path(__file__).parents[1] / "freeze"))  # for freeze_world

from freeze_world import (
    SimArtifacts,
    SimCriu,
    SimCuda,
    SimFolders,
    SimGpus,
    SimHooks,
    SimProcesses,
    World,
    one_by_one,
)

from iriscw.agent.client import AgentCaller
from iriscw.agent.daemon import Agent, AgentSettings
from iriscw.agent.local import Machine
from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.freeze.drivers.desk import Desk
from iriscw.freeze.model import FreezePlan, TargetGone, ThawPlan

PATIENCE_S = 60.0


class Stepped:
    """A port of the simulated machine whose coroutines an event loop may run, and cancel."""

    def __init__(self, world, port):
        self.world, self.port = world, port

    def __getattr__(self, name):
        found = getattr(self.port, name)
        return self.world.stepped(found) if inspect.iscoroutinefunction(found) else found


class StepWorld(World):
    """A machine whose steps are taken on an event loop. ``gate`` holds it before the step with this name."""

    def __init__(self, **words):
        super().__init__(**words)
        self.held_at = ""
        self.arrived = anyio.Event()
        self.goes_on = anyio.Event()

    def hold(self, method):
        """Stop before the call of this name, until :meth:`let_go`."""
        self.held_at, self.arrived, self.goes_on = method, anyio.Event(), anyio.Event()

    def let_go(self):
        """Go on."""
        self.held_at = ""
        self.goes_on.set()

    def stepped(self, function):
        """Return a function of a port as one for an event loop."""

        async def call(*args, **words):
            if function.__name__ == self.held_at:
                self.arrived.set()
                await self.goes_on.wait()
            steps = function(*args, **words)
            while True:
                try:
                    steps.send(None)
                except StopIteration as end:
                    held = type(end.value).__name__ == "Held"
                    return Stepped(self, end.value) if held else end.value
                self.tick()
                try:
                    await anyio.lowlevel.checkpoint()
                except BaseException as cut:
                    with contextlib.suppress(type(cut), StopIteration):
                        steps.throw(cut)
                    raise

        return call


class Processes(SimProcesses):
    """Processes, which a door looks for by number."""

    async def identify(self, pid):
        """Say who has this number."""
        for process in self.world.living():
            if process.identity.pid == pid:
                return process.identity
        raise TargetGone(f"there is no process {pid}")


class SimMachine(Machine):
    """The simulated machine, as an agent has it."""

    def desk(self, report):
        """Return what carries out one operation."""
        world = self.processes.world
        ports = (self.processes, self.criu, self.cuda, self.gpus, self.hooks)
        artifacts = Stepped(world, SimArtifacts(world, 1))
        return Desk(*ports, artifacts, report, one_by_one, Stepped(world, SimFolders(world, 1)))


def machine_of(world, folders=()):
    """Return the ports of a simulated machine, with real tiers beside it for what is listed."""
    kinds = (Processes, SimCriu, SimCuda, SimGpus, SimHooks)
    ports = [Stepped(world, kind(world, 1)) for kind in kinds]
    ram = Folders("ram", Path("/nonexistent"), 0)  # where the simulated machine puts what it freezes
    return SimMachine(*ports, Tiers({each.name: each for each in (ram, *folders)}))


@contextlib.asynccontextmanager
async def agent_of(folder, world, *, folders=(), **settings):
    """Run an agent, and give it with a caller at its door."""
    chosen = AgentSettings(state=folder / "state", socket=folder / "s" / "agent.sock", **settings)
    async with Agent(chosen, machine_of(world, folders)) as agent, AgentCaller(chosen.socket) as caller:
        yield agent, caller


def freeze_plan(world, name="ck-1", **words):
    """Return the plan of a freeze of the machine's tree."""
    return FreezePlan(name, world.source[0], "ram", **words)


def thaw_plan(artifact):
    """Return the plan of a thaw."""
    return ThawPlan("th-1", artifact)


async def last(views):
    """Return the last of some views."""
    found = None
    async for view in views:
        found = view
    return found


__all__ = ["PATIENCE_S", "StepWorld", "agent_of", "freeze_plan", "last", "machine_of", "thaw_plan"]
