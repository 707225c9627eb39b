"""Custom resource definitions: what is served because somebody said so.

A definition is established in the same instant in which it is created (the real server takes a second), by a second
write that carries its conditions, so that a watch sees both. What becomes of objects in several versions is in
:mod:`iriscw_sims.kube.versions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube import structural, validation
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, FrozenList, freeze
from iriscw_sims.kube.kinds import LENIENT_CHANGES, METADATA_FIELDS, Json, Kind, ScalePaths, field_at, nested
from iriscw_sims.kube.meta import check_name
from iriscw_sims.kube.refusals import (
    Cause,
    invalid_value,
    quoted,
    required_value,
    type_invalid,
    unsupported_value,
)
from iriscw_sims.kube.scale import judge_replicas
from iriscw_sims.kube.tables import custom_columns

_NAMESPACE = "metadata.namespace"
SCOPES = ("Cluster", "Namespaced")


def default_definition(new: Json, old: Json | None) -> None:
    """Fill in the names that follow from others, and that nothing is converted."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    names = spec.get("names")
    if type(names) is dict and names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    if "conversion" not in spec:
        spec["conversion"] = {"strategy": "None"}


def prepare_definition_status(new: Json, old: Json | None) -> None:
    """Begin a definition's status; an update of it leaves the rest alone."""
    if old is not None:
        new["spec"] = old["spec"]
        return
    versions = nested(new, "spec", "versions") or ()
    stored = [each["name"] for each in versions if each.get("storage")]
    names = {"plural": "", "kind": ""}
    new["status"] = {"conditions": None, "acceptedNames": names, "storedVersions": stored}


def judge_definition(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a definition: its name, scope and versions, and that each has a schema."""
    spec = new.get("spec") or EMPTY
    names = spec.get("names") or EMPTY
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if new["metadata"].get("name") != wanted:
        said = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", new["metadata"].get("name"), said)
    if not spec.get("group"):
        yield required_value("spec.group")
    else:
        yield from check_name("subdomain", spec["group"], "spec.group")
    if spec.get("scope") not in SCOPES:
        yield unsupported_value("spec.scope", spec.get("scope", ""), SCOPES)
    for name in ("plural", "kind"):
        if not names.get(name):
            yield required_value(f"spec.names.{name}")
        else:
            yield from check_name("label1035", names[name].lower(), f"spec.names.{name}")
    yield from _judge_versions(spec.get("versions") or ())
    if old is not None:
        yield from _judge_identity(spec, old["spec"])


def _judge_versions(versions: Any) -> Iterator[Cause]:
    if sum(bool(each.get("storage")) for each in versions) != 1:
        shown = [each.get("name") for each in versions]
        yield invalid_value("spec.versions", shown, "must have exactly one version marked as storage version")
    for index, each in enumerate(versions):
        yield from check_name("label1035", each.get("name", ""), f"spec.versions[{index}].name")
        source = nested(each, "schema", "openAPIV3Schema")
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
        if source is None:
            yield required_value(at, "schemas are required")
        else:
            yield from _judge_schema(source, at)
            if isinstance(source, dict) and source.get("type") != "object":
                yield invalid_value(f"{at}.type", source.get("type", ""), "must be object at the root")
        for number, column in enumerate(each.get("additionalPrinterColumns") or ()):
            for name in ("name", "type", "jsonPath"):
                if not column.get(name):
                    yield required_value(f"spec.versions[{index}].additionalPrinterColumns[{number}].{name}")


_WORDS: dict[str, tuple[type, ...]] = {
    "type": (str,),
    "properties": (dict, FrozenDict),
    "required": (list, FrozenList),
    "enum": (list, FrozenList),
    "pattern": (str,),
    "minimum": (int, float),
    "maximum": (int, float),
    "x-kubernetes-validations": (list, FrozenList),
    "x-kubernetes-list-map-keys": (list, FrozenList),
}
"""What the words of a schema are made of, as far as a wrong one would be believed."""


def _judge_schema(source: Any, at: str) -> Iterator[Cause]:
    """Judge that a schema is one, all the way down."""
    if not isinstance(source, dict):
        yield type_invalid(at, quoted(source), "must be an object")
        return
    for name, kinds in _WORDS.items():
        if name in source and type(source[name]) not in kinds:
            yield type_invalid(f"{at}.{name}", quoted(source[name]), "is of another type")
            return
    for name, inner in (source.get("properties") or EMPTY).items():
        yield from _judge_schema(inner, f"{at}.properties[{name}]")
    for name in ("items", "not"):
        if name in source:
            yield from _judge_schema(source[name], f"{at}.{name}")
    if isinstance(source.get("additionalProperties"), dict):
        yield from _judge_schema(source["additionalProperties"], f"{at}.additionalProperties")


def _judge_identity(spec: Json, was: Json) -> Iterator[Cause]:
    for name in ("group", "scope"):
        if spec.get(name) != was.get(name):
            yield invalid_value(f"spec.{name}", spec.get(name), "field is immutable")
    for name in ("plural", "kind"):
        if nested(spec, "names", name) != nested(was, "names", name):
            yield invalid_value(f"spec.names.{name}", nested(spec, "names", name), "field is immutable")


def established(definition: FrozenDict, now: int) -> FrozenDict:
    """Return a definition whose names were accepted and whose kinds are served."""
    names = definition["spec"]["names"]
    at = written(now)

    def condition(kind: str, reason: str, message: str) -> Json:
        return {"type": kind, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message}

    status = {
        **definition["status"],
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    }
    ready: FrozenDict = freeze({**definition, "status": status})
    return ready


def kinds_of(definition: FrozenDict) -> list[Kind]:
    """Return the kinds that a definition serves, one per version."""
    spec = definition["spec"]
    storage = next(_kind(spec, version) for version in spec["versions"] if version.get("storage"))
    return [
        storage if version.get("storage") else _kind(spec, version, storage)
        for version in spec["versions"]
        if version.get("served")
    ]


def _kind(spec: Json, version: Json, storage: Kind | None = None) -> Kind:
    names = spec["names"]
    source = nested(version, "schema", "openAPIV3Schema") or EMPTY
    status = nested(version, "subresources", "status") is not None

    paths = nested(version, "subresources", "scale") or {}
    scale = None
    if paths:
        scale = ScalePaths(paths["specReplicasPath"], paths["statusReplicasPath"], paths.get("labelSelectorPath") or "")

    ruled = validation.has_rules(source)

    def rule(new: Json, old: Json | None) -> Iterator[Cause]:
        yield from validation.judge(source, new, old, ruled=ruled)
        if scale is not None and (old is None or new.get("spec") != old.get("spec")):
            yield from judge_replicas(scale.wanted, new)

    def status_rule(new: Json, old: Json | None) -> Iterator[Cause]:
        yield from validation.judge(source, new, old, ruled=ruled)
        if scale is not None:
            yield from judge_replicas(scale.current, new)

    def prepare_status(new: Json, old: Json | None) -> None:
        if old is None:
            new.pop("status", None)
            return
        changed, fields = new.get("status"), new["metadata"].get("managedFields")
        new.clear()
        new.update(old)
        new.pop("status", None)
        if changed is not None:
            new["status"] = changed
        kept = {name: part for name, part in old["metadata"].items() if name != "managedFields"}
        new["metadata"] = kept | ({"managedFields": fields} if fields else {})

    selectable = [each["jsonPath"] for each in version.get("selectableFields") or ()]
    own = {name: read for name, read in METADATA_FIELDS.items() if spec["scope"] == "Namespaced" or name != _NAMESPACE}
    fields = {path.lstrip("."): field_at(*path.lstrip(".").split(".")) for path in selectable}
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        list_kind=names.get("listKind") or "",
        typed=False,
        status=status,
        scale=scale,
        generation=True,
        unconditional=False,
        fields={**own, **fields},
        metadata_rules=LENIENT_CHANGES,
        kept_by_status=(("f:metadata",), ("f:spec",)),
        schema=structural.compiled(source),
        prepare_status=prepare_status,
        rule=rule,
        status_rule=status_rule,
        columns=custom_columns(version.get("additionalPrinterColumns") or ()),
        storage=storage,
    )
