"""Create, replace and patch: one path for every kind, in the order in which the API server judges.

Theory of operation. A create is: read the body, fill in what only the server knows, judge, write. An update, whatever
its verb, is: compute the new object from the old one, compare resource versions, keep what may not change, judge,
write. An update that changes nothing writes nothing: no revision passes, no watch is told. The order of the checks is
the server's (``registry/generic/registry/store.go``, ``rest/create.go``, ``rest/update.go``), because it decides which
error a caller sees who made two mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iriscw_sims.kube import meta
from iriscw_sims.kube.bodies import read_object
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, freeze, shared
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.managed import owned_by_update
from iriscw_sims.kube.refusals import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    invalid_value,
    not_found,
)

NAME_ATTEMPTS = 8
"""Names the server draws for one generateName, as in ``rest/create.go`` (``maxNameGenerationCreateAttempts``)."""


def create(call: Call) -> tuple[int, FrozenDict]:
    """Create an object: 201 and the object.

    Raises:
        Refused: 400, 403, 404, 409 or 422.
    """
    new = read_object(call)
    check_place(call, new)
    owned_by_update(call, new, None)
    return 201, create_object(call, new)


def check_place(call: Call, new: Json) -> None:
    """Fill in the namespace, and refuse one that contradicts the path, is not there, or is going away."""
    metadata = new.setdefault("metadata", {})
    if not call.kind.namespaced:
        metadata.pop("namespace", None)
        return
    place = call.route.namespace
    if metadata.setdefault("namespace", place) != place:
        said = "the namespace of the provided object does not match the namespace sent on the request"
        raise bad_request(said)
    namespace = call.ground.namespace(place)
    if namespace is None:
        raise not_found("", "namespaces", place)
    if namespace["metadata"].get("deletionTimestamp"):
        said = f"unable to create new content in namespace {place} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {place} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(call.kind.group, call.kind.plural, metadata.get("name", ""), said, [cause])


def create_object(call: Call, new: Json) -> FrozenDict:
    """Complete, judge and write a new object; ``new`` is the caller's to give away."""
    metadata = new["metadata"]
    generated = not metadata.get("name") and bool(metadata.get("generateName"))
    if generated:
        metadata["name"] = _free_name(call, metadata["generateName"])
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        metadata.pop(name, None)
    metadata["uid"] = meta.new_uid(call.ground.rng)
    metadata["creationTimestamp"] = written(call.now)
    if call.kind.generation:
        metadata["generation"] = 1
    if call.kind.status:
        call.kind.prepare_status(new, None)
    call.kind.prepare(new, None)
    if call.kind.draw is not None:
        call.kind.draw(new, call.ground.rng)
    causes = [*meta.judge(call.kind, new), *call.kind.rule(new, None)]
    name = metadata.get("name", "")
    if causes:
        raise call.invalid(name, causes)
    if metadata.pop("resourceVersion", ""):
        raise internal("resourceVersion should not be set on objects to be created")
    key = call.key_of(name)
    if key in call.objects.objects:
        going = bool(call.objects.objects[key]["metadata"].get("deletionTimestamp"))
        raise already_exists(call.kind.group, call.kind.plural, name, generated=generated, going=going)
    if call.dry:
        frozen: FrozenDict = freeze(new)
        return frozen
    return call.ground.commit(call.objects, key, freeze(new))


def _free_name(call: Call, base: str) -> str:
    for _ in range(NAME_ATTEMPTS):
        name = meta.generated_name(base, call.ground.rng)
        if call.key_of(name) not in call.objects.objects:
            break
    return name


def replace(call: Call) -> tuple[int, FrozenDict]:
    """Replace an object by the body: 200 and the object (201 where the kind lets a PUT create).

    Raises:
        Refused: 400, 403, 404, 409 or 422.
    """
    new = read_object(call)
    name = nested(new, "metadata", "name") or ""
    if name != call.route.name:
        said = f"the name of the object ({name}) does not match the name on the URL ({call.route.name})"
        raise bad_request(said)
    metadata = new["metadata"]
    if call.kind.namespaced and metadata.setdefault("namespace", call.route.namespace) != call.route.namespace:
        said = f"the namespace of the object ({metadata['namespace']}) does not match the namespace on the URL"
        raise bad_request(f"{said} ({call.route.namespace})")
    old = call.objects.objects.get(call.key)
    if old is None:
        return _create_by_replacing(call, new)
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        said = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
        raise conflict(call.kind.group, call.kind.plural, name, said)
    return 200, update(call, old, lambda old: dict(shared(old, new)))


def _create_by_replacing(call: Call, new: Json) -> tuple[int, FrozenDict]:
    name = call.route.name
    if not call.kind.upsert or call.route.subresource:
        raise not_found(call.kind.group, call.kind.plural, name)
    if new["metadata"].get("uid"):
        said = f"Precondition failed: UID in precondition: {new['metadata']['uid']}, UID in object meta: "
        raise conflict(call.kind.group, call.kind.plural, name, said)
    if new["metadata"].get("resourceVersion", "") not in ("", "0"):
        raise conflict(call.kind.group, call.kind.plural, name)
    check_place(call, new)
    owned_by_update(call, new, None)
    return 201, create_object(call, new)


def update(call: Call, old: FrozenDict, change: Callable[[FrozenDict], Json], *, applied: bool = False) -> FrozenDict:
    """Carry out an update of ``old`` whose outcome ``change`` computes; ``applied``: it owns its fields already.

    Raises:
        Refused: what ``change`` refuses, 409 for an old resourceVersion, 422.
    """
    new = change(old)
    metadata = new["metadata"] = dict(new.get("metadata") or {})
    check_version(call, old, metadata)
    keep_what_is_the_servers(call, old, new)
    if not applied:
        owned_by_update(call, new, old)
    metadata = new["metadata"]
    if call.kind.generation and _is_new_generation(call, old, new):
        metadata["generation"] = old["metadata"].get("generation", 0) + 1
    rule = call.kind.status_rule if call.route.subresource == "status" else call.kind.rule
    twice = [*meta.judge_change(call.kind, new, old)] * 2  # by the strategy and by the registry, as upstream
    causes = [*twice, *rule(new, old)]
    if causes:
        raise call.invalid(metadata.get("name", ""), causes)
    return settle(call, old, freeze(new))


def settle(call: Call, old: FrozenDict, new: FrozenDict) -> FrozenDict:
    """Write what an update came to: nothing if nothing changed, a removal if its last finalizer went."""
    if meta.same(old, new):
        return old
    metadata = new["metadata"]
    gone = (
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )
    if gone and call.kind.plural == "namespaces" and nested(new, "spec", "finalizers"):
        gone = False
    if call.dry:
        return new
    key = call.key_of(metadata["name"])
    if gone:
        call.ground.erase(call.objects, key, new)
        return new
    return call.ground.commit(call.objects, key, new)


def check_version(call: Call, old: FrozenDict, metadata: Json) -> None:
    """Refuse an update that rests on an outdated object."""
    version = str(metadata.get("resourceVersion") or "0")
    if not version.isdecimal():
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if version == "0":
        if not call.kind.unconditional and call.request.method == "PUT":
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(call.kind.group, call.kind.plural, call.route.name, [cause])
    elif version != old["metadata"]["resourceVersion"]:
        raise conflict(call.kind.group, call.kind.plural, call.route.name)


_SERVERS_OWN = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def keep_what_is_the_servers(call: Call, old: FrozenDict, new: Json) -> None:
    """Keep what an update may not touch: system metadata, and the status or all but the status."""
    kind, subresource = call.kind, call.route.subresource
    metadata, was = new["metadata"], old["metadata"]
    for name in _SERVERS_OWN:
        metadata.pop(name, None)
        if name in was:
            metadata[name] = was[name]
    metadata.pop("selfLink", None)
    metadata.setdefault("uid", was["uid"])
    metadata["resourceVersion"] = was["resourceVersion"]
    if subresource == "status":
        kind.prepare_status(new, old)
    elif subresource == "finalize":
        spec = new.get("spec") or {}
        new.update({**old, "metadata": metadata, "spec": spec})
    else:
        if kind.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        kind.prepare(new, old)


def _is_new_generation(call: Call, old: FrozenDict, new: Json) -> bool:
    """Tell whether what is desired changed: the spec of built-in kinds, all but metadata and status of others."""
    if call.kind.typed:
        return bool(new.get("spec", EMPTY) != old.get("spec", EMPTY))
    ignored = ("metadata", "status", "apiVersion", "kind") if call.kind.status else ("metadata", "apiVersion", "kind")
    return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}


def plain(value: Any) -> Json:
    """Give a shallow copy of an object whose metadata may be changed, too."""
    copy = dict(value)
    copy["metadata"] = dict(copy.get("metadata") or {})
    return copy
