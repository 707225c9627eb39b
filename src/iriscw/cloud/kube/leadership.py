"""Who leads: one controller at a time, by a Lease of the cluster's (INV-F8). A pure state machine.

Theory of operation. A candidate looks at the Lease again and again. It may take it when it has seen the same version of
it for as long as a lease lasts; no clock but its own monotonic one counts, so clocks may be wrong or jump. It takes it
by writing to the very version of the very object that it saw: of two who do, one is refused.

It need not wait where its last holder has freed it. What says so is a word of that holder's with the object's own uid
(:data:`RELEASED`): a Lease that was made anew, by whomever and whatever it says, has another one. Who made it knows
nothing of who held the one before, and that one may act for the rest of its time. So a Lease that was just made gives
no lead: where there is none, anybody makes one that names nobody, at once, and then all watch it like any other. A
creation that is late, or was not answered, harms nobody.

Who holds the Lease renews it. It may act until a lease after it *sent* the last write that was answered: whoever
takes over has seen that write, or a later one, for a whole lease, so they never overlap. A write that was not answered
extends nothing for the writer, and at most the wait of others. :attr:`Candidate.acts_until` is earlier by a margin, for
clocks that run at different speeds and for what has to be ended in time. Who led and finds its Lease deleted makes it
anew under its own name, or takes the nameless one that another made meanwhile, as long as it may act: those who watch
that one have not watched it for long enough.

Requests of a leader that is over may still land, within their deadline: the fleet waits for that before it creates or
reclaims anything (``FleetConfig.takeover_delay``).
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.cloud.kube.refusals import answered
from iriscw.runtime.vocabulary import SECOND

DURATION = 15 * SECOND
RENEWAL = 2 * SECOND
MARGIN = 5 * SECOND
"""Those of client-go's leader election: a lease of 15 s, renewed every 2 s, given up after 10 s without an answer."""

MAX_DURATION = 600 * SECOND
"""What a foreign lease is waited for at most: longer ones are a mistake, and would be waited for for ever."""

API = "coordination.k8s.io/v1"

RELEASED = "iriscw.dev/released"
"""The annotation by which its last holder says that it acts no more: the uid of the Lease that it held."""

MAX_REASON = 300
"""Characters of a refusal that are kept."""


class CandidateStanding(enum.Enum):
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
class SeenLease:
    """The Lease as it was when it was first seen like this; without a version there was none."""

    uid: str
    version: str
    holder: str
    duration: int
    transitions: int
    released: bool
    """Whether its last holder said that it acts no more."""
    at: int
    """When, on our monotonic clock."""


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
        self.standing = CandidateStanding.WAITING
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
        self._seen: SeenLease | None = None
        self._wrote = ""
        """The uid of the Lease to which we wrote last, or were to."""

    def next(self, now: int, wall: int) -> ApiRequest | None:
        """Return the request to make now; None: nothing before the next renewal.

        Args:
            now: Monotonic, in ns.
            wall: In ns since 1970; written down for people, and for nothing else.
        """
        self.look(now)
        if self.standing is CandidateStanding.OVER:
            return None
        seen = self._seen
        if seen is None:
            return ApiRequest("GET", self._path)
        if not seen.version:
            body = self._lease(wall, None) if self.standing is CandidateStanding.LEADING else self._nameless()
            return ApiRequest("POST", self._collection, body=body)
        if self.standing is CandidateStanding.LEADING or self._is_free(seen, now):
            self._wrote = seen.uid
            return ApiRequest("PUT", self._path, body=self._lease(wall, seen))
        return ApiRequest("GET", self._path)

    def _is_free(self, seen: SeenLease, now: int) -> bool:
        if seen.released and not seen.holder:
            return True
        if seen.holder == self.identity and seen.uid == self._wrote:
            return True  # what we wrote landed, and nobody told us: we were to have it then, and nobody had it since
        return now - seen.at >= max(seen.duration, self.terms.duration)

    def _metadata(self, seen: SeenLease | None) -> dict[str, Any]:
        """Name the Lease; one that is there by uid and version: another one, or a later one, is never written to."""
        metadata = {"name": self._name, "namespace": self._collection.split("/")[-2]}
        return metadata if seen is None else {**metadata, "uid": seen.uid, "resourceVersion": seen.version}

    def _nameless(self) -> dict[str, Any]:
        """Write a Lease that nobody holds."""
        return {"apiVersion": API, "kind": "Lease", "metadata": self._metadata(None), "spec": {}}

    def _lease(self, wall: int, seen: SeenLease | None) -> dict[str, Any]:
        """Write the Lease as ours."""
        stamp = _micro(wall)
        transitions = 0
        if seen is not None:
            transitions = seen.transitions + (seen.holder != self.identity)
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": -(-self.terms.duration // SECOND),
            "renewTime": stamp,
            "acquireTime": stamp,
            "leaseTransitions": transitions,
        }
        return {"apiVersion": API, "kind": "Lease", "metadata": self._metadata(seen), "spec": spec}

    def release(self) -> ApiRequest | None:
        """Return the request that frees the Lease for the next one; it must not act any more, nor ever again."""
        led, self.standing, self.acts_until = self.standing is CandidateStanding.LEADING, CandidateStanding.OVER, 0
        self.reason = "it was released"
        if not led or self._seen is None or not self._seen.version:
            return None
        body = self._lease(0, self._seen)
        body["metadata"]["annotations"] = {RELEASED: self._seen.uid}
        body["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
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
        if answer is None and self.standing is not CandidateStanding.OVER:
            self.reason = "the Kubernetes API does not answer"
        self.look(now)  # an answer that comes when the time is over gives none of it back
        if self.standing is CandidateStanding.OVER:
            return
        if answer is not None and (answer.code in (200, 201, 409) or (answer.code, request.method) == (404, "GET")):
            self.understood_at = now
        self.homeless = answer is not None and (answer.code, request.method) == (404, "POST")
        if answer is not None and answer.code in (200, 201):
            self._read(answer.body, now)
            if request.method != "GET" and self.holder == self.identity:
                assert self._seen is not None, "an answer was read"
                self.standing, self.reason, self._wrote = CandidateStanding.LEADING, "", self._seen.uid
                self.acts_until = sent + self.terms.duration - self.terms.margin
        elif answer is None:
            self._doubt(request)
        elif answer.code == 404 and request.method == "GET":
            self.holder = ""
            self._seen = SeenLease("", "", "", 0, 0, released=False, at=now)
            if self.standing is CandidateStanding.WAITING:
                self.reason = "there is no Lease; one is made"
        elif answer.code in (404, 409):
            self._seen = None  # somebody wrote to it, or deleted it: it is read again
            self.reason = answered(answer).text[:MAX_REASON] if self.homeless else self.reason
        else:
            self.reason = answered(answer).text[:MAX_REASON]
            self._doubt(request)
        self.look(now)

    def _doubt(self, request: ApiRequest) -> None:
        """After a write of unknown outcome its version is not known: it is read before the next."""
        if request.method != "GET" and self.standing is CandidateStanding.LEADING:
            self._seen = None

    def _read(self, body: Any, now: int) -> None:
        metadata, spec = _mapping(body, "metadata"), _mapping(body, "spec")
        uid, version = str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
        holder = str(spec.get("holderIdentity") or "")
        released = bool(uid) and _mapping(metadata, "annotations").get(RELEASED) == uid
        made_anew = not holder and not released and uid != self._wrote
        self.holder = holder
        if self.standing is CandidateStanding.LEADING and not (holder == self.identity or made_anew):
            self._end(f"{holder or 'nobody'} holds the Lease now")
            return
        if self._seen is None or (self._seen.uid, self._seen.version) != (uid, version):
            duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
            self._seen = SeenLease(
                uid,
                version,
                holder,
                min(duration * SECOND, MAX_DURATION) if isinstance(duration, int) else 0,
                transitions if isinstance(transitions, int) else 0,
                released=released,
                at=now,
            )
        if self.standing is CandidateStanding.WAITING:
            nobody = (
                "nobody leads" if released else "nobody leads by this Lease; it is watched for as long as one lasts"
            )
            self.reason = f"{holder} leads" if holder else nobody

    def look(self, now: int) -> None:
        """End it if its time is over."""
        if self.standing is CandidateStanding.LEADING and now >= self.acts_until:
            self._end(f"its lease ran out: {self.reason or 'it was not renewed in time'}")

    def _end(self, reason: str) -> None:
        self.standing, self.acts_until, self.reason = CandidateStanding.OVER, 0, reason


def _mapping(body: Any, name: str) -> dict[str, Any]:
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def _micro(wall: int) -> str:
    """Write a time as Kubernetes' MicroTime."""
    moment = datetime.fromtimestamp(wall // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall % SECOND // 1000:06}Z"
