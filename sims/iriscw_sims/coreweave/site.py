"""What all controllers of the simulated CoreWeave share: the API as they use it, time, chance, and what waits.

Theory of operation. A controller acts in two ways only: it writes through the store, as any client does, and it asks to
be called later. Both stand here, so that an answer nobody expects stops the simulation at once (it is a bug of the
simulation: all of this is synchronous, and nobody comes in between), and so that the store's news is taken in before
and after each timer.

Things that are stuck wait under a key: for a time, for a repair of the whole cloud (:meth:`Site.heal`), or for
whichever comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import attrs

from iriscw_sims.coreweave.fault_points import NAMES
from iriscw_sims.coreweave.settings import Settings, Span
from iriscw_sims.coreweave.surroundings import Containers, Observer, Surroundings
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store

COREWEAVE = "system:serviceaccount:kube-system:coreweave"
"""As whom pools and nodes are written: one whom the store trusts, as a cluster trusts its own controllers."""

KUBELET = "system:serviceaccount:kube-system:kubelet"
"""As whom pods are written."""

MERGE_PATCH = "application/merge-patch+json"

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
        self, store: Store, surroundings: Surroundings, containers: Containers, observer: Observer, settings: Settings
    ) -> None:
        self.store = store
        self.surroundings = surroundings
        self.containers = containers
        self.observer = observer
        self.settings = settings
        self.react: Callable[[], None] = _nothing
        """Takes in the store's news: set by who puts the controllers together."""
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
        """The time as the API writes it."""
        return written(self.surroundings.now)

    def stream(self, name: str) -> Random:
        """Give a stream of random numbers of its own."""
        return self.surroundings.rng(f"coreweave {name}")

    def chance(self, name: str) -> bool:
        """Tell whether a fault point comes true."""
        assert name in self._chance_names, name
        return self.surroundings.chance(name)

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
        if response.code in accept:
            return None
        if response.code >= 300:
            raise AssertionError(f"{method} {path} was answered {response.code}: {response.body.get('message')}")
        return response.body  # type: ignore[return-value]  # a success is the store's own object

    def create(self, path: str, body: Json, user: str = COREWEAVE) -> FrozenDict:
        """Create an object and give it."""
        created = self.ask("POST", path, body, user)
        assert created is not None
        return created

    def patch(self, path: str, body: Json, user: str = COREWEAVE) -> FrozenDict:
        """Merge into an object and give it."""
        patched = self.ask("PATCH", path, body, user)
        assert patched is not None
        return patched

    def delete(self, path: str, uid: str, user: str = COREWEAVE, grace_s: int | None = None) -> None:
        """Delete the object of this uid, with its own grace or ``grace_s`` seconds of it."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        self.ask("DELETE", path, body, user)


def _nothing() -> None:
    """Do nothing yet."""
