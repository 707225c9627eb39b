"""What a seed draws for a world of nodes: machines, workloads, what users ask for, faults, and rates of chances.

As for fleets (:mod:`iriscw_sims.swarm`): each seed switches about half of all kinds off. A plan is values all the way
down, so it can be changed, shrunk, kept and sent on.
"""

from __future__ import annotations

from random import Random

import attrs

from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.nodes.contract import chances
from iriscw_sims.swarm import Fault

EARLIER: tuple[str, ...] = (
    "agent killed",
    "agent ends",
    "node reboots",
    "power cut",
    "journal full",
    "journal stalls",
    "process ends",
    "process forks",
    "process stopped",
    "number taken",
    "process begins to use CUDA",
    "image damaged",
    "tier filled by others",
    "memory taken by others",
    "disk slow",
    "target claimed by others",
)
LATER: tuple[str, ...] = (
    "pager killed",
    "pager and its guard killed",
    "pages damaged while they come",
    "agent and pagers killed",
    "GPU memory taken by others",
    "other hardware",
)
FAULTS: tuple[str, ...] = (*EARLIER, *LATER)
"""Faults that a plan puts at a moment. What was added later is drawn later, so that seeds keep what they found."""

AT_A_STEP: tuple[tuple[str, int], ...] = (
    ("power cut", 8),
    ("node reboots", 8),
    ("process ends", 15),
    ("process forks", 15),
    ("number taken", 20),
    ("process begins to use CUDA", 15),
    ("caller leaves", 15),
    ("pager killed", 15),
    ("pager and its guard killed", 8),
)
"""Kinds of faults that also happen in the middle of operations: an operation takes a second of a minute."""

RATES: tuple[tuple[str, int], ...] = (
    *chances(),
    ("agent killed at a step", 25),
    ("agent killed behind a record", 80),
    ("agent killed in a step of recovery", 60),
    *((f"{kind} at a step", most) for kind, most in AT_A_STEP),
    ("criu outlives its agent", 700),
    ("driver call lands late", 500),
    ("process dies slowly", 300),
    ("pages do not come in time", 300),
    ("an older iriscw sealed it", 200),
)
"""Each kind of chance with its highest rate, in thousandths."""

LATER_RATES: tuple[str, ...] = (
    "pager cannot begin",
    "pin cannot be taken back",
    "pages cannot be told of",
    "supervisor cannot be told",
    "pager killed at a step",
    "pager and its guard killed at a step",
    "pages do not come in time",
    "an older iriscw sealed it",
)
"""Those that were added later: see :data:`FAULTS`."""


ORDERS: tuple[str, ...] = ("freeze", "thaw", "remove", "list")
TIERS: tuple[str, ...] = (RAM, DISK)
MOST_MIB = 1 << 30
MOST_PROCESSES = 1024
"""Of one workload: as many as a tree may have."""


@attrs.frozen
class MachinePlan:
    """One machine. Sizes are MiB; 0 is no limit, for the control groups."""

    memory_mib: int = 65_536
    ram_mib: int = 16_384
    """The budget of its tier in memory."""
    disk_mib: int = 65_536
    """The budget of its tier on disk."""
    agent_mib: int = 0
    """What the control group of the agent may use."""
    workloads_mib: int = 0
    """What the control group of all workloads may use."""
    userfaultfd: bool = True
    """Whether its kernel, and its CRIU, can bring pages later."""


@attrs.frozen
class WorkloadPlan:
    """One workload: a tree of processes. Those of ``cuda`` use the GPU of this workload."""

    machine: int = 0
    processes: int = 1
    cuda: tuple[int, ...] = ()
    memory_mib: int = 64
    device_mib: int = 512
    threads: int = 0
    connections: int = 0
    hook: bool = False
    supervised: bool = False
    """Its first process is a supervisor of iriscw, which goes on after a thaw only if it finds a grant."""

    @property
    def most_mib(self) -> int:
        """What it holds of a machine's memory, with all that it has on a GPU moved there."""
        return self.processes * self.memory_mib + len(self.cuda) * self.device_mib


@attrs.frozen
class OrderPlan:
    """What a user asks for: "freeze", "thaw", "remove" or "list"."""

    at: int
    kind: str
    workload: int
    tier: str = RAM
    leave_running: bool = False
    force: bool = False
    connections: bool = True
    """Freeze although there are connections."""
    secret: bool = False
    """The hook's address has a password in it."""
    twice: bool = False
    """Somebody else asks for the same at the same time."""
    cancel_after: int = 0
    """The caller leaves after so many ns; 0: it stays."""
    lazy: bool = False
    """Thaw it without waiting for all of its memory."""
    grant: bool = True
    """Leave a grant for its supervisor, if it has one."""


@attrs.frozen
class NodesPlan:
    """All that a run is made of, beside the seed."""

    seed: int
    machines: tuple[MachinePlan, ...]
    workloads: tuple[WorkloadPlan, ...]
    orders: tuple[OrderPlan, ...]
    faults: tuple[Fault, ...]
    rates: tuple[tuple[str, int], ...]
    safety: int
    """How long faults happen; then everything is healed."""

    def without(self, kind: str) -> NodesPlan:
        """Return the plan without one kind of fault or chance."""
        faults = tuple(fault for fault in self.faults if fault.kind != kind)
        return attrs.evolve(self, faults=faults, rates=tuple(rate for rate in self.rates if rate[0] != kind))


def draw_nodes_plan(seed: int) -> NodesPlan:
    """Draw everything from the seed."""
    rng = Random(f"{seed}:nodes")
    machines = tuple(_machine(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    workloads = tuple(_workload(rng, len(machines)) for _ in range(rng.randrange(1, 5)))
    safety = rng.randrange(15, 60) * SECOND
    orders = tuple(_order(rng, len(workloads), safety) for _ in range(rng.randrange(8, 40)))
    later = Random(f"{seed}:nodes, later")
    faults = [*_faults(rng, EARLIER, safety), *_faults(later, LATER, safety)]
    rates = (
        *_rates(rng, [each for each in RATES if each[0] not in LATER_RATES]),
        *_rates(later, [each for each in RATES if each[0] in LATER_RATES]),
    )
    machines = tuple(attrs.evolve(each, userfaultfd=later.random() < 0.8) for each in machines)
    workloads = tuple(attrs.evolve(each, supervised=later.random() < 0.3) for each in workloads)
    if later.random() < 0.5:  # more come to their end where less goes wrong
        faults = [each for each in faults if later.random() < 0.3]
        rates = tuple(each for each in rates if later.random() < 0.3)
        orders = (*orders, *_pairs(later, len(workloads), safety))
    orders = tuple(attrs.evolve(each, lazy=later.random() < 0.5, grant=later.random() < 0.8) for each in orders)
    return NodesPlan(
        seed,
        machines,
        workloads,
        tuple(sorted(orders, key=lambda order: (order.at, order.workload, order.kind))),
        tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.pick))),
        rates,
        safety,
    )


def _faults(rng: Random, among: tuple[str, ...], safety: int) -> list[Fault]:
    kinds = [kind for kind in among if rng.random() < 0.4]
    return [
        Fault(rng.randrange(safety), kind, rng.getrandbits(32)) for kind in kinds for _ in range(rng.randrange(1, 4))
    ]


def _rates(rng: Random, among: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((name, rng.randrange(1, most + 1)) for name, most in among if rng.random() < 0.25)


def _machine(rng: Random) -> MachinePlan:
    limited = rng.random() < 0.3
    return MachinePlan(
        memory_mib=rng.choice((32_768, 65_536)),
        ram_mib=rng.choice((2_048, 8_192, 16_384)),
        disk_mib=rng.choice((2_048, 65_536)),
        agent_mib=rng.choice((4_096, 12_288)) if limited else 0,
        workloads_mib=rng.choice((8_192, 24_576)) if limited else 0,
    )


def _workload(rng: Random, machines: int) -> WorkloadPlan:
    processes = rng.choice((1, 2, 3, 3, 5, 8))
    uses = rng.random() < 0.6
    cuda = tuple(index for index in range(processes) if uses and rng.random() < 0.5)
    return WorkloadPlan(
        machine=rng.randrange(machines),
        processes=processes,
        cuda=cuda,
        memory_mib=rng.choice((10, 64, 400)),
        device_mib=rng.choice((100, 1_024, 4_096)),
        threads=rng.choice((0, 0, 2)),
        connections=rng.choice((0, 0, 0, 1)),
        hook=rng.random() < 0.3,
    )


def _pairs(rng: Random, workloads: int, safety: int) -> tuple[OrderPlan, ...]:
    """Draw freezes with the thaw that follows."""
    orders = []
    for _ in range(rng.randrange(3, 12)):
        at, workload = rng.randrange(safety), rng.randrange(workloads)
        orders.append(OrderPlan(at, "freeze", workload, tier=rng.choice(TIERS)))
        orders.append(OrderPlan(min(safety - 1, at + rng.randrange(1, 6) * SECOND), "thaw", workload))
    return tuple(orders)


def _order(rng: Random, workloads: int, safety: int) -> OrderPlan:
    return OrderPlan(
        at=rng.randrange(safety),
        kind=rng.choice(("freeze", "freeze", "freeze", "thaw", "thaw", "thaw", "remove", "list")),
        workload=rng.randrange(workloads),
        tier=rng.choice(TIERS),
        leave_running=rng.random() < 0.25,
        force=rng.random() < 0.2,
        connections=rng.random() < 0.8,
        secret=rng.random() < 0.05,
        twice=rng.random() < 0.15,
        cancel_after=rng.randrange(1, 3_000) * 1_000_000 if rng.random() < 0.15 else 0,
    )
