"""What all controllers of the simulated CoreWeave share: the API as they use it, time, chance, and what waits.

Theory of operation. A controller acts in two ways only: it writes through the store, as any client does, and it asks to
be called later. Both stand here, so that the store's news is taken in before and after each timer, and so that two
kinds of refusals are told apart. A write may come too late: between two reactions users delete what a controller is
about to write to, and create another one of the same name; the watch tells it next. Any other answer that nobody
expects is a bug of the simulation and stops it at once.

Things that are stuck wait under a key: for a time, for a repair of the whole cloud (:meth:`Site.heal`), or for
whichever comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import attrs

from iriscw_sims.coreweave.fault_points import NAMES
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.settings import Settings, Span
from iriscw_sims.coreweave.surroundings import Api, Containers, Observer, Surroundings
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.messages import Request, Response

COREWEAVE = "system:serviceaccount:kube-system:coreweave"
"""As whom pools and nodes are written: one whom the store trusts, as a cluster trusts its own controllers."""

KUBELET = "system:serviceaccount:kube-system:kubelet"
"""As whom pods are written."""

MERGE_PATCH = "application/merge-patch+json"

TOO_LATE = (404, 409)
"""Codes of a write whose object is gone, or has a namesake by now."""

INVALID = 422

Key: TypeAlias = tuple[str, ...]


@attrs.define(eq=False)
class _Waiting:
    """One thing that waits."""

    function: Callable[..., None]
    args: tuple[Any, ...]


class Site:
    """What the controllers share.

    Args:
        store: The API server.
        surroundings: Time, chance and the trace.
        containers: Who runs what is in pods.
        observer: Whom to tell what the checks want to know.
        settings: How long things take.
    """

    def __init__(
        self, store: Api, surroundings: Surroundings, containers: Containers, observer: Observer, settings: Settings
    ) -> None:
        self.store = store
        self.surroundings = surroundings
        self.containers = containers
        self.observer = observer
        self.settings = settings
        self.react: Callable[[], None] = _nothing
        """Takes in the store's news: set by who puts the controllers together."""
        self.clock_off = 0
        """By how much the clock of all controllers is ahead of the API server's, ns; negative: behind."""
        self.healed = 0
        """How often everything was repaired."""
        self._waiting: dict[Key, _Waiting] = {}
        self._chance_names = dict.fromkeys(NAMES)

    # Time and chance

    @property
    def now(self) -> int:
        """The time in ns since 1970."""
        return self.surroundings.now

    @property
    def stamp(self) -> str:
        """The time by the controllers' clock, as the API writes it."""
        return written(self.surroundings.now + self.clock_off)

    def clock_of(self, machine: Machine) -> int:
        """Return the time by a machine's clock, ns since 1970."""
        return self.surroundings.now + machine.clock_off

    def stamp_of(self, machine: Machine) -> str:
        """Return the time by a machine's clock, as the API writes it."""
        return written(self.clock_of(machine))

    def stream(self, name: str) -> Random:
        """Return a stream of random numbers of its own."""
        return self.surroundings.rng(f"coreweave {name}")

    def chance(self, name: str, about: str) -> bool:
        """Tell whether a fault point comes true for somebody, such as ``node/NAME``."""
        assert name in self._chance_names, name
        return self.surroundings.chance(name, about)

    def note(self, *what: object) -> None:
        """Write a decision into the trace."""
        self.surroundings.note("coreweave", *what)

    def after(self, span: Span, rng: Random, function: Callable[..., None], *args: Any) -> int:
        """Do something after a drawn delay, and give the delay."""
        delay = span.draw(rng)
        self.later(delay, function, *args)
        return delay

    def later(self, delay: int, function: Callable[..., None], *args: Any) -> None:
        """Do something after ``delay`` ns."""
        self.surroundings.after(delay, self._fire, function, args)

    def doom(self, span: Span, rng: Random, function: Callable[..., None], *args: Any) -> int:
        """Do something bad after a drawn delay, unless everything was repaired meanwhile; give the delay."""
        return self.after(span, rng, self._strike, self.healed, function, args)

    def _strike(self, healed: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if healed == self.healed:
            function(*args)

    def _fire(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.react()
        function(*args)
        self.react()

    # What waits

    def hold(self, key: Key, function: Callable[..., None], *args: Any, after: int | None = None) -> None:
        """Do something when all is repaired, or after ``after`` ns; whatever waited under the key is forgotten."""
        waiting = self._waiting[key] = _Waiting(function, args)
        if after is not None:
            self.later(after, self._due, key, waiting)

    def drop(self, key: Key) -> None:
        """Let nothing wait under a key."""
        self._waiting.pop(key, None)

    def holds(self, key: Key) -> bool:
        """Tell whether something waits under a key."""
        return key in self._waiting

    def release(self, key: Key) -> None:
        """Do now what waits under a key, if anything does."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.function(*waiting.args)

    def _due(self, key: Key, waiting: _Waiting) -> None:
        if self._waiting.get(key) is waiting:
            self.release(key)

    def heal(self) -> None:
        """Do now all that waits, in the order in which it began to."""
        self.healed += 1
        for key in [*self._waiting]:
            self.release(key)
            self.react()

    # The API

    def ask(self, method: str, path: str, body: Any, user: str, accept: tuple[int, ...] = ()) -> FrozenDict | None:
        """Make a request, and give the object; None for a refusal of one of the codes in ``accept``."""
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        request = Request(method, path, body=body, content_type=content_type, user=user)
        response = self.store.handle(request, self.surroundings.now)
        if response.code < 300:
            return response.body  # type: ignore[return-value]  # a success is the store's own object
        if response.code in accept or _is_another(response):
            return None
        raise AssertionError(f"{method} {path} was answered {response.code}: {response.body.get('message')}")

    def create(self, path: str, body: Json, user: str = COREWEAVE) -> FrozenDict:
        """Create an object and give it."""
        created = self.ask("POST", path, body, user)
        assert created is not None
        return created

    def patch(self, path: str, item: FrozenDict, body: Json, user: str = COREWEAVE) -> FrozenDict:
        """Merge into the object that ``item`` was, and give it as it is now; as it was, if it is gone."""
        metadata = {**(body.get("metadata") or {}), "uid": item["metadata"]["uid"]}
        return self.ask("PATCH", path, {**body, "metadata": metadata}, user, accept=TOO_LATE) or item

    def delete(self, path: str, uid: str, user: str = COREWEAVE, grace_s: int | None = None) -> None:
        """Delete the object of this uid, if it is there, with its own grace or ``grace_s`` seconds of it."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        self.ask("DELETE", path, body, user, accept=TOO_LATE)


def _is_another(response: Response) -> bool:
    """Tell whether a patch was refused because its object is not the one that was meant."""
    causes = nested(response.body, "details", "causes") or ()
    return response.code == INVALID and any(each["field"] == "metadata.uid" for each in causes)


def _nothing() -> None:
    """Do nothing yet."""
