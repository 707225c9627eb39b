"""Who leads: one controller at a time, by a Lease of the cluster's (INV-F8). A pure state machine.

Theory of operation. A candidate looks at the Lease again and again. It may take it when nobody holds it, or when it has
seen the same version of it, or none at all, for as long as a lease lasts; no clock but its own monotonic one counts, so
clocks may be wrong or jump. It takes it by writing to the very version that it saw, of the very object (its uid): of
two who do, one is refused. Somebody may delete a Lease under its holder, and make another one: who finds it without a
holder waits as for a holder, unless the holder freed it.

Who holds the Lease renews it. It may act until a lease after it *sent* the last write that was answered: whoever
takes over has seen that write, or a later one, for a whole lease, so they never overlap. A write that was not answered
extends nothing for the writer, and at most the wait of others. :attr:`Candidate.acts_until` is earlier by a margin, for
clocks that run at different speeds and for what has to be ended in time.

Requests of a leader that is over may still land, within their deadline: the fleet waits for that before it creates or
reclaims anything (``FleetConfig.takeover_delay``).
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

import attrs

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.cloud.kube.refusals import answered
from iriscw.errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND

DURATION = 15 * SECOND
RENEWAL = 2 * SECOND
MARGIN = 5 * SECOND
"""Those of client-go's leader election: a lease of 15 s, renewed every 2 s, given up after 10 s without an answer."""

MAX_DURATION = 600 * SECOND
"""What a foreign lease is waited for at most: longer ones are a mistake, and would be waited for for ever."""

FREED_S = 1
"""What the duration of a Lease says that its holder gave up, as client-go writes it, too. A Lease without a holder that
says anything else was made by somebody who knows nothing of who acts."""

MAX_REASON = 300
"""Characters of a refusal that are kept."""


class Standing(enum.Enum):
    """Where a candidate stands."""

    WAITING = "waiting"
    """Another one leads, or nobody knows yet."""
    LEADING = "leading"
    OVER = "over"
    """It led, and does not any more; nothing turns that back."""


@attrs.frozen
class Terms:
    """How long what lasts, in ns.

    Raises:
        InvalidArgument: the margin leaves no time between two renewals.
    """

    duration: int = DURATION
    renewal: int = RENEWAL
    margin: int = MARGIN

    def __attrs_post_init__(self) -> None:
        if not (self.duration >= SECOND and 0 < self.renewal < self.duration - self.margin <= self.duration):
            raise InvalidArgument("a lease lasts a second at least, and longer than its margin and a renewal together")


@attrs.frozen
class Seen:
    """The Lease as it was when it was first seen like this."""

    version: str
    holder: str
    duration: int
    transitions: int
    at: int
    """When, on our monotonic clock."""
    uid: str = ""
    freed: bool = False
    """Whether its holder gave it up, as far as can be seen: nobody may act any more."""


class Candidate:
    """One controller that wants to lead, or does.

    Args:
        path: The path of the Lease, such as ``/apis/coordination.k8s.io/v1/namespaces/iris/leases/iris-controller``.
        identity: Who this is: a name that no other process has, nor a later one of this machine.
        terms: How long what lasts.
    """

    def __init__(self, path: str, identity: str, terms: Terms | None = None) -> None:
        self._collection, _, self._name = path.rpartition("/")
        self._path = path
        self.identity = identity
        self.terms = terms or Terms()
        self.standing = Standing.WAITING
        self.acts_until = 0
        """Until when it may act, on its monotonic clock; it moves while it leads."""
        self.holder = ""
        """Who held the Lease when it was seen last; empty: nobody, or nobody knows."""
        self.reason = "the Lease was not read yet"
        """Why it does not lead, for people."""
        self.homeless = False
        """Whether the server has no place for the Lease: no such namespace."""
        self.understood_at: int | None = None
        """When the server last said something about the Lease itself, on our monotonic clock; None: never."""
        self._seen: Seen | None = None
        self._uid = ""
        """Of the Lease that was seen last: another one may have been made under somebody who acts."""

    def next(self, now: int, wall: int) -> ApiRequest | None:
        """Give the request to make now; None: nothing before the next renewal.

        Args:
            now: Monotonic, in ns.
            wall: In ns since 1970; written down for people, and for nothing else.
        """
        if self.standing is Standing.OVER:
            return None
        seen = self._seen
        if seen is None:
            return ApiRequest("GET", self._path)
        if not seen.version:
            if self.standing is Standing.WAITING and now - seen.at < self.terms.duration:
                return ApiRequest("GET", self._path)  # it may have been deleted under somebody who acts
            return ApiRequest("POST", self._collection, body=self._lease(wall, None))
        if self.standing is Standing.LEADING or self._is_free(seen, now):
            return ApiRequest("PUT", self._path, body=self._lease(wall, seen))
        return ApiRequest("GET", self._path)

    def _is_free(self, seen: Seen, now: int) -> bool:
        if seen.holder == self.identity or seen.freed:
            return True
        return now - seen.at >= max(seen.duration, self.terms.duration)

    def _lease(self, wall: int, seen: Seen | None) -> dict[str, Any]:
        """Write the Lease as ours."""
        stamp = _micro(wall)
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._collection.split("/")[-2]}
        transitions = 0
        if seen is not None:
            metadata |= {"uid": seen.uid, "resourceVersion": seen.version}
            transitions = seen.transitions + (seen.holder != self.identity)
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": -(-self.terms.duration // SECOND),
            "renewTime": stamp,
            "acquireTime": stamp,
            "leaseTransitions": transitions,
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def release(self) -> ApiRequest | None:
        """Give the request that frees the Lease for the next one; it must not act any more, nor ever again."""
        led, self.standing, self.acts_until = self.standing is Standing.LEADING, Standing.OVER, 0
        self.reason = "it was released"
        if not led or self._seen is None:
            return None
        body = self._lease(0, self._seen)
        body["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": FREED_S}
        del body["spec"]["renewTime"], body["spec"]["acquireTime"]
        return ApiRequest("PUT", self._path, body=body)

    def heard(self, request: ApiRequest, answer: ApiResponse | None, sent: int, now: int) -> None:
        """Take in what became of a request.

        Args:
            request: The one of :meth:`next`.
            answer: What the server said; None: nothing.
            sent: When the request left, or earlier; monotonic, in ns.
            now: Now; monotonic, in ns.
        """
        if answer is not None and (answer.code in (200, 201, 409) or (answer.code, request.method) == (404, "GET")):
            self.understood_at = now
        self.homeless = answer is not None and (answer.code, request.method) == (404, "POST")
        if answer is not None and answer.code in (200, 201):
            self._read(answer.body, now)
            if request.method != "GET" and self.holder == self.identity:
                self.standing, self.reason = Standing.LEADING, ""
                self.acts_until = sent + self.terms.duration - self.terms.margin
        elif answer is None:
            self.reason = "the Kubernetes API does not answer"
            self._doubt(request)
        elif answer.code == 404 and request.method == "GET":
            self.holder = ""
            if self._seen is None or self._seen.version:
                self._seen = Seen("", "", 0, 0, now)
            if self.standing is Standing.WAITING:
                self.reason = "there is no Lease: it may have been deleted, and is waited for"
        elif answer.code in (404, 409):
            self._seen = None  # somebody wrote to it, or deleted it: it is read again
            self.reason = answered(answer).text[:MAX_REASON] if self.homeless else self.reason
        else:
            self.reason = answered(answer).text[:MAX_REASON]
            self._doubt(request)
        self.look(now)

    def _doubt(self, request: ApiRequest) -> None:
        """After a write of unknown outcome its version is not known: it is read before the next."""
        if request.method != "GET" and self.standing is Standing.LEADING:
            self._seen = None

    def _read(self, body: Any, now: int) -> None:
        metadata, spec = _mapping(body, "metadata"), _mapping(body, "spec")
        version, holder = str(metadata.get("resourceVersion", "")), str(spec.get("holderIdentity") or "")
        uid = str(metadata.get("uid", ""))
        self.holder = holder
        if self.standing is Standing.LEADING and holder != self.identity:
            self._end(f"{holder or 'nobody'} holds the Lease now")
            return
        if self._seen is None or self._seen.version != version:
            duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
            self._seen = Seen(
                version,
                holder,
                min(duration * SECOND, MAX_DURATION) if isinstance(duration, int) else 0,
                transitions if isinstance(transitions, int) else 0,
                now,
                uid,
                freed=not holder and duration == FREED_S and uid == (self._uid or uid),
            )
            self._uid = uid
        if self.standing is Standing.WAITING:
            self.reason = f"{holder} leads" if holder else "nobody leads yet"

    def look(self, now: int) -> None:
        """End it if its time is over."""
        if self.standing is Standing.LEADING and now >= self.acts_until:
            self._end(f"its lease ran out: {self.reason or 'it was not renewed in time'}")

    def _end(self, reason: str) -> None:
        self.standing, self.acts_until, self.reason = Standing.OVER, 0, reason


def _mapping(body: Any, name: str) -> dict[str, Any]:
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def _micro(wall: int) -> str:
    """Write a time as Kubernetes' MicroTime."""
    moment = datetime.fromtimestamp(wall // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall % SECOND // 1000:06}Z"
