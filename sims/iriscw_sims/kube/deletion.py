"""Delete: preconditions, grace, finalizers and propagation, up to where the garbage collector takes over.

A delete that must wait is an update: it sets ``deletionTimestamp`` and leaves the object to those who named a
finalizer, or to the kubelet, which ends a pod and deletes it again with no grace. What waits for dependents waits with
a finalizer too (``foregroundDeletion``, ``orphan``); :mod:`iriscw_sims.kube.garbage` takes those off.
"""

from __future__ import annotations

from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import go_duration, parsed, written
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, FrozenList, freeze
from iriscw_sims.kube.kinds import Json, Kind, nested
from iriscw_sims.kube.listing import check_list_options
from iriscw_sims.kube.managed import unwritten
from iriscw_sims.kube.refusals import (
    Cause,
    Refused,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    unsupported_value,
)
from iriscw_sims.kube.selectors import parse, select

DEFAULT_GRACE_S = 30
"""Seconds a pod has to end if nobody says otherwise (``v1.DefaultTerminationGracePeriodSeconds``)."""

MOST_SECONDS = 1 << 63
"""Options have integers of 64 bits."""

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
IMMORTAL = ("default", "kube-system", "kube-public")
"""Namespaces that nobody may delete (``namespace/lifecycle/admission.go``)."""

_OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "gracePeriodSeconds": (int, str),
    "preconditions": (dict, FrozenDict),
    "propagationPolicy": (str,),
    "orphanDependents": (bool, str),
    "dryRun": (list, FrozenList, str),
}
"""What options are made of; in a query all are text."""

_POLICIES = ("Foreground", "Background", "Orphan")


@attrs.frozen
class Options:
    """How to delete. ``grace_s`` ``None`` leaves it to the object, ``policy`` ``""`` to the kind."""

    grace_s: int | None = None
    uid: str | None = None
    version: str | None = None
    policy: str = ""
    orphan: bool | None = None


def read_options(call: Call, body: Any = None) -> Options:
    """Read a delete's options, from a body or, without one, from the query.

    Raises:
        Refused: 400 or 422, they make no sense.
    """
    body = call.request.body if body is None else body
    given: Json = dict(call.request.query) if body is None else body
    if not isinstance(given, dict):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    for name, kinds in _OPTION_TYPES.items():
        if given.get(name) is not None and type(given[name]) not in kinds:
            raise bad_request(f"json: cannot unmarshal into Go struct field DeleteOptions.{name}")
    if body is not None and isinstance(given.get("gracePeriodSeconds"), str):
        raise bad_request("json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds")
    preconditions = given.get("preconditions") or EMPTY
    orphan = given.get("orphanDependents")
    policy = given.get("propagationPolicy") or ""
    _judge_options(given, policy, orphan)
    return Options(
        grace_s=_seconds(given.get("gracePeriodSeconds")),
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        policy=policy,
        orphan=None if orphan is None else str(orphan).lower() != "false",
    )


def _judge_options(given: Json, policy: str, orphan: Any) -> None:
    causes: list[Cause] = []
    if policy and orphan is not None:
        causes.append(
            invalid_value("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    if policy and policy not in _POLICIES:
        causes.append(unsupported_value("propagationPolicy", policy, (*_POLICIES, "nil")))
    dry = given.get("dryRun") or []
    values = dry if isinstance(dry, list) else [dry]
    if [value for value in values if value != "All"]:
        causes.append(unsupported_value("dryRun", values, ("All",)))
    if causes:
        raise invalid("meta.k8s.io", "DeleteOptions", "", causes)


def _seconds(value: Any) -> int | None:
    if value is None:
        return None
    try:
        seconds = int(value)
    except ValueError as wrong:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from wrong
    if not -MOST_SECONDS <= seconds < MOST_SECONDS:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": value out of range')
    return seconds


def is_dry(call: Call) -> bool:
    """Tell whether a delete is only tried: said in the query, or in the body's options."""
    body = call.request.body
    if call.request.method == "DELETE" and body is not None:
        return bool(nested(body, "dryRun"))  # the options are in one place or the other
    return call.dry or bool(nested(body, "deleteOptions", "dryRun"))


def delete(call: Call) -> tuple[int, Json]:
    """Delete the object that the path names: 200 (202 for foreground) and the object or a Status.

    Raises:
        Refused: 400, 404, 409 or 422.
    """
    options = read_options(call)
    item = call.found()
    last, gone = delete_object(call, item, options)
    waits = not gone and (options.policy == "Foreground" or options.orphan is False)
    if gone and not call.kind.returns_deleted and (last.get("metadata") or EMPTY).get("name"):
        return 200, success(call.kind, last)
    return 202 if waits and options.orphan is False else 200, last


def delete_collection(call: Call) -> tuple[int, Json]:
    """Delete what the selectors of the request select: 200 and a list of what was there.

    Raises:
        Refused: 400 or 422.
    """
    parsed = parse(call.request.parameter("labelSelector"), call.request.parameter("fieldSelector"))
    check_list_options(call.request)
    selection = select(call.kind, parsed)
    options = read_options(call)
    low, high = call.objects.span(call.prefix)
    keys = call.objects.keys[low:high]
    revision = call.ground.revision
    deleted: list[FrozenDict] = []
    for key in keys:
        item = call.objects.objects.get(key)
        if item is None or not selection.matches(item):
            continue
        deleted.append(call.objects.bare(item))
        try:
            delete_object(call, item, attrs.evolve(options, uid=item["metadata"]["uid"]))
        except Refused as refused:
            if refused.status["reason"] != "NotFound":
                raise
    kind = call.kind
    metadata = {"resourceVersion": str(revision)} | ({} if kind.typed else {"continue": ""})
    return 200, {"kind": kind.kind_of_list, "apiVersion": kind.api_version, "metadata": metadata, "items": deleted}


def success(kind: Kind, last: FrozenDict) -> Json:
    """Return the Status that tells of a deletion."""
    metadata = last["metadata"]
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
    if not kind.group:
        del details["group"]
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete_object(call: Call, item: FrozenDict, options: Options) -> tuple[FrozenDict, bool]:
    """Delete one object: give it as it is now or was last, and whether it is gone.

    Raises:
        Refused: 409, a precondition does not hold.
    """
    check_preconditions(call, item, options)
    if call.kind.kind == "Namespace":
        return _delete_namespace(call, item, options)
    metadata = item["metadata"]
    grace: int | None = None
    changes: Json = {}
    if call.kind.graceful:
        deadline = _graceful(call, item, options)
        if deadline is _PENDING:
            return item, False
        grace, changes = deadline
    finalizers = finalizers_after(metadata.get("finalizers") or (), options, collected=call.kind.collected)
    if grace is None and not finalizers:
        if is_dry(call) and metadata.get("finalizers"):
            return _nothing(call.kind), True
        return _remove(call, item), True
    if grace is None:
        grace = 0
        changes = _marked(metadata, call.now)
    new = dict(metadata) | changes
    new.pop("finalizers", None)
    if finalizers:
        new["finalizers"] = finalizers
    waiting = _write(call, item, {**item, "metadata": new})
    if finalizers or grace > 0:
        return waiting, False
    return _remove(call, waiting), True


def check_preconditions(call: Call, item: FrozenDict, options: Options) -> None:
    """Refuse to delete another object than the caller means, or another state of it.

    Raises:
        Refused: 409.
    """
    kind, metadata = call.kind, item["metadata"]
    named = kind.plural if kind.kind == "Namespace" else kind.kind  # deletes of namespaces are carried out elsewhere
    if options.uid is not None and options.uid != metadata["uid"]:
        said = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.group, named, metadata["name"], said)
    if options.version is not None and options.version != metadata["resourceVersion"]:
        said = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(kind.group, named, metadata["name"], said)


_PENDING: Any = object()


def _graceful(call: Call, item: FrozenDict, options: Options) -> tuple[int | None, Json]:
    """Return the grace of a deletion and how the metadata says it; ``_PENDING`` if one as short is under way."""
    metadata = item["metadata"]
    asked = options.grace_s if options.grace_s is None or options.grace_s >= 0 else 1
    if metadata.get("deletionTimestamp"):
        left = metadata.get("deletionGracePeriodSeconds") or 0
        if left == 0:
            return None, {}
        if asked is None or asked >= left:
            pending: tuple[int | None, Json] = _PENDING
            return pending
        deadline = (parsed(metadata["deletionTimestamp"]) or 0) + go_duration(-left) + go_duration(asked)
        if deadline < call.now:
            deadline, asked = call.now, 1 if asked else 0
        return asked, {"deletionTimestamp": written(deadline), "deletionGracePeriodSeconds": asked}
    grace = asked
    if grace is None:
        named = nested(item, "spec", "terminationGracePeriodSeconds")
        grace = DEFAULT_GRACE_S if named is None else named
    if not nested(item, "spec", "nodeName") or nested(item, "status", "phase") in ("Failed", "Succeeded"):
        grace = 0
    if grace < 0:
        grace = 1
    changes = {"deletionTimestamp": written(call.now + go_duration(grace)), "deletionGracePeriodSeconds": grace}
    return grace, changes | _next_generation(metadata)


def _next_generation(metadata: Json) -> Json:
    return {"generation": metadata["generation"] + 1} if metadata.get("generation") else {}


def _marked(metadata: Json, now: int) -> Json:
    """Return the metadata of an object that waits for its finalizers."""
    since = metadata.get("deletionTimestamp")
    changes: Json = {"deletionGracePeriodSeconds": 0}
    if not since:
        changes |= _next_generation(metadata)
    if not since or (parsed(since) or 0) > now:
        changes["deletionTimestamp"] = written(now)
    return changes


def finalizers_after(finalizers: Any, options: Options, *, collected: bool = True) -> list[str]:
    """Return the finalizers of an object of a garbage-collected kind that is being deleted with ``options``."""
    orphan, foreground = ORPHAN in finalizers, FOREGROUND in finalizers
    if options.policy:
        orphan, foreground = options.policy == "Orphan", options.policy == "Foreground"
    elif options.orphan is not None:
        orphan, foreground = options.orphan, False
    elif orphan:
        foreground = False
    rest = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    if not collected:
        return rest
    wanted = rest + [ORPHAN] * orphan + [FOREGROUND] * foreground
    return [*finalizers] if sorted(wanted) == sorted(finalizers) else wanted


def _delete_namespace(call: Call, item: FrozenDict, options: Options) -> tuple[FrozenDict, bool]:
    """Begin or end the deletion of a namespace: its own finalizers, in ``spec``, hold it while it is emptied."""
    metadata = item["metadata"]
    if metadata["name"] in IMMORTAL:
        raise forbidden("", "namespaces", metadata["name"], "this namespace may not be deleted")
    if not metadata.get("deletionTimestamp"):
        new = {**metadata, "deletionTimestamp": written(call.now)}
        finalizers = finalizers_after(metadata.get("finalizers") or (), options)
        new.pop("finalizers", None)
        if finalizers:
            new["finalizers"] = finalizers
        status = {**(item.get("status") or EMPTY), "phase": "Terminating"}
        item = _write(call, item, {**item, "metadata": new, "status": status})
    if nested(item, "spec", "finalizers"):
        return item, False
    if item["metadata"].get("finalizers"):
        return _write(call, item, {**item, "metadata": {**item["metadata"], "deletionGracePeriodSeconds": 0}}), False
    return _remove(call, item), True


def _nothing(kind: Kind) -> FrozenDict:
    """Return what upstream shows where a trial takes the last finalizer off: what its update would have filled in."""
    blank = unwritten(kind)
    if kind.typed and kind.scale is not None:  # inside of the server a number of replicas is never absent
        blank["spec"] = {**blank["spec"], "replicas": 0}
    found: FrozenDict = freeze(blank)
    return found


def _write(call: Call, item: FrozenDict, new: Json) -> FrozenDict:
    frozen: FrozenDict = freeze(new)
    if frozen == item:
        return item
    if is_dry(call):
        return frozen
    return call.ground.commit(call.objects, call.key_in(item), frozen)


def _remove(call: Call, item: FrozenDict) -> FrozenDict:
    if is_dry(call):
        return item
    return call.ground.erase(call.objects, call.key_in(item))
