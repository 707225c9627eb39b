"""What must always hold of the fleet, judged by what the cloud really has and what is really on the disk.

========  ============================================================================================
INV-F1    nothing is created outside before its slice is on the disk; at the end every pool has one owner
INV-F2    what is not ours, or carries the controller, is never asked to go; nothing is left over
INV-F3    only a slice written down as going loses its pool or pods; the longest idle goes first, and
          none with a live attempt, nor one for the loss of a pool that is there. One exception: in a group
          that has ``max_slices``, of those on which nothing that waits could run the longest idle goes
          first, and only while something waits that another slice of the group could run
INV-F4    promised slices never exceed ``max_slices``
INV-F5    a trouble is reported only where the cloud showed it; quota closes a group for its pause
INV-F6    no slice whose nodes never were all fit is taken for booted; no attempt is placed on one that
          never was complete
INV-F8    a deletion carries the uid and the version that was judged; who creates deletes nothing
========  ============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from iriscw.cloud.effects import CreateNodePool, CreatePod, DeleteNodePool, DeletePod
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_ROLE, LABEL_SLICE, ROLE_CONTROLLER, Attributes
from iriscw.fleet.groups.experience import CHURN_WINDOW, MIN_SAMPLES
from iriscw.fleet.groups.group import Group
from iriscw.fleet.messages import DemandChanged, DemandEntry, ReopenGroup
from iriscw.fleet.model import Availability, GroupConfig, SliceState, Trouble, slice_of
from iriscw.fleet.records import SliceDeleted, SliceDoomed, SlicePoolCreated, SliceRequested
from iriscw.fleet.root import Fleet
from iriscw.fleet.signals import CordonAnswered, Dismiss, GroupStarted, SliceReported, SliceStarted
from iriscw.fleet.slices.slice import Slice
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND
from iriscw.testing.simulation import EPOCH
from iriscw_sims.pace import CLUSTER

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

SLACK = 6 * SECOND
"""How far two idle clocks may differ for reasons that are nobody's fault: messages take turns."""

SLICES_KEPT = 1_000
"""Slices that are gone and remembered: what of them is still on its way arrives before a thousand others have gone."""

LONGEST_IDLE = "it was the longest idle"
"""How the reason begins that a group gives for a slice that it removes for being idle."""

OF_NO_USE = "nothing that waits could run there"
"""How the reason begins of a slice that goes so that another can take its place."""

POOL_LOST = "the node pool was removed from outside"
"""How the reason begins of a slice whose pool is gone, though nobody here asked for that."""

_CLOSED = (Availability.QUOTA_EXCEEDED, Availability.NO_CAPACITY, Availability.INVALID)

_SHOWN_AS = {Trouble.QUOTA: "quota", Trouble.CAPACITY: "capacity", Trouble.INVALID: "invalid"}


@attrs.define
class Promised:
    """A slice that is on the disk."""

    group: str
    doomed_at: int | None = None


HEARD: Final = frozenset(
    {SliceReported, SliceStarted, Dismiss, GroupStarted, ReopenGroup, CordonAnswered, DemandChanged}
)
"""The messages that :meth:`FleetChecks.delivered` has something to say about; it is not asked about others."""


class FleetChecks:
    """The checks, fed with what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.promised: dict[str, Promised] = {}
        """Slices on the disk that are not dropped yet."""
        self.ever: dict[str, str] = {}
        """The group of every slice that ever was on the disk."""
        self.pool_uids: dict[str, str] = {}
        """The first pool that each slice had by what is on the disk; a later one of its name comes to be deleted."""
        self.shown: dict[str, list[str]] = {}
        """What the cloud showed to be wrong, by slice."""
        self.whole: dict[str, None] = {}
        """Slices all of whose nodes were up at some time."""
        self.places: dict[str, dict[str, None]] = {}
        """Workers that have dialled with all that their group promises, by slice."""
        self.idle_since: dict[str, int] = {}
        """Since when nothing runs on a slice, as far as its actor can know."""
        self.dismissed_at: dict[str, int] = {}
        """When a slice's actor was first told to go: the patience with its deletion begins."""
        self.closed_until: dict[str, int] = {}
        """Until when a group that hit its quota asks for nothing."""
        self.closed_at: dict[str, int] = {}
        """When it was told so last: what it had decided before may reach the disk later."""
        self.answered: tuple[Group, CordonAnswered] | None = None
        """The answer on which a group decides in this step."""
        self.waiting: list[tuple[int, tuple[DemandEntry, ...]]] = []
        """What the fleet was told that waits, and when: as long as somebody may act on it."""

    def broken(self, invariant: str, what: str) -> None:
        """Note that an invariant does not hold."""
        self.world.violate(invariant, what)

    # What the cloud does

    def requested(self, effect: Any) -> None:
        """A request has left the controller: what it rests on must be on the disk."""
        match effect:
            case CreateNodePool(spec=spec):
                if spec.name not in self.promised:
                    self.broken("F1", f"the pool {spec.name} is asked for and no such slice is on the disk")
            case CreatePod(spec=spec):
                if spec.pool not in self.ever:
                    self.broken("F1", f"the pod {spec.name} is asked for and its slice was never on the disk")
            case DeleteNodePool(name=name, uid=uid):
                self._going(self.world.cloud.pools.get(name), uid, pool=True)
            case DeletePod(name=name, uid=uid):
                self._going(self.world.cloud.pods.get(name), uid, pool=False)

    def sent(self, effect: Any, request: ApiRequest) -> None:
        """A request leaves for the API server: it is about the very object that the effect names."""
        match effect, request.method:
            case ((CreateNodePool(spec=spec) | CreatePod(spec=spec)), "POST"):
                if request.body["metadata"]["name"] != spec.name:
                    self.broken("F1", f"{spec.name} is asked for under the name {request.body['metadata']['name']}")
            case ((CreateNodePool(spec=spec) | CreatePod(spec=spec)), "DELETE"):
                self.broken("F8", f"{request.path} is asked to go by who asks for {spec.name}")
            case ((DeleteNodePool(name=name, uid=uid) | DeletePod(name=name, uid=uid)), "DELETE"):
                only = (request.body or {}).get("preconditions", {})
                if request.path.rpartition("/")[2] != name or only.get("uid") != uid or not only.get("resourceVersion"):
                    self.broken("F8", f"{name} is asked to go whatever it is by now: {request.path}, {only}")

    def _going(self, thing: Any, uid: str, *, pool: bool) -> None:
        if thing is None or thing.uid != uid:
            return
        if thing.labels.get(LABEL_CLUSTER) != CLUSTER or thing.labels.get(LABEL_ROLE) == ROLE_CONTROLLER:
            self.broken("F2", f"{thing.name} is not ours and is asked to go")
            return
        promise = self.promised.get(thing.labels.get(LABEL_SLICE, ""))
        if pool and promise is not None and promise.doomed_at is None:
            self.broken("F3", f"the pool {thing.name} is asked to go, and nothing on the disk says so")

    def refused(self, slice_id: str, why: str) -> None:
        """The cloud shows what is wrong with a slice's pool."""
        self.shown.setdefault(slice_id, []).append(why)

    def booted(self, slice_id: str) -> None:
        """All nodes of a slice's pool are fit for work."""
        self.whole[slice_id] = None

    def dials(self, worker: SimWorker) -> None:
        """A worker that exists asks to be registered."""
        if worker.claims == worker.capacity:
            self.places.setdefault(worker.slice_id, {})[worker.worker_id] = None

    def registered(self, worker: SimWorker) -> None:
        """A worker was accepted."""
        if worker.worker_id not in self.places.get(worker.slice_id, {}):
            self.broken("F6", f"{worker.worker_id} has less than its group promises and was accepted")

    # What is on the disk

    def durable(self, path: str, record: Any) -> None:
        """A record reached the disk."""
        match record:
            case SliceRequested(slice_id=slice_id, requested_at_ns=requested_at):
                group = path.rpartition("/")[2]
                self.promised[slice_id] = Promised(group)
                self.ever[slice_id] = group
                self._within_bounds(group, requested_at - EPOCH)
            case SliceDoomed(slice_id=slice_id, reason=reason):
                self._still_there(slice_id, reason)
                self.promised[slice_id].doomed_at = self.world.simulation.now
                self._chosen(slice_id, reason)
            case SlicePoolCreated(slice_id=slice_id, pool_uid=uid):
                self.pool_uids.setdefault(slice_id, uid)
                if uid in self.world.cloud.strangers.uids:
                    self.broken("F2", f"{slice_id} takes the pool {uid} for its own, which is somebody else's")
            case SliceDeleted(slice_id=slice_id):
                del self.promised[slice_id]
                self._tidy()

    def _tidy(self) -> None:
        """Forget the oldest slices that are gone, so that a long run does not grow."""
        if len(self.ever) <= SLICES_KEPT + len(self.promised):
            return
        oldest = next(slice_id for slice_id in self.ever if slice_id not in self.promised)
        for book in (
            self.ever,
            self.pool_uids,
            self.shown,
            self.whole,
            self.places,
            self.idle_since,
            self.dismissed_at,
        ):
            book.pop(oldest, None)
        self.world.job_checks.forget_slice(oldest)

    def _still_there(self, slice_id: str, reason: str) -> None:
        """A slice goes because its pool is gone: not while the pool that it had is there, untouched."""
        pool = self.world.cloud.pools.get(slice_id)
        if reason.startswith(POOL_LOST) and pool is not None and pool.uid == self.pool_uids.get(slice_id):
            self.broken("F3", f"{slice_id} goes ({reason}), and its pool is there")

    def _chosen(self, slice_id: str, reason: str) -> None:
        live: list[str] = []
        if reason.startswith((LONGEST_IDLE, OF_NO_USE)):
            live = self.world.job_checks.live_on_slice(slice_id)
        elif reason.startswith("nobody needs it"):
            live = self.world.job_checks.running_on_slice(slice_id)
        for uid in live:
            self.broken("F3", f"{slice_id} goes ({reason}) while {uid} lives there")

    def _within_bounds(self, group: str, decided_at: int) -> None:
        now = self.world.simulation.now
        patience = self.world.group(group).timing.deletion_patience
        counted = [
            slice_id
            for slice_id, each in self.promised.items()
            if each.group == group and now - self.dismissed_at.get(slice_id, now) < patience
        ]
        most = self.world.group(group).max_slices
        if len(counted) > most:
            self.broken("F4", f"{group} has {len(counted)} slices of at most {most}: {', '.join(counted)}")
        if decided_at > self.closed_at.get(group, 0) and now < self.closed_until.get(group, 0):
            self.broken("F5", f"{group} asks for a slice while its quota is known to be used up")

    # What actors are told

    def delivered(self, cell: Cell, message: Any) -> None:
        """An actor is about to decide on a message."""
        match message:
            case SliceReported():
                self._reported(cell.state, message)
            case SliceStarted(slice_id=slice_id):
                self.idle_since[slice_id] = self.world.simulation.now
            case Dismiss():
                self.dismissed_at.setdefault(cell.path.name, self.world.simulation.now)
            case GroupStarted(group=group):
                self.closed_until.pop(group, None)
            case ReopenGroup(group=group):
                self.closed_until.pop(group, None)
            case CordonAnswered() if isinstance(cell.state, Group):
                self.answered = (cell.state, message)
            case DemandChanged(entries=entries):
                now = self.world.simulation.now
                later = [at for at, _ in self.waiting[1:]]
                self.waiting = [
                    each for each, until in zip(self.waiting, later, strict=False) if until + SLACK > now
                ] + self.waiting[-1:]
                self.waiting.append((now, entries))

    def _reported(self, group: Group, report: SliceReported) -> None:
        row = report.row
        shown = _SHOWN_AS.get(row.trouble)
        if shown is not None and shown not in self.shown.get(row.slice_id, []):
            self.broken("F5", f"{row.slice_id} reports {row.trouble.value!r}: {self.shown.get(row.slice_id)} was shown")
        if row.trouble is not Trouble.NONE and not row.reason and row.state is not SliceState.GONE:
            self.broken("F5", f"{row.slice_id} gives no reason for {row.trouble.value!r}")
        if row.state in (SliceState.INITIALIZING, SliceState.READY):
            if row.slice_id not in self.whole:
                self.broken("F6", f"{row.slice_id} is taken for {row.state.value} and its nodes never were all fit")
            self.closed_until.pop(row.group, None)
        promise, closure = group.promises.get(row.slice_id), group.sight.closure
        now = self.world.simulation.now
        closed = closure is not None and (closure.until is None or now < closure.until)
        fresh = promise is not None and not promise.doomed and not closed
        if row.state is SliceState.FAILED and shown == "quota" and fresh:
            self.closed_until[row.group] = now + self.world.group(row.group).timing.quota_backoff * 3 // 4 - SECOND
            self.closed_at[row.group] = now

    def check(self) -> None:
        """Look at what a group has done about the answer to a cordon, in the step in which it did."""
        if self.answered is None:
            return
        (group, cordon), self.answered = self.answered, None
        promise = group.promises.get(cordon.slice_id)
        if promise is not None and promise.doomed.startswith(LONGEST_IDLE):
            self._longest_idle(cordon, list(self.promised))
        if promise is not None and promise.doomed.startswith(OF_NO_USE):
            self._of_no_use(group, cordon)

    def _of_no_use(self, group: Group, cordon: CordonAnswered) -> None:
        """The fleet chose a slice for another to take its place: it must be one of those that are of no use."""
        config = group.config
        if len(group.promises) < config.max_slices:
            self.broken("F3", f"{cordon.slice_id} goes for another, and its group has not max_slices")
        recent = [entries for _, entries in self.waiting] or [()]
        if all(self._is_of_use(cordon.slice_id, config, entries) for entries in recent):
            self.broken("F3", f"{cordon.slice_id} goes for another: what waits could run there, or nothing waits")
        rivals = [
            slice_id
            for slice_id in self.promised
            if not any(self._is_of_use(slice_id, config, entries) for entries in recent)
        ]
        self._longest_idle(cordon, rivals)

    def _is_of_use(self, slice_id: str, config: GroupConfig, entries: tuple[DemandEntry, ...]) -> bool:
        """Whether something that waits could run on a slice, or nothing waits that any of its group could run."""
        fleet = self.world.system.state("/fleet")
        workers = fleet.workers.get(slice_id, ()) if isinstance(fleet, Fleet) else ()
        known = config.attributes.merged(Attributes({"group": config.name}))
        waits = False
        for entry in entries:
            asked = [each for each in entry.constraints if each.required]
            group_says = [each for each in asked if each.key in known]
            if config.per_worker.shortage(entry.demand) or not all(each.satisfied(known) for each in group_says):
                continue
            waits = waits or entry.count > 0
            if not workers or any(all(each.satisfied(worker) for each in asked) for worker in workers):
                return True
        return not waits

    def _longest_idle(self, cordon: CordonAnswered, rivals: list[str]) -> None:
        """The fleet chose a slice to remove: none of its rivals may have been idle for longer."""
        chosen = self._slice(cordon.slice_id)
        if chosen is None or chosen.state is not SliceState.READY:
            return
        mine = self.since(cordon.slice_id, chosen)
        for slice_id in rivals:
            other = self._slice(slice_id)
            rival = other is not None and other.state is SliceState.READY and other.seed.config == chosen.seed.config
            if not rival or other is None or self._doomed(slice_id):
                continue
            if self.world.job_checks.live_on_slice(slice_id) or other.live_total:
                continue
            theirs = self.since(slice_id, other)
            if theirs + SLACK < mine:
                idle = (self.world.simulation.now - mine) // SECOND, (self.world.simulation.now - theirs) // SECOND
                self.broken(
                    "F3", f"{cordon.slice_id}, idle for {idle[0]} s, goes before {slice_id}, idle for {idle[1]} s"
                )

    def _doomed(self, slice_id: str) -> bool:
        """Whether it is written down, or about to be, that a slice goes."""
        group = self.world.system.state(f"/fleet/{self.ever[slice_id]}")
        promise = group.promises.get(slice_id) if isinstance(group, Group) else None
        return promise is None or bool(promise.doomed)

    def _slice(self, slice_id: str) -> Slice | None:
        state = self.world.system.state(f"/fleet/{self.ever.get(slice_id, '')}/{slice_id}")
        return state if isinstance(state, Slice) else None

    def since(self, slice_id: str, piece: Slice) -> int:
        """Return since when a slice may count as idle: the latest of all that starts its clock anew."""
        last = self.world.job_checks.last_end_on_slice.get(slice_id, 0)
        return max(last, self.idle_since.get(slice_id, 0), piece.ready_since or 0, self.world.booted_at)

    def placed(self, worker_id: str) -> None:
        """An attempt was placed on a worker."""
        slice_id = slice_of(worker_id)
        size = self.world.group(self.ever[slice_id]).num_vms
        if slice_id not in self.whole or len(self.places.get(slice_id, ())) < size:
            known = len(self.places.get(slice_id, ()))
            self.broken("F6", f"an attempt is placed on {worker_id}: {known} of {size} workers ever dialled")

    # At the end

    def left_over(self) -> str:
        """Say what keeps the fleet from being as small as it should be; empty if nothing does."""
        world = self.world
        for pool in world.cloud.pools.values():
            foreign = pool.labels.get(LABEL_CLUSTER) != CLUSTER or pool.labels.get(LABEL_ROLE) == ROLE_CONTROLLER
            if not foreign and pool.name not in self.promised:
                return f"the pool {pool.name} belongs to nobody"
        for pod in world.cloud.pods.values():
            if pod.uid not in world.cloud.strangers.uids and pod.labels.get(LABEL_SLICE) not in self.promised:
                return f"the pod {pod.name} belongs to nobody"
        for config in world.plan.groups:
            slices = [slice_id for slice_id, each in self.promised.items() if each.group == config.name]
            wanted = min(config.max_slices, max(config.min_slices, config.buffer_slices))
            if world.policy is not None:
                wanted = world.policy.resting(config)
            states = {slice_id: self._slice(slice_id) for slice_id in slices}
            unready = [
                slice_id for slice_id, piece in states.items() if piece is None or piece.state is not SliceState.READY
            ]
            if unready or len(slices) != wanted:
                return f"{config.name} has {len(slices)} slices, not {wanted}; not ready are {unready}"
        return self._still_told()

    def _still_told(self) -> str:
        """Say what users are told to be wrong, although nothing is any more."""
        fleet = self.world.system.state("/fleet")
        if not isinstance(fleet, Fleet):
            return "nobody looks after the fleet"
        for kind, watching in fleet.watches.items():
            if watching.error:
                return f"the watch of {kind} is said to be broken: {watching.error}"
        for row in fleet.rows.values():
            if row.trouble is not Trouble.NONE:
                return f"{row.slice_id} is said to have the trouble {row.trouble.value!r}: {row.reason}"
        for report in fleet.reports.values():
            if report.availability in _CLOSED:
                return f"{report.row.group} is said to be closed, {report.availability.value!r}: {report.row.reason}"
        return ""

    def churns(self) -> bool:
        """Whether a group remembers slices that died young, and does less for that."""
        now = self.world.simulation.now
        for config in self.world.plan.groups:
            group = self.world.system.state(f"/fleet/{config.name}")
            if isinstance(group, Group):
                lives = [short for ended, short in group.sight.experience.lives if ended + CHURN_WINDOW > now]
                if len(lives) >= MIN_SAMPLES and any(lives):
                    return True
        return False
