"""How a pool comes by its machines: quota, capacity, boots, replacements, and which machines go when it shrinks.

Theory of operation. A pool has places. Each is empty, queued (machines are waited for), booting, or has a machine; a
place whose machine has left is empty again and is filled like any other. All of it is done by :meth:`Filling.fill`,
called whenever something changed: it compares what is wanted with what is under way, and never more often than that.
"""

from __future__ import annotations

import attrs

from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Follower, Nodes
from iriscw_sims.coreweave.pool_objects import Quota, Standing, is_spot, shape_of, target_of
from iriscw_sims.coreweave.shapes import RACK_NODES, Shape
from iriscw_sims.coreweave.site import Key, Site
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json


@attrs.define(eq=False)
class Boot:
    """One machine on its way."""

    slot: int


@attrs.define(eq=False)
class Pool:
    """One pool, as its controller knows it."""

    item: FrozenDict
    name: str
    uid: str
    spec: Json = attrs.field(factory=dict)
    """The object's specification, as far as it is one."""
    malformed: str = ""
    """Why the object has no specification that can be read: somebody changed the definition of its kind."""
    valid: Json = attrs.field(factory=dict)
    """The last specification that was found valid: machines are ordered, and join, by it."""
    judged: bool = False
    why: str = ""
    """Why its specification is invalid."""
    quota: Quota | None = None
    members: dict[int, Machine] = attrs.field(factory=dict)
    """Machines by place."""
    going: dict[int, None] = attrs.field(factory=dict)
    """Places whose machines were told to leave because the pool shrinks."""
    booting: dict[int, Boot] = attrs.field(factory=dict)
    queued: dict[int, None] = attrs.field(factory=dict)
    deleting: bool = False
    dissolved: bool = False
    """Whether its deletion is over, as far as its machines go."""
    gone: bool = False
    told: Json = attrs.field(factory=dict)
    """The status that was written last."""

    @property
    def target(self) -> int:
        """How many nodes are wanted."""
        return target_of(self.spec)

    @property
    def committed(self) -> int:
        """How many machines are there to stay, or under way."""
        return len(self.members) - len(self.going) + len(self.booting) + len(self.queued)

    @property
    def ready_nodes(self) -> int:
        """How many of its nodes are ready, and in production."""
        return sum(1 for machine in self.members.values() if machine.ready and not machine.leaving)

    @property
    def standing(self) -> Standing:
        """What its status tells."""
        return Standing(
            target=self.target,
            current=len(self.members),
            booting=len(self.booting),
            queued=len(self.queued),
            judged=self.judged,
            why=self.why,
            quota=self.quota,
            waiting=bool(self.queued),
        )

    def empty_slots(self, count: int) -> list[int]:
        """Return the lowest places that are empty."""
        found: list[int] = []
        slot = 0
        while len(found) < count:
            if slot not in self.members and slot not in self.booting and slot not in self.queued:
                found.append(slot)
            slot += 1
        return found


class Filling(Follower):
    """Fills pools, and empties them."""

    def __init__(self, site: Site, events: Events, nodes: Nodes) -> None:
        self.pools: dict[str, Pool] = {}
        """All pools, by uid."""
        self.dirty: dict[str, Pool] = {}
        """Pools whose status may have changed since it was written."""
        self._site = site
        self._events = events
        self._nodes = nodes
        self._rng = site.stream("pools")

    def touch(self, pool: Pool) -> None:
        """Have a pool's status written at the end of this turn."""
        if not pool.gone:
            self.dirty[pool.uid] = pool

    def fill(self, pool: Pool, *, replacing: bool = False) -> None:
        """Order what is missing, or let go of what is too much."""
        self.touch(pool)
        if not pool.judged or pool.why or pool.deleting or pool.gone:
            return
        missing = pool.target - pool.committed
        if missing < 0:
            self._shrink(pool, -missing)
        elif missing > 0 or pool.quota is None:
            self._grow(pool, missing, replacing)

    # More

    def _grow(self, pool: Pool, missing: int, replacing: bool) -> None:
        if not self._allowed(pool, missing, replacing) or missing == 0:
            return
        slots = pool.empty_slots(missing)
        late = self._without_capacity(pool, len(slots), replacing)
        for slot in slots[len(slots) - late :]:
            pool.queued[slot] = None
        if late:
            self._site.observer.refused(pool.name, "capacity")
            after = self._site.settings.capacity.draw(self._rng)
            self._site.note("pool waits for machines", pool.name, late, after)
            text = f"Insufficient capacity for instance type {pool.spec['instanceType']}"
            self._events.warning(pool.item, "CWInsufficientCapacity", text)
            self._site.hold(_capacity(pool), self._machines_come, pool, after=after)
        self._boot(pool, slots[: len(slots) - late])

    def _allowed(self, pool: Pool, missing: int, replacing: bool) -> bool:
        """Ask the quota, unless it was refused before, or a machine that was had is replaced."""
        if pool.quota not in (None, Quota.UNDER):
            return False
        if replacing and pool.quota is Quota.UNDER:
            return True
        site, kind = self._site, pool.spec["instanceType"]
        limit = site.settings.quotas.get(kind)
        if limit == 0 or site.chance("quota not set", f"pool/{pool.name}"):
            pool.quota = Quota.NOT_SET
        elif site.chance("pool quota exceeded", f"pool/{pool.name}") or (
            limit is not None and self._used(kind) + missing > limit
        ):
            pool.quota = Quota.OVER
        else:
            pool.quota = Quota.UNDER
            return True
        site.observer.refused(pool.name, "quota")
        site.note("pool has no quota", pool.name, pool.quota.value)
        self._events.warning(pool.item, "CWOverQuota", f"Quota for instance type {kind}: {pool.quota.value}")
        site.hold(_quota(pool), self._quota_raised, pool, after=site.settings.quota_raised.draw(self._rng))
        return False

    def _used(self, kind: str) -> int:
        return sum(pool.committed for pool in self.pools.values() if pool.spec["instanceType"] == kind)

    def _quota_raised(self, pool: Pool) -> None:
        if not pool.gone and not pool.deleting:
            pool.quota = None
            self.fill(pool)

    def _without_capacity(self, pool: Pool, count: int, replacing: bool) -> int:
        """Return how many of so many machines are not to be had now."""
        if replacing:
            return count if self._site.chance("replacement without capacity", f"pool/{pool.name}") else 0
        if self._site.chance("pool without capacity", f"pool/{pool.name}"):
            return count
        if count > 1 and self._site.chance("pool partly without capacity", f"pool/{pool.name}"):
            return self._rng.randrange(1, count)
        return 0

    def _machines_come(self, pool: Pool) -> None:
        slots = [*pool.queued]
        pool.queued.clear()
        self._boot(pool, slots)
        self.touch(pool)

    def _boot(self, pool: Pool, slots: list[int]) -> None:
        shape = self._shape(pool)
        racks: dict[int, int] = {}
        for slot in slots:
            boot = pool.booting[slot] = Boot(slot)
            if self._site.chance("pool never boots", f"slot/{pool.name}/{slot}"):
                self._site.note("node never boots", pool.name, slot)
                self._site.hold(_never(pool, slot), self._boots, pool, boot, 0)
                continue
            delay = self._boot_span(pool, slot)
            if shape.rack:  # a rack comes as one
                delay = racks.setdefault(slot // RACK_NODES, delay) + self._site.settings.node_ready.draw(self._rng)
            self._boots(pool, boot, delay)

    def _boot_span(self, pool: Pool, slot: int) -> int:
        slow = self._site.chance("pool boots slowly", f"slot/{pool.name}/{slot}")
        return (self._site.settings.boot_slow if slow else self._site.settings.boot).draw(self._rng)

    def _boots(self, pool: Pool, boot: Boot, delay: int) -> None:
        self._site.note("node boots", pool.name, boot.slot, delay)
        self._events.normal(pool.item, "CWNodeAssigned", f"A node was assigned to node pool {pool.name}")
        self._site.later(delay, self._booted, pool, boot)

    def _booted(self, pool: Pool, boot: Boot) -> None:
        if pool.booting.get(boot.slot) is not boot:
            return
        del pool.booting[boot.slot]
        shape = self._shape(pool)
        machine = pool.members[boot.slot] = self._nodes.join(pool.name, pool.uid, pool.valid, boot.slot, shape)
        self._events.normal(pool.item, "CWNodeRegistered", f"Node {machine.name} was registered")
        self.touch(pool)

    def _shape(self, pool: Pool) -> Shape:
        shape = shape_of(pool.valid, self._site.settings)
        assert shape is not None, pool.name  # its specification was found valid
        return shape

    # Less

    def _shrink(self, pool: Pool, excess: int) -> None:
        for under_way in (pool.queued, pool.booting):
            for slot in [*under_way][::-1][:excess]:
                under_way.pop(slot)
                self._site.drop(_never(pool, slot))
                excess -= 1
        if not pool.queued:
            self._site.drop(_capacity(pool))
        for slot in self._leavers(pool)[:excess]:
            pool.going[slot] = None
            self._nodes.remove(pool.members[slot], "its pool was scaled down")

    def _leavers(self, pool: Pool) -> list[int]:
        """Return the places of machines that may leave, first those that should: idle ones, and the newest first."""
        size = RACK_NODES if self._shape(pool).rack else 1
        busy = {slot // size: None for slot, machine in pool.members.items() if not machine.idle}
        stay = [slot for slot in sorted(pool.members, reverse=True) if slot not in pool.going]
        idle = [slot for slot in stay if slot // size not in busy]
        if (pool.spec.get("lifecycle") or {}).get("scaleDownStrategy", "IdleOnly") == "IdleOnly":
            return idle
        return idle + [slot for slot in stay if slot // size in busy]

    def abandon(self, pool: Pool) -> None:
        """Order no machine any more, and let go of those that are under way."""
        for slot in pool.booting:
            self._site.drop(_never(pool, slot))
        pool.booting.clear()
        pool.queued.clear()
        self._site.drop(_capacity(pool))
        self._site.drop(_quota(pool))

    def freed(self, kind: str) -> None:
        """Ask the quota again for those who were over it: a pool of their type has become smaller."""
        if kind in self._site.settings.quotas:
            for pool in [*self.pools.values()]:
                if pool.quota is Quota.OVER and pool.spec["instanceType"] == kind:
                    self._site.release(_quota(pool))

    # Machines

    def node_ready(self, machine: Machine) -> None:
        """Draw whether a machine on the spot market is taken back."""
        pool = self.pools.get(machine.pool_uid)
        if pool is not None and is_spot(pool.spec) and self._site.chance("spot interruption", f"node/{machine.name}"):
            self._site.doom(self._site.settings.early_death, self._rng, self._nodes.interrupt, machine)

    def node_left(self, machine: Machine, why: str) -> None:
        """Fill the place of a machine that has left, if it is still wanted."""
        pool = self.pools.get(machine.pool_uid)
        if pool is None or pool.members.get(machine.slot) is not machine:
            return
        del pool.members[machine.slot]
        replacing = machine.slot not in pool.going
        pool.going.pop(machine.slot, None)
        self.fill(pool, replacing=replacing)
        if not replacing:
            self.freed(pool.spec["instanceType"])

    def released(self, machine: Machine) -> None:
        """Let a machine go that is too much, now that a pod has left it."""
        pool = self.pools.get(machine.pool_uid)
        if pool is not None and machine.idle and pool.target < pool.committed:
            self.fill(pool)


def _capacity(pool: Pool) -> Key:
    return ("pool capacity", pool.uid)


def _quota(pool: Pool) -> Key:
    return ("pool quota", pool.uid)


def _never(pool: Pool, slot: int) -> Key:
    return ("pool boot", pool.uid, str(slot))
