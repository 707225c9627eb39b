"""Machines: what is true of the hardware behind a Node object, whatever the object says.

A machine has power or not, and reaches the API server or not; the pods on it hold its resources until their processes
are gone. Names are never used twice; addresses are, soon: a replacement often answers where the dead one did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from iriscw_sims.coreweave.shapes import Amounts, Shape
from iriscw_sims.kube.frozen import EMPTY, FrozenDict

if TYPE_CHECKING:
    from iriscw_sims.coreweave.guests import Guest

PRODUCTION, TRIAGE, CORDONED = "production", "triage", "cordoned"

NODES = "/api/v1/nodes"


@attrs.define(eq=False)
class Machine:
    """One machine that is, or was, a node."""

    name: str
    pool_name: str
    pool_uid: str
    slot: int
    """Its place in the pool; a replacement takes it over."""
    shape: Shape
    address: str
    joined_at: int
    free: Amounts
    item: FrozenDict = EMPTY
    """The Node object as it was last seen."""
    uid: str = ""
    powered: bool = True
    reachable: bool = True
    ready: bool = False
    """Whether its object says so."""
    silent: bool = False
    """Whether its object says that nothing is heard of it."""
    was_ready: bool = False
    outages: int = 0
    """How often it fell silent, or came back: tells timers of an older silence from those of this one."""
    retired: bool = False
    """Whether it has left the cluster for good."""
    leaving: bool = False
    """Whether it is about to leave: it takes no pods any more."""
    state: str = PRODUCTION
    pressures: dict[str, None] = attrs.field(factory=dict)
    """The conditions of what it is short of, such as ``DiskPressure``."""
    unwell: str = ""
    """Why its kubelet says that it is not ready; empty: it does not say so."""
    clock_off: int = 0
    """By how much its clock is ahead of the API server's, ns; negative: behind."""
    heartbeat: str = ""
    """When its kubelet wrote its status last, by its own clock, as the object says it."""
    tainted: str = ""
    """Since when it carries a taint for being silent or not ready, as the object says it."""
    interruptable: bool = False
    """Whether it carries the taint of capacity that may be taken away."""
    cordoned: bool = False
    """Whether its cordon is the cloud's own."""
    guests: dict[str, Guest] = attrs.field(factory=dict)
    """The pods bound to it, by uid, until they are gone from the API and from the machine."""
    holding: int = 0
    """How many of them hold its resources."""
    images: dict[str, None] = attrs.field(factory=dict)
    since: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    """Status of each condition, and since when."""

    @property
    def path(self) -> str:
        """The path of its Node object."""
        return f"{NODES}/{self.name}"

    @property
    def up(self) -> bool:
        """Whether its kubelet can act and be heard."""
        return self.powered and self.reachable

    @property
    def usable(self) -> bool:
        """Whether the scheduler may place a pod here, taints apart."""
        cordoned = (self.item.get("spec") or EMPTY).get("unschedulable")
        return self.ready and not self.leaving and not cordoned

    @property
    def idle(self) -> bool:
        """Whether no pod holds anything here."""
        return not self.holding

    def lacking(self, wanted: Amounts) -> tuple[str, ...]:
        """Name the resources of which there is too little."""
        return tuple(name for name, amount in wanted.items() if amount > self.free.get(name, 0))

    def take(self, wanted: Amounts) -> None:
        """Take amounts for a pod."""
        self.holding += 1
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0) - amount

    def give(self, wanted: Amounts) -> None:
        """Give amounts back."""
        self.holding -= 1
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0) + amount


class Addresses:
    """Addresses of nodes: the one that was given back last is given out first."""

    def __init__(self, network: int = 10, first: int = 1) -> None:
        self._network = network
        self._free: list[str] = []
        self._given = first - 1

    def take(self) -> str:
        """Return an address that no machine has."""
        if self._free:
            return self._free.pop()
        self._given += 1
        number = self._given
        return f"{self._network}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def give(self, address: str) -> None:
        """Take an address back."""
        self._free.append(address)
