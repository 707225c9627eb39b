"""Pools and pods that carry our labels and belong to no slice: deleted, one by one, until they are gone.

They come from creates that landed after the slice was given up or its controller died, from groups that are
not in the configuration any more, and from pods whose slice is gone (INV-F1, INV-F2). An orphan is named by
kind, name and uid, so that a successor of the same name is never deleted in its place.
"""

from __future__ import annotations

from random import Random

import attrs

from iriscw.cloud.effects import DeleteNodePool, DeletePod
from iriscw.cloud.lifecycle import CallRefusal, judge_error
from iriscw.cloud.model import LABEL_ROLE, ROLE_CONTROLLER, NodePool, Pod
from iriscw.fleet.model import Timing
from iriscw.fleet.pacing import backoff
from iriscw.fleet.signals import TryAgain
from iriscw.runtime.vocabulary import Command, Run, SetTimer

Thing = NodePool | Pod


@attrs.define
class Orphan:
    """One orphan, and how often its deletion was asked for."""

    thing: Thing
    attempts: int = 0


@attrs.define
class Orphans:
    """All orphans of one owner, by kind and name."""

    known: dict[str, Orphan] = attrs.field(factory=dict)
    waiting: dict[str, None] = attrs.field(factory=dict)
    """Those whose deletion is to be asked for, in the order in which they were found."""

    @staticmethod
    def name_of(thing: Thing) -> str:
        """Return the key of an orphan: ``pool:<name>`` or ``pod:<name>``."""
        return f"{'pool' if isinstance(thing, NodePool) else 'pod'}:{thing.name}"

    def found(self, thing: Thing) -> None:
        """Take note of an orphan, or of a change of one."""
        assert thing.labels.get(LABEL_ROLE) != ROLE_CONTROLLER, "what carries the controller is never an orphan"
        name = self.name_of(thing)
        orphan = self.known.get(name)
        if orphan is None or orphan.thing.uid != thing.uid:
            self.known[name] = Orphan(thing)
            self.waiting[name] = None
        else:
            orphan.thing = thing

    def gone(self, thing: Thing) -> bool:
        """Take note that an orphan is gone; tells whether it was one."""
        name = self.name_of(thing)
        orphan = self.known.get(name)
        if orphan is None or orphan.thing.uid != thing.uid:
            return False
        self._drop(name)
        return True

    def listed(self, kind: type[Thing], things: tuple[Thing, ...]) -> None:
        """Drop what is not listed any more."""
        present = {self.name_of(thing): thing.uid for thing in things}
        for name, orphan in list(self.known.items()):
            if isinstance(orphan.thing, kind) and present.get(name) != orphan.thing.uid:
                self._drop(name)

    def _drop(self, name: str) -> None:
        del self.known[name]
        self.waiting.pop(name, None)

    def ask(self, count: int) -> list[Command]:
        """Ask for the deletion of up to ``count`` that wait for it."""
        names = list(self.waiting)[:count]
        commands: list[Command] = []
        for name in names:
            del self.waiting[name]
            commands.append(self._delete(name))
        return commands

    def _delete(self, name: str) -> Command:
        orphan = self.known[name]
        orphan.attempts += 1
        thing = orphan.thing
        effect = (
            DeleteNodePool(thing.name, thing.uid) if isinstance(thing, NodePool) else DeletePod(thing.name, thing.uid)
        )
        return Run(("orphan", name), effect)

    def answered(self, name: str, error: Exception | None, timing: Timing, rng: Random) -> list[Command]:
        """Act on the answer to a deletion: unless the orphan is gone, it is asked for again after a while."""
        orphan = self.known.get(name)
        if orphan is None:
            return []
        if error is not None and judge_error(error).refusal is CallRefusal.ABSENT:
            self._drop(name)
            return []
        delay = backoff(max(1, orphan.attempts), timing.deletion_retry, timing.deletion_patience, rng)
        return [SetTimer(("orphan", name), delay, TryAgain(f"orphan {name}"))]

    def try_again(self, what: str) -> None:
        """Put an orphan whose pause is over back in line."""
        name = what.removeprefix("orphan ")
        if name in self.known:
            self.waiting[name] = None

    @property
    def names(self) -> tuple[str, ...]:
        """All orphans, for people."""
        return tuple(sorted(self.known))
