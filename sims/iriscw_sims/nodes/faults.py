"""Faults at a moment, for nodes: each takes its victim out of the world as it is then, and says whom it hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from iriscw.freeze.model import CudaState, TaskIdentity
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.nodes.machine import MIB, STRANGER, Process
from iriscw_sims.swarm import Fault

if TYPE_CHECKING:
    from iriscw_sims.nodes.node import Node
    from iriscw_sims.nodes.paging import Pager
    from iriscw_sims.nodes.world import NodesWorld

PATIENT = (
    "pager killed",
    "pager and its guard killed",
    "pages damaged while they come",
    "agent and pagers killed",
    "GPU memory taken by others",
    "other hardware",
)
"""Kinds that wait for somebody whom they can hit: pages come for a second or two of a minute."""

WAITS = 300 * MILLISECOND

SLOW = 20
"""How many times slower a slow disk is."""


def strike(world: NodesWorld, fault: Fault) -> None:
    """Let a fault happen."""
    if world.healed:
        return
    node = world.nodes[fault.pick % len(world.nodes)]
    hit = KINDS[fault.kind](world, node, fault.pick >> 4)
    if hit:
        world.fired(fault.kind, hit)
    elif fault.kind in PATIENT:
        world.simulation.call_after(WAITS, strike, world, fault)


def _workload_of(node: Node, pick: int) -> Process | None:
    """Choose a living process of a workload."""
    living = [each for each in node.machine.living() if each.tree.startswith("w")]
    return living[pick % len(living)] if living else None


def _lasts(pick: int) -> int:
    return 1 + pick % 30


def _killed(world: NodesWorld, node: Node, pick: int) -> str:
    if node.system.crashed:
        return ""
    world.take_down(node, _lasts(pick) // 4 + 1)
    return node.name


def _ends(world: NodesWorld, node: Node, pick: int) -> str:
    """The agent is told to end; it undoes what runs, and is killed when its patience is over."""
    if node.system.crashed:
        return ""
    node.stop_all()
    boot = node.system.boot

    def over() -> None:
        if not node.system.crashed and node.system.boot == boot:
            world.take_down(node, 1)

    world.simulation.call_after(_lasts(pick) * SECOND, over)
    return node.name


def _reboots(world: NodesWorld, node: Node, pick: int, *, cut: bool = False) -> str:
    if not node.up:
        return ""
    node.up = False
    journal = node.system.journal
    node.kill(None if cut or node.system.crashed else journal.appended - journal.durable)
    rng = world.stream(f"power of {node.name} at {world.simulation.now}")
    for shelf in node.machine.shelves.values():
        if cut and not shelf.volatile:
            shelf.cut(rng)
        for artifact in shelf.artifacts.values():
            artifact.sync()  # what a machine has not written when it goes down in order it writes then
    boot = int(node.machine.boot_id.rpartition("-")[2]) + 1
    node.machine.reboots(f"{node.name}-boot-{boot}")
    world.users.rebooted(node)

    def up() -> None:
        node.up = True
        node.start()

    world.simulation.call_after(_lasts(pick) * SECOND, up)
    return node.name


def _power_cut(world: NodesWorld, node: Node, pick: int) -> str:
    return _reboots(world, node, pick, cut=True)


def _journal_full(world: NodesWorld, node: Node, pick: int) -> str:
    if node.system.crashed:
        return ""
    journal = node.system.journal
    journal.fill()
    world.simulation.call_after(_lasts(pick) * SECOND, journal.free)
    return node.name


def _journal_stalls(world: NodesWorld, node: Node, pick: int) -> str:
    if node.system.crashed:
        return ""
    journal = node.system.journal
    journal.stall()
    world.simulation.call_after(_lasts(pick) * SECOND, journal.resume)
    return node.name


def _process_ends(world: NodesWorld, node: Node, pick: int) -> str:
    process = _workload_of(node, pick)
    if process is None or not process.runs:
        return ""
    node.checks.left(process)
    node.machine.kill(process)
    if not node.machine.of(process.tree):
        world.users.gone[process.tree] = "ended by itself"
    return f"process/{process.pid}"


def _forks(world: NodesWorld, node: Node, pick: int) -> str:
    process = _workload_of(node, pick)
    if process is None or not process.runs:
        return ""
    machine = node.machine
    if process.memory_bytes > machine.spare_bytes():
        return ""  # nothing reserves what a tree grows by while it is frozen: the kernel would end one of them
    (number,) = machine.number()
    machine.ticks += 1
    child = attrs.evolve(
        process,
        identity=TaskIdentity(number, machine.ticks, machine.boot_id),
        parent=process.pid,
        cuda=None,
        device_bytes=0,
        threads=(),
        connections=0,
        supervises="",
        resting=False,
        progress=0,
        came_back_at=0,
        forked=True,
    )
    machine.processes.append(child)
    return f"process/{number}"


def _stopped(world: NodesWorld, node: Node, pick: int) -> str:
    """Somebody stops a process that nobody freezes, and it stays so."""
    process = _workload_of(node, pick)
    busy = process is not None and any(
        each.owed and each.tree == process.tree for each in node.checks.operations.values()
    )
    if process is None or not process.runs or busy:
        return ""
    process.stopped = process.was_stopped = True
    return f"process/{process.pid}"


def _number_taken(world: NodesWorld, node: Node, pick: int) -> str:
    """A stranger gets the number of a process that has ended."""
    machine = node.machine
    free = [each for each in machine.processes if not each.alive and not machine.takes(each.pid)]
    if not free:
        return ""
    number = free[pick % len(free)].pid
    machine.ticks += 1
    stranger = Process(TaskIdentity(number, machine.ticks, machine.boot_id), 1, tree=f"{STRANGER}-{number}", gpu="")
    machine.processes.append(stranger)
    world.simulation.call_after(_lasts(pick) * SECOND, machine.kill, stranger)
    return f"process/{number}"


BEGINNERS_BYTES = 64 * MIB
"""What a process has on its GPU that has just begun to use CUDA."""


def _begins_cuda(world: NodesWorld, node: Node, pick: int) -> str:
    process = _workload_of(node, pick)
    if process is None or not process.runs or process.cuda is not None:
        return ""
    if node.machine.spare_bytes() < BEGINNERS_BYTES:
        return ""  # as with what forks
    process.cuda, process.device_bytes = CudaState.RUNNING, BEGINNERS_BYTES
    return f"process/{process.pid}"


def _damaged(world: NodesWorld, node: Node, pick: int) -> str:
    """A byte of an artifact that nobody reads changes."""
    found = [
        each
        for shelf in node.machine.shelves.values()
        for each in shelf.artifacts.values()
        if each.visible and not each.now.pins and not each.now.damaged
    ]
    if not found:
        return ""
    artifact = found[pick % len(found)]
    artifact.change(damaged=True, in_pages=bool(pick & 4))
    artifact.sync()
    world.users.gone[artifact.tree] = "damaged"
    return f"artifact/{artifact.operation}"


def _tier_filled(world: NodesWorld, node: Node, pick: int) -> str:
    shelf = list(node.machine.shelves.values())[1]
    shelf.foreign_bytes = max(0, shelf.capacity_bytes - shelf.bytes - pick % 512 * MIB)

    def free() -> None:
        shelf.foreign_bytes = 0

    world.simulation.call_after(_lasts(pick) * SECOND, free)
    return node.name


def _memory_taken(world: NodesWorld, node: Node, pick: int) -> str:
    """A stranger takes memory, as much as nobody was promised."""
    machine = node.machine
    spare = machine.free_bytes() - sum(shelf.promised_bytes for shelf in machine.shelves.values() if shelf.volatile)
    spare -= sum(each.device_bytes for each in machine.living() if each.cuda is not None)
    spare -= sum(each.plan.processes * each.plan.memory_mib * MIB for each in world.users.workloads)
    thawed = [each.thaws for each in node.checks.operations.values() if each.owed and each.thaws]
    spare -= sum(each.now.images_bytes for name, each in machine.hosted.items() if name in thawed)
    size = min(spare, pick % 64 * 512 * MIB)
    if size <= 0:
        return ""
    (number,) = machine.number()
    machine.ticks += 1
    stranger = Process(
        TaskIdentity(number, machine.ticks, machine.boot_id), 1, tree=f"{STRANGER}-{number}", gpu="", memory_bytes=size
    )
    if machine.group_bytes is not None:
        return ""
    machine.processes.append(stranger)

    def ends() -> None:
        machine.kill(stranger)

    world.simulation.call_after(_lasts(pick) * SECOND, ends)
    return f"process/{number}"


def _slow(world: NodesWorld, node: Node, pick: int) -> str:
    fate = node.machine.fate
    fate.slow = SLOW  # type: ignore[attr-defined]

    def over() -> None:
        fate.slow = 1  # type: ignore[attr-defined]

    world.simulation.call_after(_lasts(pick) * SECOND, over)
    return node.name


def _claimed(world: NodesWorld, node: Node, pick: int) -> str:
    """A command without an agent works on a process: it holds the claim, and nothing else happens."""
    from iriscw.agent.claims import frozen_by_us

    process = _workload_of(node, pick)
    if process is None:
        return ""
    target = frozen_by_us(process.identity)
    if target in node.machine.claims:
        return ""
    claims = node.machine.claims
    claims[target] = STRANGER

    def gives_back() -> None:
        if claims.get(target) == STRANGER:
            del claims[target]

    world.simulation.call_after(_lasts(pick) * SECOND, gives_back)
    return f"process/{process.pid}"


def _bringing(node: Node, pick: int) -> Pager | None:
    """Choose a pager that brings pages."""
    found = [each for each in node.machine.pagers if each.alive and each.settled]
    return found[pick % len(found)] if found else None


def _pager_killed(world: NodesWorld, node: Node, pick: int) -> str:
    pager = _bringing(node, pick)
    if pager is None:
        return ""
    pager.killed()
    return f"operation/{pager.operation}"


def _pager_and_guard_killed(world: NodesWorld, node: Node, pick: int) -> str:
    pager = _bringing(node, pick)
    if pager is None:
        return ""
    pager.killed_with_its_guard()
    return f"operation/{pager.operation}"


def _all_killed(world: NodesWorld, node: Node, pick: int) -> str:
    """The agent is killed while pages come, with all that is in its control group."""
    if node.system.crashed or _bringing(node, pick) is None:
        return ""
    for pager in node.machine.pagers:
        pager.killed_with_its_guard()
    return _killed(world, node, pick)


def _pages_damaged(world: NodesWorld, node: Node, pick: int) -> str:
    """A byte changes that a lazy thaw has not read yet."""
    pager = _bringing(node, pick)
    if pager is None or pager.artifact.now.damaged:
        return ""
    pager.artifact.change(damaged=True, in_pages=True)
    pager.artifact.sync()
    world.users.gone[pager.artifact.tree] = "damaged"
    return f"artifact/{pager.artifact.operation}"


def _vram_taken(world: NodesWorld, node: Node, pick: int) -> str:
    """A stranger takes memory of a GPU that nobody uses now, so much that hardly any tree comes back to it."""
    machine = node.machine
    used = [each.gpu for each in machine.living() if each.on_gpu_bytes]
    frozen = [task.gpus for each in machine.hosted.values() if each.facts for task in each.facts.cuda_tasks]
    gpus = [gpu for gpu in machine.gpus_now() if gpu.uuid not in used and (gpu.uuid,) in frozen]
    if not gpus:
        return ""
    gpu = gpus[pick % len(gpus)]
    size = gpu.free_bytes - pick % 512 * MIB
    (number,) = machine.number()
    machine.ticks += 1
    machine.vram_taken_at = machine.ticks
    stranger = Process(
        TaskIdentity(number, machine.ticks, machine.boot_id),
        1,
        cuda=CudaState.RUNNING,
        device_bytes=size,
        tree=f"{STRANGER}-{number}",
        gpu=gpu.uuid,
    )
    machine.processes.append(stranger)
    world.simulation.call_after(2 * _lasts(pick) * SECOND, machine.kill, stranger)
    return gpu.uuid


def _other_hardware(world: NodesWorld, node: Node, pick: int) -> str:
    """The machine begins anew with another driver, or another GPU in the place of one that a frozen tree used."""
    machine = node.machine
    kept = [each.facts for each in machine.hosted.values() if each.facts and each.visible and not each.volatile]
    used = [uuid for facts in kept for task in facts.cuda_tasks for uuid in task.gpus]
    if not used or not _reboots(world, node, pick):
        return ""
    if pick & 16:
        machine.driver = f"590.{pick % 100}.01"
        return f"driver {machine.driver}"
    uuid = used[pick % len(used)]
    machine.gpus = tuple(attrs.evolve(each, model="B200") if each.uuid == uuid else each for each in machine.gpus)
    return uuid


KINDS: dict[str, Callable[[NodesWorld, Node, int], str]] = {
    "agent killed": _killed,
    "agent ends": _ends,
    "node reboots": _reboots,
    "power cut": _power_cut,
    "journal full": _journal_full,
    "journal stalls": _journal_stalls,
    "process ends": _process_ends,
    "process forks": _forks,
    "process stopped": _stopped,
    "number taken": _number_taken,
    "process begins to use CUDA": _begins_cuda,
    "image damaged": _damaged,
    "tier filled by others": _tier_filled,
    "memory taken by others": _memory_taken,
    "disk slow": _slow,
    "target claimed by others": _claimed,
    "pager killed": _pager_killed,
    "pager and its guard killed": _pager_and_guard_killed,
    "pages damaged while they come": _pages_damaged,
    "agent and pagers killed": _all_killed,
    "GPU memory taken by others": _vram_taken,
    "other hardware": _other_hardware,
}
