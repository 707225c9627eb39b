"""Get, list and watch."""

from __future__ import annotations

from collections.abc import Callable

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.listing import check_list_options, list_objects, parse_version
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import (
    Cause,
    bad_request,
    expired,
    forbidden_value,
    internal,
    invalid,
    too_large_version,
    unsupported_value,
)
from iriscw_sims.kube.selectors import Parsed, Selection, parse, select
from iriscw_sims.kube.tables import META, partial, table, wants_table
from iriscw_sims.kube.watches import Watch

MIN_WATCH_S = 1800
"""Seconds a watch lives at least if its caller names no timeout (``--min-request-timeout``); at most twice as long."""


def get(call: Call) -> tuple[int, Json]:
    """Return the object that the path names: 200.

    Raises:
        Refused: 404; 504 for a resource version that lies in the future.
    """
    version = _version(call)
    if version > call.ground.revision:
        raise too_large_version(version, call.ground.revision)
    return 200, call.found()


def _version(call: Call) -> int:
    """Read the resourceVersion of a get or watch, 0 without one.

    Raises:
        Refused: 500, it is not a number: so upstream says it, though not of a list, nor of what it does not cache.
    """
    version = call.request.parameter("resourceVersion")
    if not call.kind.cached:
        return parse_version(version or "0")
    if version and not version.isdecimal():
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    return int(version or "0")


def list_all(call: Call) -> tuple[int, Json]:
    """Return a list of what the path and the selectors name: 200.

    Raises:
        Refused: 400, 410, 422 or 504.
    """
    parsed = _parsed(call)
    check_list_options(call.request)
    selection = _selection(call, parsed)
    prefix = call.prefix
    if selection.namespace and not prefix and call.kind.namespaced and not call.request.parameter("continue"):
        prefix = f"{selection.namespace}/"  # as if the path had named it: what is elsewhere makes no further page
    entries, metadata = list_objects(call.objects, prefix, selection, call.request, call.ground.revision)
    kind = call.kind
    if not kind.typed:
        metadata.setdefault("continue", "")  # unstructured lists always say so
    return 200, {
        "kind": kind.kind_of_list,
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": entries,
    }


def as_table(call: Call, body: Json) -> Json:
    """Return an object or a list as a table."""
    include = call.request.parameter("includeObject")
    if "items" in body and body["kind"] == call.kind.kind_of_list:
        metadata = {name: part for name, part in body["metadata"].items() if part != ""}
        return table(call.kind, body["items"], metadata, call.now, include)
    metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
    return table(call.kind, [body], metadata, call.now, include)


def as_partial(call: Call, body: Json) -> Json:
    """Return an object's metadata, or that of each of a list."""
    if "items" not in body or body["kind"] != call.kind.kind_of_list:
        return partial(body)
    items = [partial(item) for item in body["items"]]
    metadata = {name: part for name, part in body["metadata"].items() if part != ""}
    # An empty list is null here, as upstream's conversion leaves it.
    return {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": metadata, "items": items or None}


def watch(call: Call) -> Watch:
    """Open a watch on what the path and the selectors name.

    Raises:
        Refused: 400 or 422 for options that make no sense, 504 for initial events of the future.
    """
    request, revision = call.request, call.ground.revision
    version = request.parameter("resourceVersion")
    parsed = _parsed(call)
    initial = _initial_events(request)
    if initial is None and version in ("", "0"):
        initial = True  # as clients always had it (``SetListOptionsDefaults``)
    selection = _selection(call, parsed)
    since = _version(call) or revision
    if initial and since > revision:
        raise too_large_version(since, revision)
    timeout = _timeout(call)
    if since < call.objects.horizon and not initial:
        status = expired(f"too old resource version: {since} ({call.objects.horizon})").status
        return Watch.refused(call.objects, status, call.now)
    opened = Watch(
        call.objects,
        call.prefix,
        selection,
        revision if initial else since,
        now=call.now,
        timeout=timeout,
        bookmarks=request.flag("allowWatchBookmarks"),
        progress=lambda: call.ground.revision,
        render=_table_of(call) if wants_table(request.accept) else None,
    )
    if initial:
        low, high = call.objects.span(call.prefix)
        items = [call.objects.objects[key] for key in call.objects.keys[low:high]]
        known = max(call.objects.revision, _version(call)) if version else revision  # the kind's own cache, or etcd
        mark_end = known if request.flag("allowWatchBookmarks") else 0
        opened.begin_with([item for item in items if selection.matches(item)], mark_end)
    return opened


def _table_of(call: Call) -> Callable[[Json, int], Json]:
    include = call.request.parameter("includeObject")

    def render(item: Json, now: int) -> Json:
        metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
        return table(call.kind, [item], metadata, now, include)

    return render


def _initial_events(request: Request) -> bool | None:
    """Read sendInitialEvents, ``None`` if the caller does not say.

    Raises:
        Refused: 422, it does not go together with resourceVersionMatch.
    """
    match = request.parameter("resourceVersionMatch")
    asked = any(name == "sendInitialEvents" for name, _ in request.query)
    causes: list[Cause] = []
    if asked and match != "NotOlderThan":
        said = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(forbidden_value("resourceVersionMatch", said))
    if match and not asked:
        said = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden_value("resourceVersionMatch", said))
    if match and match != "NotOlderThan":
        causes.append(unsupported_value("resourceVersionMatch", match, ("NotOlderThan",)))
    if match and request.parameter("continue"):
        said = "resourceVersionMatch is forbidden when continue is provided"
        causes.append(forbidden_value("resourceVersionMatch", said))
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)
    return request.flag("sendInitialEvents") if asked else None


def _timeout(call: Call) -> int:
    """Return how long a watch lives, in ns."""
    text = call.request.parameter("timeoutSeconds")
    if not text or text == "0":
        return int(MIN_WATCH_S * SECOND * (1 + call.ground.rng.random()))
    if not text.isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text) * SECOND


def _parsed(call: Call) -> Parsed:
    return parse(call.request.parameter("labelSelector"), call.request.parameter("fieldSelector"))


def _selection(call: Call, parsed: Parsed) -> Selection:
    """Compile the selectors; a watch or list of one object's path selects that object."""
    name = call.route.name
    selection = select(call.kind, parsed)
    if not name:
        return selection
    if parsed.terms and selection.name != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
    return selection if parsed.terms else select(call.kind, Parsed(parsed.tests, (("metadata.name", True, name),)))
