"""Create, replace and patch: one path for every kind, in the order in which the API server judges.

Theory of operation. A create is: read the body, fill in what only the server knows, judge, write. An update, whatever
its verb, is: compute the new object from the old one, compare resource versions, keep what may not change, judge,
write. An update that changes nothing writes nothing: no revision passes, no watch is told. The order of the checks is
the server's (``registry/generic/registry/store.go``, ``rest/create.go``, ``rest/update.go``), because it decides which
error a caller sees who made two mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from iriscw_sims.kube.versions import body_of, shown, stored

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
    generated = bool(metadata.get("generateName"))
    if generated and not metadata.get("name"):
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
    causes = causes or [*meta.judge_generally(new)]
    if causes:
        raise call.invalid(name, causes)
    _warn_of_finalizers(call, metadata.get("finalizers") or ())
    if metadata.pop("resourceVersion", ""):
        raise internal("resourceVersion should not be set on objects to be created")
    key = call.key_of(name)
    if key in call.objects.objects:
        going = bool(call.objects.objects[key]["metadata"].get("deletionTimestamp"))
        raise already_exists(call.kind.group, call.kind.plural, name, generated=generated, going=going)
    if call.dry:
        return _as_stored(call, freeze(new))
    return _commit(call, key, freeze(new))


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
    version_of(new["metadata"])
    version = new["metadata"].pop("resourceVersion", "")  # of an object that is gone: nothing more is asked of it
    check_place(call, new)
    owned_by_update(call, new, None)
    made = create_object(call, new)
    if version and call.dry:  # nothing was written that could give it another one
        made = freeze({**made, "metadata": {**made["metadata"], "resourceVersion": version}})
    return 201, made


def update(call: Call, old: FrozenDict, change: Callable[[FrozenDict], Json], *, applied: bool = False) -> FrozenDict:
    """Carry out an update of ``old`` whose outcome ``change`` computes; ``applied``: it owns its fields already.

    Raises:
        Refused: what ``change`` refuses, 409 for an old resourceVersion, 422.
    """
    new = change(old)
    metadata = new["metadata"] = dict(new.get("metadata") or {})
    check_version(call, old, metadata)
    if not applied:
        owned_by_update(call, new, old)
    keep_what_is_the_servers(call, old, new)
    metadata = new["metadata"]
    if call.kind.generation and _is_new_generation(call, old, new):
        metadata["generation"] = old["metadata"].get("generation", 0) + 1
    status = call.route.subresource == "status"
    rule = call.kind.status_rule if status else call.kind.rule
    causes = [*meta.judge_change(call.kind, new, old, status=status), *rule(new, old)]
    if causes:
        raise call.invalid(metadata.get("name", ""), causes)
    if not status:
        had = old["metadata"].get("finalizers") or ()
        _warn_of_finalizers(call, [name for name in metadata.get("finalizers") or () if name not in had])
    return settle(call, old, freeze(new))


def _warn_of_finalizers(call: Call, names: Sequence[str]) -> None:
    """Warn of new finalizers that others may choose, too: those of custom resources; of others they are refused."""
    for name in [] if call.kind.typed else sorted({*names}):
        if "/" not in name and name not in meta.PLAIN_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            said = f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts"
            call.warnings.append(f'metadata.finalizers: "{name}": {said} with other finalizer writers')


def settle(call: Call, old: FrozenDict, new: FrozenDict) -> FrozenDict:
    """Write what an update came to: nothing if nothing changed, a removal if its last finalizer went."""
    if _is_stored_already(call, old, new):
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
        return _as_stored(call, new)
    key = call.key_of(metadata["name"])
    if gone:
        call.ground.erase(call.objects, key)  # a watch sees it as it was stored, the caller as it would have been
        return new
    return _commit(call, key, new)


def _as_stored(call: Call, new: FrozenDict) -> FrozenDict:
    """Return an object as it would be read after it was written."""
    storage = call.objects.storage
    return new if storage is None else shown(call.kind, stored(storage.kind, new))


def _is_stored_already(call: Call, old: FrozenDict, new: FrozenDict) -> bool:
    """Tell whether an update changes nothing of what is stored."""
    storage = call.objects.storage or call.objects
    if not storage.views:
        return meta.same(old, new) and not _is_hollow(call, old)
    key = call.key_in(old)
    was = storage.bodies.get(key) or body_of(storage.kind, storage.objects[key])
    if was != body_of(storage.kind, new) or _is_hollow(call, old):
        return False
    return meta.same(storage.objects[key], freeze({**storage.objects[key], "metadata": new["metadata"]}))


def _is_hollow(call: Call, old: FrozenDict) -> bool:
    """Tell whether what is stored has empty parts that nobody reads, or is about to; see :attr:`Collection.hollow`."""
    return bool(call.hollow) or bool(call.objects.hollow and call.key_in(old) in call.objects.hollow)


def _commit(call: Call, key: str, new: FrozenDict) -> FrozenDict:
    if call.hollow:
        call.objects.hollow.add(key)
    else:
        call.objects.hollow.discard(key)
    return call.ground.commit(call.objects, key, new)


def version_of(metadata: Json) -> str:
    """Return the resourceVersion that a caller names, ``"0"`` for none.

    Raises:
        Refused: 500, it is not a number.
    """
    version = str(metadata.get("resourceVersion") or "0")
    if not version.isdecimal():
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    return version


def check_version(call: Call, old: FrozenDict, metadata: Json) -> None:
    """Refuse an update that rests on an outdated object."""
    version = version_of(metadata)
    if version == "0":
        if not call.kind.unconditional and call.request.method == "PUT":
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(call.kind.group, call.kind.plural, call.route.name, [cause])
    elif version != old["metadata"]["resourceVersion"]:
        raise conflict(call.kind.group, call.kind.plural, call.route.name)


def keep_what_is_the_servers(call: Call, old: FrozenDict, new: Json) -> None:
    """Keep what an update may not touch: the status, or all but the status, and system metadata.

    When and how an object is deleted is kept where the server knows it. Where it does not, what the caller says stays,
    and is refused later: it is of another object of that name.
    """
    kind, subresource = call.kind, call.route.subresource
    if subresource == "status":
        kind.prepare_status(new, old)
    elif subresource == "finalize":
        new.update({**old, "metadata": new["metadata"], "spec": new.get("spec") or {}})
    else:
        if kind.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        kind.prepare(new, old)
    metadata, was = new["metadata"], old["metadata"]
    metadata.pop("selfLink", None)
    metadata.pop("generation", None)
    for name in ("creationTimestamp", "generation", "deletionTimestamp"):
        if name in was:
            metadata[name] = was[name]
    for name in ("deletionGracePeriodSeconds", "uid"):
        if name in was:
            metadata.setdefault(name, was[name])
    metadata["resourceVersion"] = was["resourceVersion"]


def _is_new_generation(call: Call, old: FrozenDict, new: Json) -> bool:
    """Tell whether what is desired changed: the spec of built-in kinds, all but metadata and status of others."""
    if call.kind.typed:
        if call.kind.counts_annotations and call.route.subresource != "status":
            now, was = new["metadata"].get("annotations") or EMPTY, old["metadata"].get("annotations") or EMPTY
            if now != was:
                return True
        return bool(new.get("spec", EMPTY) != old.get("spec", EMPTY))
    ignored = ("metadata", "status", "apiVersion", "kind") if call.kind.status else ("metadata", "apiVersion", "kind")
    return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}


def plain(value: Any) -> Json:
    """Return a shallow copy of an object whose metadata may be changed, too."""
    copy = dict(value)
    copy["metadata"] = dict(copy.get("metadata") or {})
    return copy
