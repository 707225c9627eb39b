"""What the cluster is told of a slice's pool: Kubernetes Events, so that ``kubectl describe`` shows them. Pure.

Theory of operation. One Event stands for a pool and a reason, for as long as the API server keeps it (an hour): its
text is the latest, and its count grows. Its name follows from both, so that nothing has to be remembered to find it
again: a controller that starts anew makes the Event, is told that it is there, learns its count from the answer to a
patch, and counts on. Nothing is ever read, for nobody needs the right to.

Events are Kubernetes' first ones (``v1``), with a count and two times, which is what ``kubectl describe`` asks for and
shows. A pool belongs to no namespace, and what is told of such an object is in ``default``.

An Event is worth little and must cost little. What waits to be told is one line for each Event, however often it
happened; there is a bound on their number, on how fast they leave, and on how often the same one does. What finds no
room, and what the API refuses or does not answer, is lost and counted. Only what certainly had no effect is told again,
so a count is never more than what happened.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from hashlib import sha256
from random import Random
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.calls import ask
from iriscw.cloud.kube.limits import RateLimit
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiResponse, Call
from iriscw.cloud.kube.paths import POOL_API, events_of
from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import CloudError, Forbidden, InvalidSpec, QuotaExceeded, Throttled, Unavailable
from iriscw.runtime.vocabulary import SECOND

COMPONENT = "iriscw-controller"
"""Who tells: the column ``From`` of ``kubectl describe``."""

NAMESPACE = "default"
"""Where the Events of objects are that belong to no namespace; the API server takes them nowhere else."""

MAX_TEXT_CHARS = 1000
"""Of an Event's message; the newer API of Events takes 1024 bytes."""

NAME_CHARS = 200
"""Of the pool's name in an Event's: with what follows it stays below 253."""

DIGEST_CHARS = 16
"""Of an Event's name: 64 bits tell the reasons of one pool apart."""

MAX_COUNT = 2**31 - 1
"""The field is an int32."""


@attrs.frozen
class Notice:
    """Something that happened to a slice.

    Attributes:
        pool: The name of its pool.
        uid: The pool's; empty: none was ever seen. ``kubectl describe`` shows what has the uid only, ``kubectl get
            events`` all.
        reason: One word, in CamelCase.
        text: A sentence for people.
        warning: Whether somebody may have to do something.
        at: When, in ns since 1970.
    """

    pool: str
    uid: str
    reason: str
    text: str
    warning: bool
    at: int

    @property
    def event(self) -> str:
        """The name of the Event that tells it."""
        digest = sha256("\0".join((self.pool, self.uid, self.reason)).encode()).hexdigest()
        return f"{self.pool[:NAME_CHARS].rstrip('-.')}.{digest[:DIGEST_CHARS]}"


@attrs.frozen
class NoticeLimits:
    """How much may wait, be remembered, and leave.

    Attributes:
        waiting: Events that wait to be written: two of each of 500 pools that are lost at once.
        known: Events whose count is remembered. One that is forgotten costs two more requests.
        spacing: Between two writes of the same Event, in ns: what flaps is counted meanwhile.
        qps: Events written in a second in the long run: a fifth of what the drivers may ask.
        burst: Written at once.
        pause_least: After a failure, in ns; doubles.
        pause_most: The longest pause after failures.

    Raises:
        InvalidArgument: one of them is not positive.
    """

    waiting: int = 1000
    known: int = 4096
    spacing: int = 60 * SECOND
    qps: float = 4.0
    burst: int = 20
    pause_least: int = SECOND
    pause_most: int = 120 * SECOND

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            if getattr(self, field.name) <= 0:
                raise InvalidArgument(f"{field.name} must be positive, not {getattr(self, field.name)}")


@attrs.frozen
class NoticeStatistics:
    """What became of what was told. Each happening is in one of ``told``, ``dropped``, ``lost``, or still waits."""

    told: int = 0
    dropped: int = 0
    """There was no room."""
    lost: int = 0
    """The API refused them, or did not answer."""
    waiting: int = 0
    """Events that wait to be written now."""


@attrs.frozen
class NoticeDue:
    """An Event to be written now.

    Attributes:
        notice: What happened last.
        count: How often it happened since the last write.
        first: When for the first time of these, in ns since 1970.
        before: The count that the Event has, as far as is known; None: nothing is.
    """

    notice: Notice
    count: int
    first: int
    before: int | None


@attrs.define
class _Waiting:
    notice: Notice
    count: int
    first: int


@attrs.frozen
class _Known:
    count: int
    at: int
    """When it was written, monotonic."""


class Notices:
    """What waits to be told, and what was. Times are monotonic ns.

    Args:
        limits: How much of it.
    """

    def __init__(self, limits: NoticeLimits | None = None) -> None:
        self.limits = limits or NoticeLimits()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._rate = RateLimit(self.limits.qps, self.limits.burst)
        self._failures = 0
        self._held_until = 0
        self._told = self._dropped = self._lost = 0

    def statistics(self) -> NoticeStatistics:
        """Return figures of now."""
        return NoticeStatistics(self._told, self._dropped, self._lost, len(self._waiting))

    def add(self, notice: Notice) -> None:
        """Have something told by and by, if there is room."""
        self._put(NoticeDue(notice, 1, notice.at, None))

    def _put(self, due: NoticeDue) -> None:
        name = due.notice.event
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.count += due.count
            waiting.first = min(waiting.first, due.first)
            if due.notice.at >= waiting.notice.at:
                waiting.notice = due.notice
        elif len(self._waiting) < self.limits.waiting:
            self._waiting[name] = _Waiting(due.notice, due.count, due.first)
        else:
            self._dropped += due.count

    def wait(self, now: int) -> int | None:
        """Tell how many ns it is until :meth:`take` has something; None: nothing waits."""
        if not self._waiting:
            return None
        spaced = min(self._spaced(name) for name in self._waiting)
        return max(0, spaced - now, self._held_until - now, self._rate.wait(now))

    def _spaced(self, name: str) -> int:
        known = self._known.get(name)
        return 0 if known is None else known.at + self.limits.spacing

    def take(self, now: int) -> NoticeDue:
        """Return the Event whose turn it is; :meth:`wait` has said that there is one."""
        name = next(name for name in self._waiting if self._spaced(name) <= now)
        self._rate.take(now)
        waiting, known = self._waiting.pop(name), self._known.get(name)
        return NoticeDue(waiting.notice, waiting.count, waiting.first, None if known is None else known.count)

    def wrote(self, due: NoticeDue, count: int, now: int) -> None:
        """Take note that an Event was written, and of the count that it has now."""
        self._told += due.count
        self._failures = 0
        name = due.notice.event
        self._known[name] = _Known(count, now)
        self._known.move_to_end(name)
        if len(self._known) > self.limits.known:
            self._known.popitem(last=False)

    def failed(self, due: NoticeDue, error: Exception, now: int, rng: Random) -> bool:
        """Take note that an Event was not written, and why. Give whether that is news.

        A server that asks for slower calls has certainly done nothing: that is told again. All else is lost.
        """
        if isinstance(error, Throttled):
            self._put(due)
        else:
            self._lost += due.count
        if isinstance(error, InvalidSpec):
            return True  # it is this one that is wrong: the next is written at once
        self._failures += 1
        pause = growing(self._failures, self.limits.pause_least, self.limits.pause_most, rng)
        self._held_until = now + max(pause, error.retry_after if isinstance(error, Throttled) else 0)
        return self._failures == 1


def write(settings: KubeSettings, due: NoticeDue, rng: Random) -> Call[int]:
    """Write an Event, or count it on, and give the count that it has then.

    Raises:
        Forbidden: the credentials do not allow it.
        InvalidSpec: it is not accepted.
        QuotaExceeded: the namespace's quota is used up.
        Throttled: too many calls; it was not written.
        Unavailable: no answer; it may have been written.
    """
    if due.before is not None:
        answer = yield from ask(settings, _patch(due, due.before), rng)
        if answer.code == 200:
            return _sum(due, due.before)
        if answer.code != 404:
            raise _refused(answer)
    post = ApiRequest("POST", events_of(NAMESPACE), body=event_manifest(due))
    answer = yield from ask(settings, post, rng, once=True)
    if answer.code in (200, 201, 202):
        return due.count
    if answered(answer).reason != "AlreadyExists":
        raise _refused(answer)
    # An earlier controller, or one whose memory has forgotten it: a patch that changes no count tells what it is.
    answer = yield from ask(settings, _patch(due, None), rng)
    before = _count_of(answer.body) if answer.code == 200 else 0
    if answer.code == 200:
        answer = yield from ask(settings, _patch(due, before), rng)
    if answer.code != 200:
        raise _refused(answer)
    return _sum(due, before)


def _refused(answer: ApiResponse) -> CloudError:
    return narrowed(judged(answered(answer)), Forbidden, InvalidSpec, QuotaExceeded, Throttled, Unavailable)


def _sum(due: NoticeDue, before: int) -> int:
    return min(MAX_COUNT, before + due.count)


def _count_of(body: Any) -> int:
    count = body.get("count") if isinstance(body, dict) else None
    return max(0, count) if isinstance(count, int) else 0


def event_manifest(due: NoticeDue) -> dict[str, Any]:
    """Write an Event that is told for the first time."""
    notice = due.notice
    involved = {"apiVersion": POOL_API, "kind": "NodePool", "name": notice.pool}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": notice.event, "namespace": NAMESPACE},
        "involvedObject": {**involved, "uid": notice.uid} if notice.uid else involved,
        "reason": notice.reason,
        "type": "Warning" if notice.warning else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "count": _sum(due, 0),
        "firstTimestamp": _stamp(due.first),
        **_latest(notice),
    }


def _latest(notice: Notice) -> dict[str, Any]:
    return {"message": notice.text[:MAX_TEXT_CHARS], "lastTimestamp": _stamp(notice.at)}


def _patch(due: NoticeDue, before: int | None) -> ApiRequest:
    """Ask for an Event's text and time to be the latest; with ``before``, for its count to grow, too."""
    counted = {} if before is None else {"count": _sum(due, before)}
    path = f"{events_of(NAMESPACE)}/{due.notice.event}"
    return ApiRequest("PATCH", path, body={**_latest(due.notice), **counted}, content_type=MERGE_PATCH)


def _stamp(wall: int) -> str:
    """Write a time as Kubernetes does, to the second."""
    return f"{datetime.fromtimestamp(wall // SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"
