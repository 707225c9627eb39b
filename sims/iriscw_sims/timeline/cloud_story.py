"""What the simulated CoreWeave says of itself, told to a recorder: what really happens, which the fleet learns later.

Theory of operation. The cloud notes what it does (:class:`iriscw_sims.coreweave.surroundings.Surroundings`): a pool is
judged, a machine boots, joins, dies, a container starts. A pool has *slots*, one for each node that it is to have;
machines come and go in them. So a slot is a lane, below the slice whose pool it is, and the machine that is in it is
the label of its spans. Notes that nobody here knows are left out; a test tells of new ones.
"""

from __future__ import annotations

from typing import Final

from iriscw.fleet.model import slice_of
from iriscw_sims.timeline.model import Level, Tone, name_of
from iriscw_sims.timeline.recorder import Recorder

WHO: Final = "coreweave"
"""How the cloud's notes begin."""

BOOTS, IN_SERVICE, SILENT, LEAVES, DEAD = "boots", "in service", "out of reach", "leaves", "dead"

_OF_POOLS: Final = {
    "pool appears": "its pool is taken in",
    "pool judged": "its pool is judged",
    "pool has no quota": "its pool has no quota",
    "pool waits for machines": "its pool waits for machines",
    "pool deletion stuck": "the deletion of its pool is stuck",
    "pool deleted": "its pool is being deleted",
    "pool gone": "its pool is gone",
}

_OF_PODS: Final = {
    "pod bound": "its pod has a node",
    "image pulled": "its image is there",
    "image pull slow": "its image comes slowly",
    "image pull fails": "its image cannot be pulled",
    "image pull limited": "its image is refused for now",
    "mount fails": "a volume cannot be mounted",
    "container config missing": "its container's configuration is missing",
    "container starts": "its container starts",
    "container does not start": "its container does not start",
    "container killed": "its container is killed",
    "container exits": "its container exits",
    "pod evicted": "its pod is evicted",
    "pod driven off": "its pod is driven off its node",
    "pod deletion stuck": "the deletion of its pod is stuck",
    "pod forced away": "its pod is forced away",
    "pod collected": "its pod is collected, its node is gone",
    "pod without owner": "its pod has no owner left",
}

_FATES: Final = (
    *("node dies early", "node triaged", "node cordoned"),
    *("node short", "node not ready", "node clock jumps", "controllers' clock jumps"),
)
"""What is drawn for a node when it joins, or comes true at once: either is told by a fault, or by what follows."""

_GOOD: Final = ("container starts", "image pulled", "pod bound", "pool appears", "pool judged", "pool gone")

KNOWN: Final = (
    *(*_OF_POOLS, *_OF_PODS, *_FATES),
    *("node boots", "node never boots", "node joins", "node dies", "node lost", "node back", "node leaves"),
    *("its node was interrupted", "node gone"),
)
"""The first words of all notes that are known here."""


class CloudStory:
    """The cloud's part of a timeline."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._slots: dict[str, tuple[str, str]] = {}
        """The lane and the pool of each machine that is not gone."""

    def subject(self, about: str) -> str:
        """Return the subject of whom a fault hit: a machine's slot, a pool's slice, a pod's worker."""
        kind, _, name = about.partition("/")
        match kind:
            case "node":
                return self._slots[name][0] if name in self._slots else about
            case "slot":
                return f"node/{name}"
            case "pool":
                return f"slice/{name}"
            case "pod":
                return f"worker/{slice_of(name)}"  # a pod's name is its place's with the incarnation behind it
            case _:
                return about

    def noted(self, at: int, what: tuple[object, ...]) -> None:
        """Take in a note."""
        match what:
            case (_, "node boots" | "node never boots" as note, str(pool), int(slot), *_):
                never = note == "node never boots"
                self._slot(at, self._lane(pool, slot), BOOTS, "it never will" if never else "its pool needs it")
            case (_, "node joins", str(pool), int(slot), str(machine)):
                self._slots[machine] = (self._lane(pool, slot), pool)
                self._machine(at, machine, IN_SERVICE, f"{machine} joins the cluster", Tone.GOOD)
            case (_, "node dies", str(machine), str(why)):
                self._machine(at, machine, DEAD, why, Tone.BAD)
            case (_, "node lost", str(machine), *_):
                self._machine(at, machine, SILENT, "its network is gone", Tone.BAD)
            case (_, "node back", str(machine)):
                self._machine(at, machine, IN_SERVICE, "its network is back", Tone.GOOD)
            case (_, "node leaves", str(machine), str(why), *_):
                self._machine(at, machine, LEAVES, why)
            case (_, "its node was interrupted" as why, str(machine), *_):
                self._machine(at, machine, LEAVES, why)
            case (_, "node gone", str(machine), str(why)):
                self._gone(at, machine, why)
            case (_, str(note), str(pool), *rest) if note in _OF_POOLS:
                self._pool(at, note, pool, rest)
            case (_, str(note), str(pod), *rest) if note in _OF_PODS:
                self._pod(at, note, pod, rest)

    # Nodes

    def _lane(self, pool: str, slot: int) -> str:
        above, lane = f"slice/{pool}", f"node/{pool}/{slot}"
        if above in self._recorder:
            self._recorder.lane(lane, above)
        return lane

    def _slot(self, at: int, lane: str, state: str, why: str, tone: Tone = Tone.PLAIN, label: str = "") -> None:
        if lane in self._recorder:
            self._recorder.enter(at, lane, state, why, label=label)
            above = f"slice/{lane.split('/')[1]}"
            self._recorder.event(at, lane, f"node {state}", why, tone=tone, about=(above,))

    def _machine(self, at: int, machine: str, state: str, why: str, tone: Tone = Tone.PLAIN) -> None:
        if machine in self._slots:
            self._slot(at, self._slots[machine][0], state, why, tone, machine)

    def _gone(self, at: int, machine: str, why: str) -> None:
        lane, pool = self._slots.pop(machine, ("", ""))
        if self._recorder.leave(at, lane, why, outcome="gone"):
            self._recorder.event(at, lane, "node gone", why, about=(f"slice/{pool}",))

    # Pools and pods

    def _pool(self, at: int, note: str, pool: str, rest: list[object]) -> None:
        subject = f"slice/{pool}"
        if subject not in self._recorder:
            return
        tone = Tone.PLAIN if note in _GOOD or note == "pool deleted" else Tone.BAD
        refused = note == "pool judged" and rest[:1] != [""]
        why = _texts(rest) or "the cloud's own doing"
        level = Level.DETAIL if tone is Tone.PLAIN and not refused else Level.CHANGE
        self._recorder.event(at, subject, _OF_POOLS[note], why, level=level, tone=Tone.BAD if refused else tone)
        if note == "pool gone":
            for lane in self._recorder.below(subject):
                if lane.startswith("node/"):
                    self._recorder.leave(at, lane, "its pool is gone", outcome="gone")

    def _pod(self, at: int, note: str, pod: str, rest: list[object]) -> None:
        subject = self.subject(f"pod/{pod}")
        tone = Tone.PLAIN if note in _GOOD else Tone.BAD
        level = Level.DETAIL if tone is Tone.PLAIN else Level.CHANGE
        why = _texts(rest) or "the cloud's own doing"
        self._recorder.event(
            at, subject, _OF_PODS[note], why, level=level, tone=tone, about=(f"slice/{slice_of(name_of(subject))}",)
        )


def _texts(rest: list[object]) -> str:
    """Return the reasons and names in a note; its numbers are delays and counts that the times show anyway."""
    return ", ".join(each for each in rest if isinstance(each, str) and each)
