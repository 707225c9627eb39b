"""The workloads of a world of nodes, and the callers who have them frozen, thawed, listed and removed."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import attrs

from iriscw._errors import OperationError, UsageError
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import (
    CriuOptions,
    CudaState,
    FreezePlan,
    Hook,
    HookKind,
    Outcome,
    TaskIdentity,
    ThawPlan,
)
from iriscw.runtime.envelope import Slot
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.nodes.keeping import SimArtifacts
from iriscw_sims.nodes.machine import MIB, Process
from iriscw_sims.nodes.node import Node
from iriscw_sims.nodes.shelves import Artifact
from iriscw_sims.nodes.stepping import Await
from iriscw_sims.nodes.swarm import OrderPlan, WorkloadPlan

if TYPE_CHECKING:
    from iriscw_sims.nodes.world import NodesWorld

SECRET = "hunter2"  # noqa: S105 - what must be found nowhere
TEND = 5 * SECOND
"""Between two looks whether a workload is to begin anew."""


@attrs.define(eq=False)
class Workload:
    """One workload; each time that it begins anew its tree has another name."""

    number: int
    plan: WorkloadPlan
    incarnation: int = -1
    trees: list[str] = attrs.field(factory=list)

    @property
    def tree(self) -> str:
        """The name of its present tree."""
        return self.trees[-1]


@attrs.define(eq=False)
class Asked:
    """What a caller asked for."""

    operation: str
    node: Node
    slot: Slot


class Users:
    """Everybody who uses the nodes of one world."""

    secret = SECRET

    def __init__(self, world: NodesWorld) -> None:
        self.world = world
        self.workloads = [Workload(number, plan) for number, plan in enumerate(world.plan.workloads)]
        self.asked: list[Asked] = []
        self.gone: dict[str, str] = {}
        """Trees of which nothing has to be left, and why."""
        self._serial = 0
        for workload in self.workloads:
            left = self.node_of(workload).machine.free_memory().its_bytes
            if left is None or workload.plan.processes * workload.plan.memory_mib * MIB <= left:
                self.begin(workload)  # else later, when another one has ended
        for order in world.plan.orders:
            world.simulation.call_after(order.at, self._ask, order)
        world.simulation.call_after(TEND, self._tend)

    def node_of(self, workload: Workload) -> Node:
        """Return the node that a workload lives on."""
        return self.world.nodes[workload.plan.machine]

    # Workloads

    def begin(self, workload: Workload) -> None:
        """Begin a workload anew, with new processes."""
        plan, machine = workload.plan, self.node_of(workload).machine
        workload.incarnation += 1
        name = f"w{workload.number}.{workload.incarnation}"
        workload.trees.append(name)
        numbers = machine.number(plan.processes)
        for index, number in enumerate(numbers):
            machine.ticks += 1
            uses = index in plan.cuda
            machine.processes.append(
                Process(
                    TaskIdentity(number, machine.ticks, machine.boot_id),
                    1 if index == 0 else numbers[(index - 1) // 2],
                    session=numbers[0],
                    tree=name,
                    cuda=CudaState.RUNNING if uses else None,
                    device_bytes=plan.device_mib * MIB if uses else 0,
                    gpu=f"GPU-{workload.number}",
                    memory_bytes=plan.memory_mib * MIB,
                    threads=machine.number(plan.threads),
                    connections=plan.connections if index == 0 else 0,
                    supervises=f"/attempt/{name}" if plan.supervised and index == 0 else "",
                )
            )

    def living(self, workload: Workload) -> list[Process]:
        """Return the living processes of a workload."""
        machine = self.node_of(workload).machine
        return [each for each in machine.living() if each.tree in workload.trees]

    def artifacts(self, workload: Workload) -> list[Artifact]:
        """Return the artifacts of a workload that can be seen, the newest last."""
        machine = self.node_of(workload).machine
        return [each for each in machine.hosted.values() if each.visible and each.tree in workload.trees]

    def _tend(self) -> None:
        if self.world.healed:
            return
        for workload in self.workloads:
            node = self.node_of(workload)
            busy = any(each.owed and each.tree in workload.trees for each in node.checks.operations.values())
            left = self.living(workload) or self.artifacts(workload)
            if node.up and not busy and not left and workload.plan.most_mib * MIB <= node.machine.spare_bytes():
                self.begin(workload)
        self.world.simulation.call_after(TEND, self._tend)

    def rebooted(self, node: Node) -> None:
        """A node began anew: what was nowhere but in its memory is gone."""
        for workload in self.workloads:
            if self.node_of(workload) is node:
                kept = [each.tree for each in self.artifacts(workload)]
                self.gone.update({tree: "reboot" for tree in workload.trees if tree not in kept})

    # Callers

    def _ask(self, order: OrderPlan) -> None:
        if self.world.healed:
            return
        workload = self.workloads[order.workload]
        node = self.node_of(workload)
        for _ in range(2 if order.twice else 1):
            match order.kind:
                case "freeze":
                    self._freeze(order, workload, node)
                case "thaw":
                    self._thaw(order, workload, node)
                case "remove":
                    self._remove(workload, node)
                case "list":
                    self._list(node)

    def _id(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}-{self._serial:04d}"

    def _freeze(self, order: OrderPlan, workload: Workload, node: Node) -> None:
        living = self.living(workload)
        owed = [each for each in node.checks.operations.values() if each.owed and each.steps]
        comes = bool(living) and living[0].pager is not None  # it runs, and nobody sees that pages are missing
        others = [each.tree for each in owed if living and each.root != living[0].identity and not comes]
        if not living or living[0].tree in others:
            return  # who thaws a tree, or freezes what is left of it, waits for the end of that
        place = f"http://user:{SECRET}@localhost/app" if order.secret else "http://localhost/app"
        hook = Hook(HookKind.HTTP, (place,)) if workload.plan.hook or order.secret else None
        plan = FreezePlan(
            self._id("ck"),
            living[0].identity,
            order.tier,
            leave_running=order.leave_running,
            force=order.force,
            options=CriuOptions(tcp_established=order.connections),
            hook=hook,
        )
        self._begin(order, node, plan.operation, FreezeTree(plan))

    def _thaw(self, order: OrderPlan, workload: Workload, node: Node) -> None:
        kept = self.artifacts(workload)
        if kept:
            kept.sort(key=lambda each: not node.machine.of(each.tree))  # first such whose tree is nowhere else
            folder = f"/attempt/{kept[-1].tree}"
            if order.grant and folder not in node.machine.grants:
                node.machine.grants.append(folder)
            verify = Hook(HookKind.HTTP, ("http://127.0.0.1/health",)) if workload.plan.hook else None
            plan = ThawPlan(self._id("th"), kept[-1].operation, lazy=order.lazy, verify=verify)
            self._begin(order, node, plan.operation, ThawTree(plan))

    def _begin(self, order: OrderPlan, node: Node, operation: str, message: FreezeTree | ThawTree) -> None:
        slot = node.begin(message)
        if slot is None:
            return
        self.asked.append(Asked(operation, node, slot))
        if order.cancel_after:
            self.world.simulation.call_after(order.cancel_after, self._leave, node, operation)

    def _leave(self, node: Node, operation: str) -> None:
        self.world.fired("caller leaves", f"operation/{operation}")
        node.stop(operation)

    def _list(self, node: Node) -> None:
        """Read what any reader may see (INV-C8)."""
        for name, artifact in node.machine.hosted.items():
            if artifact.visible and not (artifact.now.sealed and artifact.now.snapshot):
                self.world.violate("C8", f"a reader sees artifact {name}, which is not whole")

    def _remove(self, workload: Workload, node: Node) -> None:
        kept = self.artifacts(workload)
        if kept and not node.system.crashed:
            name = kept[-1].operation
            port = SimArtifacts(node.machine, node.checks, self._id("rm"), node.system.boot)
            self._go_on(node, node.system.boot, kept[-1], port.remove(name))

    def _go_on(self, node: Node, boot: int, artifact: Artifact, steps: Coroutine[Await, Any, None]) -> None:
        """Carry a removal on, for as long as its agent lives."""
        if node.system.crashed or node.system.boot != boot:
            self.world.simulation.note("removal cut", node.name)
            node.bury(steps)
            return
        try:
            pause = steps.send(None)
        except (StopIteration, OperationError, UsageError, OSError):
            pass
        else:
            self.world.simulation.call_after(pause.ns, self._go_on, node, boot, artifact, steps)
        if not artifact.visible:
            self.gone[artifact.tree] = "removed"

    # The end

    def rest(self) -> None:
        """Each tree runs, or is whole as an artifact, or nobody has to wonder where it is."""
        for workload in self.workloads:
            node = self.node_of(workload)
            whole = [each.tree for each in self.artifacts(workload) if each.whole]
            alive = [each.tree for each in self.living(workload)]
            for tree in workload.trees:
                if tree not in (*whole, *alive, *self.gone, *node.checks.given_up):
                    self.world.violate("C8", f"tree {tree} neither runs nor is whole as an artifact")
        for each in self.asked:
            if each.slot.done and each.slot.error is None and each.node.checks.of(each.operation).steps:
                outcome = each.node.outcome(each.operation)
                if not isinstance(outcome, Outcome):
                    self.world.violate("liveness", f"operation {each.operation} was begun and never ended")
