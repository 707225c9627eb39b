"""Lists: consistent pages, resource versions, and what is left when a page's revision was compacted away.

The table "resourceVersion parameter" of the API concepts page is :func:`_moment`. A continue token is the server's
own: base64 of ``{"v","rv","start"}``, relative to the listed prefix.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import attrs

from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import (
    Cause,
    bad_request,
    expired,
    forbidden_value,
    invalid,
    invalid_value,
    too_large_version,
    unsupported_value,
)
from iriscw_sims.kube.selectors import Selection

TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - no password
INVALID_TOKEN = "invalid continue token: continue key is not valid"  # noqa: S105 - no password
TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "  # noqa: S105
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
LATEST = -1
"""The revision in a token that goes on with whatever is there now."""


@attrs.frozen
class _Moment:
    """At which revision a list is taken (``None``: now), and from which key on."""

    revision: int | None
    start: str = ""
    paged: bool = False
    limit: int = 0


def list_objects(
    collection: Collection, prefix: str, selection: Selection, request: Request, revision: int
) -> tuple[list[FrozenDict], Json]:
    """Return one page of what begins with ``prefix``, as list entries, and the list's metadata.

    Args:
        collection: The kind's objects.
        prefix: ``""``, or ``namespace/``.
        selection: The selectors.
        request: Has the options in its query.
        revision: The store's present revision.

    Raises:
        Refused: 400 or 422 for options that make no sense, 410 for a compacted revision, 504 for a future one.
    """
    moment = _moment(collection, prefix, request, revision)
    at = revision if moment.revision is None else moment.revision
    if selection.name and (prefix or not collection.kind.namespaced) and not moment.paged:
        return _only(collection, prefix + selection.name, selection, moment), {"resourceVersion": str(at)}
    if moment.revision is not None and moment.revision < collection.revision:
        state = collection.at(moment.revision, prefix)
        pairs = [(key, item) for key, item in state if key >= moment.start]
        keys = [key for key, _ in pairs]
        found, taken = _page_of(keys, [item for _, item in pairs], selection, moment.limit)
        entries = [collection.bare(item) for item in found]
    else:
        low, high = collection.span(prefix, moment.start)
        keys = collection.keys[low:high]
        entries, taken = _present_page(collection, keys, prefix, selection, moment.limit)
    metadata: Json = {"resourceVersion": str(at)}
    if taken < len(keys):
        metadata["continue"] = _token(at, keys[taken - 1][len(prefix) :] + "\0")
        if not selection.tests:
            metadata["remainingItemCount"] = len(keys) - taken
    return entries, metadata


def _only(collection: Collection, key: str, selection: Selection, moment: _Moment) -> list[FrozenDict]:
    """Return the one object that can be selected, without looking at others: there is no page after it."""
    if moment.revision is not None and moment.revision < collection.revision:
        item = dict(collection.at(moment.revision, key)).get(key)
        return [collection.bare(item)] if item is not None and selection.matches(item) else []
    found = collection.objects.get(key)
    return [collection.entry(key)] if found is not None and selection.matches(found) else []


def _present_page(
    collection: Collection, keys: list[str], prefix: str, selection: Selection, limit: int
) -> tuple[list[FrozenDict], int]:
    """Return the entries of a page of the present, and how many keys it went through."""
    objects = collection.objects
    if not selection.tests:
        page = keys[:limit] if limit else keys
        if not collection.kind.typed:
            return [objects[key] for key in page], len(page)
        return [collection.entry(key) for key in page], len(page)
    matches = selection.matches
    if not limit:
        return [collection.entry(key) for key in keys if matches(objects[key])], len(keys)
    entries: list[FrozenDict] = []
    for position, key in enumerate(keys):
        if matches(objects[key]):
            entries.append(collection.entry(key))
            if len(entries) == limit:
                return entries, position + 1
    return entries, len(keys)


def _page_of(
    keys: list[str], items: list[FrozenDict], selection: Selection, limit: int
) -> tuple[list[FrozenDict], int]:
    """Return a page of a past state, and how many keys it went through."""
    page: list[FrozenDict] = []
    for position, item in enumerate(items):
        if selection.matches(item):
            page.append(item)
            if limit and len(page) == limit:
                return page, position + 1
    return page, len(keys)


def _moment(collection: Collection, prefix: str, request: Request, revision: int) -> _Moment:
    version = request.parameter("resourceVersion")
    match = request.parameter("resourceVersionMatch")
    token = request.parameter("continue")
    limit = _limit(request)
    if token:
        return _continued(collection, prefix, token, version, limit, revision)
    if version in ("", "0"):
        is_whole = version == "0" and collection.kind.cached  # any version is served from the cache, without pages
        return _Moment(None, limit=0 if is_whole else limit)
    wanted = parse_version(version)
    if wanted > revision:
        raise too_large_version(wanted, revision)
    if match == "Exact" or (limit and not match):
        if wanted < collection.horizon:
            raise expired(TOO_OLD_LIST)
        return _Moment(wanted, limit=limit)
    return _Moment(None, limit=limit)


def _limit(request: Request) -> int:
    text = request.parameter("limit")
    if not text:
        return 0
    if not text.removeprefix("-").isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return max(0, int(text))


def check_list_options(request: Request) -> None:
    """Check that a list's options go together: that comes after how selectors are written, and before what
    they name.

    Raises:
        Refused: 422, they do not; 400, one cannot be read.
    """
    _limit(request)
    version, match = request.parameter("resourceVersion"), request.parameter("resourceVersionMatch")
    token = request.parameter("continue")
    causes: list[Cause] = []
    if match:
        if not version:
            said = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.append(forbidden_value("resourceVersionMatch", said))
        if token:
            said = "resourceVersionMatch is forbidden when continue is provided"
            causes.append(forbidden_value("resourceVersionMatch", said))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            said = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            causes.append(forbidden_value("resourceVersionMatch", said))
    if request.parameter("sendInitialEvents"):
        causes.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)


def parse_version(text: str) -> int:
    """Read a resource version.

    Raises:
        Refused: 400, it is none.
    """
    if not text.isdecimal():
        cause = invalid_value("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        raise bad_request(f"invalid resource version: {cause.field}: {cause.text}")
    return int(text)


def _continued(collection: Collection, prefix: str, token: str, version: str, limit: int, revision: int) -> _Moment:
    if version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    at, start = _read_token(token)
    if at == LATEST:
        return _Moment(None, prefix + start, paged=True, limit=limit)
    if at > revision:
        raise too_large_version(at, revision)
    if at < collection.horizon:
        raise expired(TOO_OLD_TOKEN, _token(LATEST, start))
    return _Moment(at, prefix + start, paged=True, limit=limit)


def _token(revision: int, start: str) -> str:
    text = json.dumps({"v": TOKEN_VERSION, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        read: Any = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as wrong:
        raise bad_request(f"{INVALID_TOKEN}: {wrong}") from wrong
    if not isinstance(read, dict) or read.get("v") != TOKEN_VERSION:
        raise bad_request(f"{INVALID_TOKEN}: server does not recognize this encoded version")
    at, start = read.get("rv"), read.get("start")
    if not isinstance(at, int) or at == 0:
        raise bad_request(f"{INVALID_TOKEN}: incorrect encoded start resourceVersion (version {TOKEN_VERSION})")
    if not isinstance(start, str) or not start:
        raise bad_request(f"{INVALID_TOKEN}: encoded start key empty (version {TOKEN_VERSION})")
    return at, start
