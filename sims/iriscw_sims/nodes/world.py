"""The simulated world of nodes: the agent's real tree on machines that fail, and everybody who uses them.

Theory of operation. As the world of a fleet (:mod:`iriscw_sims.world`) it runs a plan in two phases. In the first
faults happen, and only safety is asked for: after every step no invariant may be broken. Then everything is healed, and
within a bound nothing may be owed, locked, held, reserved or pinned, and each tree runs, or is whole as an artifact.

The checks (:mod:`iriscw_sims.nodes.checks`) read the machines' truth and the records that are on the disk.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.freeze.model import FreezePhase, NvmlGpu, Outcome
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.checks import InvariantBroken, settled
from iriscw.testing.simulation import Livelock, Simulation
from iriscw_sims.nodes.checks import Checks
from iriscw_sims.nodes.contract import FLAWS
from iriscw_sims.nodes.faults import KINDS, strike
from iriscw_sims.nodes.machine import MIB, Machine
from iriscw_sims.nodes.node import Node
from iriscw_sims.nodes.shelves import Shelf
from iriscw_sims.nodes.swarm import AT_A_STEP, NodesPlan, draw_nodes_plan
from iriscw_sims.nodes.users import Users
from iriscw_sims.plans import check_plan
from iriscw_sims.stage import Stage
from iriscw_sims.world import Run

HEARTBEAT = 100 * MILLISECOND
"""Between two ticks of a machine on which nobody does anything."""

REST = 1 * SECOND
LOOKS = 3

CONVERGE = 3600 * SECOND
"""How long the healed world may take: a call that hung just then has a deadline of minutes, and what is undone or
killed after it is tried some times."""

BUSY = 30_000
"""Steps in which the healed world has to come to rest: it takes some hundred, and what spins has no end."""

SETTLED_EVERY = 32
"""Steps between two looks whether all that does not run is some operation's."""

RATES_BYTES_PER_S = {"dump": 2 << 30, "restore": 2 << 30, "checkpoint": 8 << 30, "cuda_restore": 8 << 30}
DISK_BYTES_PER_S = 1 << 30
VRAM_MIB = 81_920


class Luck:
    """What goes wrong on one machine, and how long things take there."""

    def __init__(self, world: NodesWorld, name: str) -> None:
        self.world, self.name = world, name
        self.checks: Checks | None = None
        self.slow = 1
        """How many times slower its disks are."""
        self._pace = world.stream(f"pace of {name}")

    def fault(self, method: str, about: str) -> Exception | None:
        """Let a call fail, if one of its flaws comes true."""
        for flaw in FLAWS[method]:
            if self.world.chance(flaw.name, f"operation/{about}"):
                error = flaw.error(method)
                assert self.checks is not None
                self.checks.failed(about, method, error)
                return error
        return None

    def lasts(self, method: str, size_bytes: int) -> int:
        """Draw how long a step takes, ns."""
        if method.endswith("hangs"):
            return size_bytes  # until its deadline, which is given here
        base = self._pace.randrange(100_000, 5_000_000)
        slow = self.slow if method in ("disk", "seal", "verify", "dump", "publish", "discard") else 1
        return slow * (base + size_bytes * SECOND // RATES_BYTES_PER_S.get(method, DISK_BYTES_PER_S))

    def may(self, name: str, about: str) -> bool:
        """Let one of the chances come true."""
        return self.world.chance(name, about)

    def violate(self, invariant: str, what: str) -> None:
        """See the world."""
        self.world.violate(invariant, what)


class NodesWorld(Stage):
    """One world of one seed.

    Args:
        seed: of everything.
        plan: what to run. Default: what the seed draws.

    Raises:
        PlanInvalid: a value in the plan cannot be.
    """

    def __init__(self, seed: int, plan: NodesPlan | None = None) -> None:
        if plan is not None:
            check_plan(plan)
        self.plan = plan if plan is not None else draw_nodes_plan(seed)
        super().__init__(seed, self.plan.rates)
        self.simulation = Simulation(seed)
        self.simulation.seen = self._delivered
        self.healed_at = 0
        self.kill_next: Node | None = None
        """Whose agent is killed after this step."""
        self.watchers: list[Callable[[str], None]] = []
        """Told of points that are reached: phases, outcomes; see :mod:`iriscw_sims.nodes.coverage`."""
        self._look_again = 0
        self.nodes = [self._node(number) for number in range(len(self.plan.machines))]
        self.users = Users(self)
        self.simulation.checkers.append(self.check)
        self.simulation.call_after(HEARTBEAT, self._beat)
        for fault in self.plan.faults:
            self.simulation.call_after(fault.at, strike, self, fault)

    def _node(self, number: int) -> Node:
        plan = self.plan.machines[number]
        name = f"node-{number}"
        luck = Luck(self, name)
        checks = Checks(luck.violate)
        gpus = tuple(
            NvmlGpu(f"GPU-{index}", "H200", index, VRAM_MIB * MIB, 0) for index in range(len(self.plan.workloads))
        )
        machine = Machine(
            luck,
            f"{name}-boot-0",
            node=name,
            gpus=gpus,
            memory_bytes=plan.memory_mib * MIB,
            limit_bytes=plan.agent_mib * MIB or None,
            group_bytes=plan.workloads_mib * MIB or None,
            userfaultfd=plan.userfaultfd,
            shelves={
                RAM: Shelf(RAM, plan.ram_mib * MIB, volatile=True),
                DISK: Shelf(DISK, plan.disk_mib * MIB, volatile=False, capacity_bytes=2 * plan.disk_mib * MIB),
            },
        )
        checks.machine, luck.checks = machine, checks
        return Node(self, machine, checks)

    def reached(self, point: str) -> None:
        """Say that a point is reached, for whoever counts them."""
        for watcher in self.watchers:
            watcher(point)

    # What nodes tell

    def boundary(self, node: Node, operation: str) -> bool:
        """An effect is about to take a step: whether the agent is killed there."""
        for kind, _ in AT_A_STEP:
            if self.chance(f"{kind} at a step", node.name):
                if kind == "caller leaves":
                    node.stop(operation)
                else:
                    KINDS[kind](self, node, self.stream(f"{kind} {self.simulation.now}").getrandbits(32))
                if node.system.crashed:
                    return True
        if node.system.boot and self.chance("agent killed in a step of recovery", node.name):
            return self._dies(node)
        return self.chance("agent killed at a step", node.name) and self._dies(node)

    def _dies(self, node: Node) -> bool:
        self.take_down(node, 1 + self.stream(f"{node.name} {self.simulation.now}").randrange(5))
        return True

    def take_down(self, node: Node, down_s: int, keep: int | None = None) -> None:
        """Kill the agent of a node, and start it again."""
        if node.kill(keep):
            self.simulation.call_after(down_s * SECOND, node.start)

    def recorded(self, node: Node, operation: str, record: Any) -> None:
        """A record is on a node's disk."""
        self.reached(f"record: {type(record).__name__}")
        if self.users.secret in repr(record):
            self.violate("C14", f"the journal of {node.name} holds a secret: {type(record).__name__}")
        if self.chance("agent killed behind a record", node.name):
            self.kill_next = node

    def entered(self, node: Node, operation: str, phase: enum.Enum) -> None:
        """An operation took a step."""
        self.reached(f"{'freeze' if isinstance(phase, FreezePhase) else 'thaw'}: {phase.value}")

    def ended(self, node: Node, operation: str, outcome: Outcome) -> None:
        """An operation ended."""
        self.reached(f"outcome: {outcome.value}")
        self.simulation.note("ended", node.name, operation, outcome.value)

    # Watching

    def _delivered(self, cell: Cell, message: Any) -> None:
        """Every delivery is a step, and in the trace."""

    def _beat(self) -> None:
        for node in self.nodes:
            node.machine.tick()
        self.simulation.call_after(HEARTBEAT, self._beat)

    def check(self) -> None:
        """Check what must hold after every step.

        Raises:
            InvariantBroken: something does not.
        """
        for node in self.nodes:
            node.look()
        if self.kill_next is not None:
            node, self.kill_next = self.kill_next, None
            self._dies(node)
        if self.simulation.steps >= self._look_again:
            self._look_again = self.simulation.steps + SETTLED_EVERY
            for node in self.nodes:
                node.checks.look()
        if self.violations:
            raise InvariantBroken(self.violations[0])

    def heal(self) -> None:
        """End all faults."""
        self.healed, self.healed_at = True, self.simulation.now
        self.simulation.note("healed")
        for node in self.nodes:
            fate = node.machine.fate
            assert isinstance(fate, Luck)
            fate.slow = 1
            for shelf in node.machine.shelves.values():
                shelf.foreign_bytes = 0
            node.machine.strangers_leave()
            node.system.journal.resume()
            node.system.journal.free()
            if node.system.tree.closing or not node.up:
                node.kill()
            node.up = True
            node.start()

    def unsettled(self) -> str:
        """Say what keeps the world from being at rest; empty if nothing does."""
        for node in self.nodes:
            if node.system.crashed:
                return f"the agent of {node.name} is down"
            owed = [each.name for each in node.checks.operations.values() if each.steps and each.owed]
            if node.owes or owed:
                return f"{node.name} owes {[*node.owes, *owed][:4]}"
            if node.machine.landing or any(not run.over for run in node.machine.runs):
                return f"{node.name} has calls on their way"
            if any(not each.over for each in node.machine.pagers):
                return f"{node.name} still brings pages"
            if node.system.tree.held:
                return f"{node.name} waits for its disk"
        return ""

    # Running

    def run(self) -> Run:
        """Run the plan to its end, or to the first broken invariant."""
        try:
            self._run()
        except (InvariantBroken, Livelock, AssertionError) as error:
            if not self.violations:
                self.violations.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            error.add_note(f"in the simulation of nodes, seed {self.seed}")
            raise
        simulation = self.simulation
        return Run(
            seed=self.seed,
            trace=simulation.trace_hash,
            simulated_s=simulation.now_s,
            steps=simulation.steps,
            violations=tuple(self.violations),
            fired=tuple(sorted(self.counts.items())),
            report=self.report() if self.violations else "",
        )

    def _run(self) -> None:
        simulation = self.simulation
        while simulation.now < self.plan.safety:
            simulation.advance(1.0)
        self.heal()
        looks = 0
        most = simulation.steps + BUSY
        while looks < LOOKS:
            left = self.unsettled()
            looks = 0 if left else looks + 1
            if simulation.now >= self.healed_at + CONVERGE or simulation.steps > most:
                waited = (simulation.now - self.healed_at) // SECOND
                self.violate("liveness", f"not at rest {waited} s after all was healed: {left}")
                return
            simulation.advance(REST / SECOND)
        for node in self.nodes:
            node.checks.rest()
            settled(node.system)
        self.users.rest()
        if self.violations:
            raise InvariantBroken(self.violations[0])

    def report(self) -> str:
        """Return everything that is needed to understand a failure, and the command that repeats it."""
        fired = "\n".join(f"{at / SECOND:10.3f} s  {name}" for at, name in self.log)
        broken = "\n".join(self.violations)
        failures = "\n".join(repr(each) for node in self.nodes for each in node.system.failures[-5:])
        return (
            f"seed {self.seed}: {broken}\n\nfaults that fired:\n{fired}\n\nfailures of actors:\n{failures}\n\n"
            f"{self.simulation.report()}\n\nrepeat it: iriscw sim replay --nodes {self.seed}\n"
        )
