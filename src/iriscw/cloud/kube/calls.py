"""One request of a call, made until it is answered for good, and lists that are made of several.

Theory of operation. Nearly every request of the driver may be repeated: reads change nothing, creates of pools are
idempotent by name (a second one is told 409 and looks), deletes name a uid. So silence, 429 and 5xx are answered with a
pause and the same request again, a bounded number of times; what the server asks for in ``Retry-After`` is the least
pause. A server that asks for more than the caller should wait for is told of at once.

The exception is a request that must not take effect twice, *even much later*: one that nobody answered may still be
under way, and land when what the second one made is gone again. Such a request is made ``once``: only what certainly
had no effect (429) is repeated.

A list comes in pages, all of one moment. When that moment is compacted away before the last page (410), the list
begins anew and asks for everything at once, which cannot happen to it again: as client-go's pager does.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import attrs

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable, Call, Pause
from iriscw.cloud.kube.paths import Source
from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import CloudError, Forbidden, Throttled, Unavailable

MAX_RELISTS = 3
"""Times one list may begin anew: one is enough for an honest server."""


class TooManyObjects(Unavailable):
    """There are more objects than this driver is set to hold (``KubeSettings.object_limit``)."""


class MalformedAnswer(Unavailable):
    """The API answered with something that is not what Kubernetes answers; a proxy in between, most likely."""


def ask(settings: KubeSettings, request: ApiRequest, rng: Random, *, once: bool = False) -> Call[ApiResponse]:
    """Make a request until it is answered by something else than "later", and give that answer, a refusal too.

    Args:
        settings: The cluster.
        request: What to ask.
        rng: For pauses.
        once: Never repeat it when it may have had its effect, or may have it later.

    Raises:
        Throttled: too many calls.
        Unavailable: no answer.
    """
    error: CloudError = Unavailable("nothing was asked")
    for attempt in range(1, settings.attempts + 1):
        least = 0
        try:
            response = yield request
        except ApiUnreachable as silence:
            error = Unavailable(f"the Kubernetes API did not answer: {silence}")
            if once:
                break
        else:
            assert response is not None, "a request is resumed with its answer"
            status = answered(response)
            if not status.passing:
                return response
            error = narrowed(judged(status), Throttled)
            if once and not isinstance(error, Throttled):
                break
            least = status.retry_after or 0
        if least > settings.retry_after_most:
            break
        if attempt < settings.attempts:
            yield Pause(max(least, growing(attempt, settings.pause_least, settings.pause_most, rng)))
    raise error


@attrs.define
class ListPages:
    """A list as it comes in.

    Args:
        limit: Objects it may have.
    """

    limit: int
    version: str = ""
    token: str = ""
    """Where the next page begins; empty after the last."""
    objects: dict[tuple[str, str], Mapping[str, Any]] = attrs.field(factory=dict)
    """By namespace and name, in the order in which they came."""
    malformed: int = 0
    """Entries without an identity, which were left out."""

    def add(self, body: Any) -> None:
        """Take a page in.

        Raises:
            MalformedAnswer: it is not a list, or one that never ends.
            TooManyObjects: the list is longer than the limit.
        """
        metadata = body.get("metadata") if isinstance(body, dict) else None
        # A list that is empty may be null; what has no items is something else, and says nothing of absence.
        items: Any = body.get("items", "") if isinstance(body, dict) else ""
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        listed = items is None or isinstance(items, list)
        if not listed or not isinstance(metadata, dict) or not isinstance(version, str) or not version:
            raise MalformedAnswer("the API answered a list with something else")
        before = len(self.objects)
        for item in items or ():
            key = key_of(item)
            if key is None:
                self.malformed += 1
            else:
                self.objects[key] = item
        if len(self.objects) > self.limit:
            raise TooManyObjects(f"there are more than {self.limit} objects of one kind")
        # All pages are of one moment. If a server mixes moments, the first one misses nothing.
        self.version = self.version or version
        token = metadata.get("continue")
        self.token = token if isinstance(token, str) else ""
        if self.token and len(self.objects) == before:
            raise MalformedAnswer("the API answered a list with a page that brings nothing and promises more")


def key_of(item: Any) -> tuple[str, str] | None:
    """Return namespace and name of an object, or None if it has no identity: name, uid and version."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace", "")
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        return None
    for field in ("uid", "resourceVersion"):
        if not isinstance(metadata.get(field), str) or not metadata[field]:
            return None
    return namespace, name


def collect(settings: KubeSettings, source: Source, rng: Random) -> Call[tuple[Mapping[str, Any], ...]]:
    """Return all objects of a source, as they were at one moment, in the API's order.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer, or none that is a list of bearable length.
    """
    limit = settings.page_limit
    for _ in range(MAX_RELISTS):
        pages = ListPages(settings.object_limit)
        while True:
            response = yield from ask(settings, source.page(limit, pages.token), rng)
            status = answered(response)
            if response.code == 200:
                pages.add(response.body)
                if not pages.token:
                    return tuple(pages.objects.values())
            elif status.expired:
                limit = 0
                break
            else:
                raise narrowed(judged(status), Forbidden)
    raise Unavailable("the API forgot each list before it was read")
