"""The reflector: one collection of an API server, mirrored by a list and watches. A pure state machine.

Theory of operation::

    IDLE --start--> LISTING --last page--> WATCHING --end, error--> RESTING --> WATCHING
                       ^                      |                        |
                       +---- 410, too many failures, resync -----------+

*The view is never wrong about the past.* A list is of one moment; a watch tells all that happened after it, and is
taken up again at the version of the last thing it told (objects and bookmarks), so nothing is missed in between. What
the server has forgotten (410, in its three disguises: a status code, an ``ERROR`` event, a reason) is listed again.
A list that is not the first is told as the differences to what was known.

*It never spins.* Two lists, and two watches, begin at least ``watch_interval`` apart. Failures in a row (an error, a
watch that ended at once and brought nothing, a 410 right after a list) are followed by growing, random pauses; only
a watch that moved on, or lasted, ends the row: a list that succeeds does not, or list and 410 would chase each other.
After ``relist_after`` failures of a watch it lists: its version may be the trouble (a storage that was restored knows
nothing of it). The same resource version is never asked for again after a 410.

*It never waits in silence.* A connection can die without anybody being told; so a watch that outlives its timeout is
given up. A watch that broke and had told nothing is followed by a list: whether somebody answers shows with it.

*It ends* when the credentials are refused, when nothing but failures was heard for ``patience``, and when there are
more objects than memory was meant for; whoever opened it opens another one.
"""

from __future__ import annotations

import enum
from random import Random
from typing import Any

import attrs

from iriscw.cloud.kube.calls import ListPages, MalformedAnswer, TooManyObjects, key_of
from iriscw.cloud.kube.exchange import (
    Action,
    CloseWatch,
    Event,
    Fail,
    Fetched,
    FetchFailed,
    FetchObjects,
    Listed,
    OpenWatch,
    Token,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.paths import Source
from iriscw.cloud.kube.refusals import RefusalStatus, answered, judged, narrowed, status_of_event
from iriscw.cloud.kube.setbacks import Setbacks
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.kube.view import View
from iriscw.cloud.model import CloudError, Forbidden, Unavailable
from iriscw.runtime.vocabulary import SECOND

MAX_DELAY = 600 * SECOND
"""The longest rest, whatever a server asks for in ``Retry-After``."""


@attrs.frozen
class ReflectorStatistics:
    """What a reflector has done so far."""

    objects: int = 0
    """That are there now."""
    lists: int = 0
    pages: int = 0
    watches: int = 0
    events: int = 0
    repetitions: int = 0
    """Events that told nothing new."""
    malformed: int = 0
    """Objects and events without an identity, which were left out."""
    unknown_events: int = 0
    expired: int = 0
    """Times the server had forgotten what was asked for (410)."""
    backoffs: int = 0
    stalled: int = 0
    """Watches that outlived their timeout."""
    stale: int = 0
    """Answers to what was not asked any more."""


class ReflectorPhase(enum.Enum):
    """What a reflector is doing."""

    IDLE = "idle"
    LISTING = "listing"
    WATCHING = "watching"
    RESTING = "resting"
    OVER = "over"


class Next(enum.Enum):
    """What follows a rest."""

    LIST = "list"
    PAGE = "page"
    WATCH = "watch"


class Reflector:
    """Mirrors one source. Feed it what its actions led to; it shows ``Listed`` once, then the changes.

    Args:
        name: The first part of all its tokens.
        source: What to mirror.
        settings: Limits and pauses.
    """

    def __init__(self, name: str, source: Source, settings: KubeSettings) -> None:
        self.name = name
        self.phase = ReflectorPhase.IDLE
        self._source = source
        self._settings = settings
        self._view = View()
        self._counts = dict.fromkeys((field.name for field in attrs.fields(ReflectorStatistics)), 0)
        self._number = 0
        self._current: Token = (name, 0)
        """Of the request, watch or rest that is going on."""
        self._guard: Token = (name, 0)
        """Of the alarm that finds a watch dead."""
        self._next = Next.LIST
        self._pages = ListPages(settings.object_limit)
        self._limit = settings.page_limit
        self._listed = False
        self._version = ""
        self._setbacks = Setbacks(settings)
        self._list_began: int | None = None
        self._watch_began: int | None = None
        self._list_ended = 0
        self._heard = False
        """Whether this watch has brought anything."""
        self._moved = False
        """Whether this watch has brought something new."""

    @property
    def statistics(self) -> ReflectorStatistics:
        """What was done so far."""
        counts = {**self._counts, "objects": len(self._view.objects), "backoffs": self._setbacks.pauses}
        return ReflectorStatistics(**counts)

    def start(self, now: int, rng: Random) -> list[Action]:
        """Begin. ``now`` is monotonic, in ns."""
        assert self.phase is ReflectorPhase.IDLE, "a reflector is started once"
        return self._list(now)

    def stop(self) -> list[Action]:
        """End, and let go of the connection. Nothing is shown any more."""
        closing = self._hang_up() if self.phase is ReflectorPhase.WATCHING else []
        self.phase = ReflectorPhase.OVER
        return closing

    def _hang_up(self) -> list[Action]:
        self.phase = ReflectorPhase.RESTING
        return [CloseWatch(self._current)]

    def on(self, event: Event, now: int, rng: Random) -> list[Action]:
        """Take in what the shell tells. ``now`` is monotonic, in ns."""
        if self.phase is ReflectorPhase.WATCHING and event.token == self._guard and isinstance(event, Woken):
            self._counts["stalled"] += 1
            return [*self._hang_up(), *self._broken(Next.LIST, now, rng)]
        if self.phase is ReflectorPhase.OVER or event.token != self._current:
            self._counts["stale"] += not isinstance(event, Woken)
            return []
        match event:
            case Fetched(response=response) if self.phase is ReflectorPhase.LISTING:
                return self._page(response, now, rng)
            case FetchFailed() if self.phase is ReflectorPhase.LISTING:
                return self._setback(self._same_page(), now, rng, Unavailable("a list was not answered"))
            case WatchItem(item=item) if self.phase is ReflectorPhase.WATCHING:
                return self._item(item, now, rng)
            case WatchEnded(error=error) if self.phase is ReflectorPhase.WATCHING:
                if error:
                    return self._broken(Next.WATCH if self._heard else Next.LIST, now, rng)
                return self._ended(now, rng)
            case Woken() if self.phase is ReflectorPhase.RESTING:
                return self._resume(now, rng)
            case _:
                self._counts["stale"] += 1
                return []

    def _token(self) -> Token:
        self._number += 1
        return (self.name, self._number)

    # Listing

    def _list(self, now: int, limit: int | None = None) -> list[Action]:
        """Begin a list; ``limit`` 0: in one piece."""
        self._counts["lists"] += 1
        self._list_began = now
        self._pages = ListPages(self._settings.object_limit)
        self._limit = self._settings.page_limit if limit is None else limit
        return self._fetch()

    def _fetch(self) -> list[Action]:
        self.phase, self._current = ReflectorPhase.LISTING, self._token()
        return [FetchObjects(self._current, self._source.page(self._limit, self._pages.token))]

    def _page(self, response: ApiResponse, now: int, rng: Random) -> list[Action]:
        if response.code != 200:
            return self._list_refused(answered(response), now, rng)
        try:
            self._pages.add(response.body)
        except TooManyObjects as error:
            return self._fail(error)
        except MalformedAnswer as error:
            return self._setback(Next.LIST, now, rng, error)
        self._counts["pages"] += 1
        self._setbacks.heard()
        return self._fetch() if self._pages.token else self._taken(now, rng)

    def _same_page(self) -> Next:
        """Say how the page that failed is asked for again; without the pages before it, that is a list."""
        return Next.PAGE if self._pages.token else Next.LIST

    def _taken(self, now: int, rng: Random) -> list[Action]:
        """A list is complete: show it, and watch from there."""
        pages, self._pages = self._pages, ListPages(self._settings.object_limit)
        self._counts["malformed"] += pages.malformed
        self._version, self._list_ended = pages.version, now
        changes = self._view.replace(pages.objects)
        shown: list[Action] = [*changes] if self._listed else [Listed(tuple(pages.objects.values()))]
        self._listed = True
        return [*shown, *self._rest(Next.WATCH, 0, now, rng)]

    def _list_refused(self, status: RefusalStatus, now: int, rng: Random) -> list[Action]:
        if status.expired:
            self._counts["expired"] += 1
            if self._limit and self._pages.token:
                return self._list(now, limit=0)  # all at once: this cannot be forgotten half-way
        error = judged(status)
        if isinstance(error, Forbidden):
            return self._fail(error)
        following = self._same_page() if status.passing else Next.LIST
        return self._setback(following, now, rng, narrowed(error), least=status.retry_after or 0)

    # Watching

    def _watch(self, now: int, rng: Random) -> list[Action]:
        self._counts["watches"] += 1
        timeout = self._settings.watch_timeout
        timeout -= rng.randrange(timeout // 4 + 1)  # not all watches of a fleet end at once
        self.phase, self._current, self._guard = ReflectorPhase.WATCHING, self._token(), self._token()
        self._watch_began, self._heard, self._moved = now, False, False
        return [
            OpenWatch(self._current, self._source.watch(self._version, timeout)),
            WakeAfter(self._guard, timeout + self._settings.watch_margin),
        ]

    def _item(self, item: Any, now: int, rng: Random) -> list[Action]:
        self._counts["events"] += 1
        kind = item.get("type") if isinstance(item, dict) else None
        thing: Any = item.get("object") if isinstance(item, dict) else None
        if kind == "ERROR":
            return [*self._hang_up(), *self._watch_refused(status_of_event(thing), now, rng)]
        self._heard = True
        self._setbacks.heard()
        if kind == "BOOKMARK":
            self._move(_version_in(thing))
            return []
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            self._counts["unknown_events"] += 1
            return []
        key = key_of(thing)
        if key is None:
            self._counts["malformed"] += 1
            return []
        shown = (self._view.vanished if kind == "DELETED" else self._view.changed)(key, thing)
        if shown is None:
            self._counts["repetitions"] += 1
            return []
        self._move(_version_in(thing))
        if len(self._view.objects) > self._settings.object_limit:
            return self._fail(TooManyObjects(f"there are more than {self._settings.object_limit} objects of one kind"))
        return [*shown]

    def _move(self, version: str) -> None:
        if not version:
            self._counts["malformed"] += 1
        elif version != self._version:
            self._version, self._moved = version, True
            self._setbacks.progress()

    def _watch_refused(self, status: RefusalStatus, now: int, rng: Random) -> list[Action]:
        """A watch told an error, which is the last thing it tells."""
        self._settle(now)
        if status.expired:
            self._counts["expired"] += 1
            return self._relist(now, rng)
        error = judged(status)
        if isinstance(error, Forbidden):
            return self._fail(error)
        following = Next.WATCH if status.passing or not status.code else Next.LIST
        return self._setback(following, now, rng, narrowed(error), least=status.retry_after or 0)

    def _relist(self, now: int, rng: Random) -> list[Action]:
        """The server forgot what was asked for: an answer, not a failure; but if it happens again, it takes longer."""
        self._setbacks.stumbled()
        pause = 0 if self._setbacks.row == 1 else self._setbacks.pause(rng)
        return self._rest(Next.LIST, pause, now, rng)

    def _broken(self, following: Next, now: int, rng: Random) -> list[Action]:
        """A watch broke. One that had told nothing is followed by a list: that is answered, or is not."""
        self._settle(now)
        return self._setback(following, now, rng, Unavailable("a watch broke"))

    def _ended(self, now: int, rng: Random) -> list[Action]:
        """The server ended a watch, as it does after a while."""
        lasted = self._settle(now)
        if not self._moved and not lasted:
            self._setbacks.stumbled()
            following = Next.LIST if self._setbacks.many else Next.WATCH
            return self._rest(following, self._setbacks.pause(rng), now, rng)
        self._setbacks.heard()
        resync = self._settings.resync
        due = resync > 0 and now - self._list_ended >= resync
        return self._rest(Next.LIST if due else Next.WATCH, 0, now, rng)

    def _settle(self, now: int) -> bool:
        """Tell whether the watch that is over lasted; if so, the row of failures is at an end."""
        assert self._watch_began is not None, "a watch that is over was opened"
        lasted = now - self._watch_began >= self._settings.watch_lasting
        if lasted:
            self._setbacks.progress()
        return lasted

    # Resting

    def _setback(self, following: Next, now: int, rng: Random, error: CloudError, *, least: int = 0) -> list[Action]:
        """Something failed: pause, and go on; or give up, if nothing else was heard for too long."""
        self._setbacks.failed(now)
        if following is Next.WATCH:
            if self._setbacks.many or self._setbacks.too_long(now):
                following = Next.LIST  # whose answer decides whether the API is there
        elif self._setbacks.too_long(now):
            seconds = self._setbacks.silence(now) // SECOND
            return self._fail(Unavailable(f"the API was not heard for {seconds} s: {error}"))
        return self._rest(following, max(least, self._setbacks.pause(rng)), now, rng)

    def _rest(self, following: Next, pause: int, now: int, rng: Random) -> list[Action]:
        """Go on after ``pause`` ns, and not before the same has been begun ``watch_interval`` ago."""
        began = self._watch_began if following is Next.WATCH else self._list_began
        if following is not Next.PAGE and began is not None:
            pause = max(pause, began + self._settings.watch_interval - now)
        self._next = following
        if pause <= 0:
            return self._resume(now, rng)
        self.phase, self._current = ReflectorPhase.RESTING, self._token()
        return [WakeAfter(self._current, min(pause, MAX_DELAY))]

    def _resume(self, now: int, rng: Random) -> list[Action]:
        match self._next:
            case Next.LIST:
                return self._list(now)
            case Next.PAGE:
                return self._fetch()
            case Next.WATCH:
                return self._watch(now, rng)

    def _fail(self, error: CloudError) -> list[Action]:
        return [*self.stop(), Fail(error)]


def _version_in(thing: Any) -> str:
    """Return the resource version of an object or bookmark, empty if there is none."""
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
