"""What the controller must have made of what it was told, judged by the raw answers of the API server.

Theory of operation. Checks elsewhere ask whether what the fleet says is true. These ask the other way round: what the
API server has said, and the driver's connection has carried, must show in what the fleet knows, by its name, within
:data:`ATTENTION`; and it must go when what was said is taken back. So a driver that never reads a condition, a pod's
end or a deletion mark is noticed, although whatever it says is true.

The clock of this begins when the answer has arrived: no outage, lost request or silent watch excuses anybody. It stands
still while the controller cannot act: when it is down, closes, stands still, waits for its disk, or an actor of its own
was made to fail. What is judged is read here from the objects as they were sent, by a reading of its own.

========  ============================================================================================
INV-F5    a pool that is refused for its quota, waits for machines, or is invalid has that trouble, by
          name, while the API says so and no longer; refused credentials are told as such
INV-F2    a pool or pod that is marked for deletion, has ended, or is gone counts as that
INV-F9    what the credentials do not allow is asked for again ever more slowly
========  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from iriscw.cloud.effects import CreateNodePool, CreatePod
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.model import LABEL_GROUP, LABEL_SLICE, LABEL_WORKER, CloudError
from iriscw.fleet.lifecycle import GOING
from iriscw.fleet.model import PodState, SliceState, Trouble
from iriscw.fleet.pods import WorkerPlace
from iriscw.fleet.root import Fleet
from iriscw.fleet.slices.slice import Slice
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.telling import PODS, POOLS, is_refusal

if TYPE_CHECKING:
    from iriscw_sims.world import World

ATTENTION: Final = 10 * SECOND
"""How long what was told may take to the actor that it concerns: messages take no time, a full mailbox some seconds."""

REPEATS_AT_ONCE: Final = 4
"""Times that the same may be refused before growing pauses are asked for: slices begin anew."""

GONE, GOES, OVER = "gone", "is being deleted", "has ended"
_WORKS: Final = (PodState.STARTING, PodState.REGISTERED)
_TROUBLES: Final = {"quota": Trouble.QUOTA, "capacity": Trouble.CAPACITY, "invalid": Trouble.INVALID}
_REFUSED: Final = "credentials"
"""A word of every sentence that says that credentials do not do."""


@attrs.frozen
class Fact:
    """Something that was told of an object, and when."""

    since: int
    says: str
    uid: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define
class Refusals:
    """How often one thing was refused in a row, and since when."""

    since: int
    count: int = 0


class ToldChecks:
    """What was told, and whether it was understood."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._facts: dict[tuple[str, str], Fact] = {}
        """What has to show, by kind and name."""
        self._known: dict[tuple[str, str], Fact] = {}
        """What was told last of each pool and pod that is there."""
        self._refusals: dict[tuple[str, str], Refusals] = {}
        self._acts_since = 0
        """Since when nothing keeps the controller from acting."""
        self._hindrances = (0, 0)

    def forget(self) -> None:
        """The controller is down: what it was told is lost."""
        self._facts.clear()
        self._known.clear()
        self._refusals.clear()

    # What is told

    def listed(self, kind: str, objects: Mapping[str, Any]) -> None:
        """A whole list of pools or pods has arrived: what is not in it is gone."""
        for key in [key for key in self._known if key[0] == kind and key[1] not in objects]:
            self._gone(*key)
        for thing in objects.values():
            self.shown(kind, thing)

    def shown(self, kind: str, thing: Any) -> None:
        """An object has arrived, as it is now."""
        metadata = thing["metadata"]
        key, says = (kind, metadata["name"]), (_pool_says if kind == POOLS else _pod_says)(thing)
        before = self._known.get(key)
        if before is not None and (before.uid, before.says) == (metadata["uid"], says):
            return
        fact = Fact(self.world.simulation.now, says, metadata["uid"], metadata.get("labels", {}))
        self._known[key] = fact
        # That nothing is wrong is only worth a look where something was.
        if says or (before is not None and before.uid == fact.uid and before.says):
            self._facts[key] = fact
        else:
            self._facts.pop(key, None)

    def vanished(self, kind: str, thing: Any) -> None:
        """It has arrived that an object is gone."""
        self._gone(kind, thing["metadata"]["name"])

    def _gone(self, kind: str, name: str) -> None:
        known = self._known.pop((kind, name), None)
        if known is not None:
            self._facts[kind, name] = attrs.evolve(known, since=self.world.simulation.now, says=GONE)

    def watch_ended(self, kind: str, error: CloudError, refused: bool) -> None:
        """A watch was given up by the driver; ``refused``: the last that it was told is that it has no right."""
        for key in [key for key in self._facts if key[0] == kind]:
            del self._facts[key]
        self._facts["watch", kind] = Fact(self.world.simulation.now, _REFUSED if refused else str(error))

    def watch_shows(self, kind: str) -> None:
        """A watch has shown something."""
        self._facts.pop(("watch", kind), None)

    def concluded(self, effect: Any, answers: Sequence[ApiResponse | None]) -> None:
        """A call is over, after these answers; None: nothing was answered."""
        match effect:
            case CreateNodePool(spec=spec):
                key, labels = ("create pool", spec.name), spec.labels
            case CreatePod(spec=spec):
                key, labels = ("create pod", spec.labels[LABEL_WORKER]), spec.labels
            case _:
                return
        # Who was also told of something else may say that instead.
        served = [each for each in answers if each is not None and each.code < 500]
        if len(served) < len(answers) or not served or not is_refusal(served[-1].code, served[-1].body):
            self._facts.pop(key, None)
            self._refusals.pop(key, None)
            return
        self._facts.setdefault(key, Fact(self.world.simulation.now, _REFUSED, labels=labels))
        self._storm(key, labels[LABEL_GROUP])

    def _storm(self, key: tuple[str, str], group: str) -> None:
        now = self.world.simulation.now
        refusals = self._refusals.setdefault(key, Refusals(now))
        refusals.count += 1
        timing = self.world.group(group).timing
        pauses = (
            min(timing.retry_backoff_max, timing.retry_backoff << turn)
            for turn in range(refusals.count - REPEATS_AT_ONCE)
        )
        if now - refusals.since < sum(pauses) * 3 // 4:
            seconds = (now - refusals.since) // SECOND
            self.world.violate("F9", f"{' '.join(key)} is refused {refusals.count} times within {seconds} s")

    # Whether it shows

    def look(self) -> None:
        """Look whether what was told long enough ago shows."""
        if self._is_hindered():
            self._acts_since = self.world.simulation.now
            return
        due = self.world.simulation.now - ATTENTION
        if not self._facts or self._acts_since > due:
            return
        for key, fact in [each for each in self._facts.items() if each[1].since <= due]:
            if fact.says != _REFUSED or key[0] == "watch":  # a refusal stands until it is over
                del self._facts[key]
            kind, name = key
            if kind == POOLS:
                self._pool(name, fact)
            elif kind == PODS:
                self._pod(name, fact)
            elif kind == "watch":
                self._watch(name, fact)
            else:
                self._create(kind, name, fact)

    def _is_hindered(self) -> bool:
        world, system = self.world, self.world.system
        hindrances = (len(system.failures), world.stalled)
        before, self._hindrances = self._hindrances, hindrances
        if hindrances[0] != before[0]:
            self.forget()  # an actor began anew, and knows nothing until it is told again
        journal = system.journal
        waits = journal.appended != journal.durable or bool(journal.trouble)
        return system.crashed or system.tree.closing or waits or hindrances != before

    def _slice(self, slice_id: str) -> Slice | None:
        """Return a slice that has been told what there is, and is not about to go."""
        promise = self.world.fleet_checks.promised.get(slice_id)
        if promise is None or promise.doomed_at is not None:
            return None
        piece = self.world.system.state(f"/fleet/{promise.group}/{slice_id}")
        return piece if isinstance(piece, Slice) and piece.briefed else None

    def _pool(self, name: str, fact: Fact) -> None:
        piece = self._slice(name)
        if piece is None or fact.labels.get(LABEL_SLICE) != name:
            return
        # One that is only REQUESTED by now began when the pool was gone already, and looks for it by itself.
        is_over = piece.state in (SliceState.FAILED, SliceState.REQUESTED, *GOING)
        if fact.says in (GONE, GOES):
            if piece.pool_uid == fact.uid and not is_over:
                self.world.violate("F2", f"the pool {name} {fact.says}, and its slice is {piece.state.value}")
        elif piece.state in (SliceState.REQUESTED, SliceState.CREATING, SliceState.BOOTING):
            self._trouble(piece, fact)

    def _trouble(self, piece: Slice, fact: Fact) -> None:
        name, wanted = piece.seed.slice_id, _TROUBLES.get(fact.says)
        if wanted is None:
            if piece.trouble in _TROUBLES.values():
                self.world.violate("F5", f"{name} has the trouble {piece.trouble.value!r}, and its pool has none")
            return
        fleet = self.world.system.state("/fleet")
        row = fleet.rows.get(name) if isinstance(fleet, Fleet) else None
        shown = piece.trouble if row is None else row.trouble
        if piece.trouble is not wanted or shown is not wanted or not piece.reason:
            told = f"the API says {fact.says!r} of its pool"
            self.world.violate("F5", f"{name} is {piece.state.value} with trouble {shown.value!r}; {told}")

    def _pod(self, name: str, fact: Fact) -> None:
        piece = self._slice(fact.labels.get(LABEL_SLICE, ""))
        place = self._place(fact.labels)
        if piece is None or place is None or place.pod is None or place.pod.uid != fact.uid:
            return
        if place.state in _WORKS or fact.says == GONE:
            self.world.violate("F2", f"the pod {name} {fact.says}, and its place is {place.state.value}")

    def _place(self, labels: Mapping[str, str]) -> WorkerPlace | None:
        path = "/".join(labels.get(each, "") for each in (LABEL_GROUP, LABEL_SLICE, LABEL_WORKER))
        place = self.world.system.state(f"/fleet/{path}")
        return place if isinstance(place, WorkerPlace) and place.briefed else None

    def _watch(self, kind: str, fact: Fact) -> None:
        fleet = self.world.system.state("/fleet")
        if not isinstance(fleet, Fleet):
            return
        error = fleet.watches[kind].error
        if not error or (fact.says == _REFUSED and _REFUSED not in error):
            self.world.violate("F5", f"the watch of {kind} has ended, and users are told {error!r}: {fact.says}")

    def _create(self, kind: str, name: str, fact: Fact) -> None:
        """What the credentials do not allow is told as that, by name, where people look."""
        piece = self._slice(fact.labels[LABEL_SLICE])
        if piece is None:
            return
        if kind == "create pool":
            waits = piece.state is SliceState.CREATING
        else:
            place = self._place(fact.labels)
            waits = piece.state is SliceState.INITIALIZING and place is not None and place.state is PodState.CREATING
        if waits and not (piece.trouble is Trouble.FORBIDDEN and _REFUSED in piece.reason):
            told = f"{piece.trouble.value!r}: {piece.reason}"
            self.world.violate("F5", f"{name} is refused for its credentials, and its slice has the trouble {told}")


def _pool_says(pool: Any) -> str:
    """Read what a pool says to be wrong: the first of what matters, in the order in which it matters."""
    if pool["metadata"].get("deletionTimestamp"):
        return GOES
    status = pool.get("status", {})
    conditions: Sequence[Any] = status.get("conditions", ())
    by_type = {each["type"]: each for each in conditions}
    if any(by_type.get(name, {}).get("status") == "False" for name in ("Validated", "Valid")):
        return "invalid"
    coming = status.get("inProgress", status.get("inProgressNodes", 0))
    if status.get("currentNodes", 0) + coming >= pool["spec"]["targetNodes"]:
        return ""
    if by_type.get("Quota", {}).get("reason") in ("Over", "NotSet"):
        return "quota"
    return "capacity" if by_type.get("Capacity", {}).get("reason") == "QueuedAwaitingCapacity" else ""


def _pod_says(pod: Any) -> str:
    """Read whether a pod is over, or about to be."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return OVER
    return GOES if pod["metadata"].get("deletionTimestamp") else ""
