"""Metadata: what the server fills in, and what it accepts from others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

from iriscw_sims.kube.frozen import EMPTY, FrozenDict
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.refusals import Cause, forbidden_value, invalid_value, required_value
from iriscw_sims.kube.selectors import is_label_key, is_label_value

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_BASE_LIMIT = 58
"""Characters of a generated name before its suffix, as in ``names/generate.go``."""

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
"""Keys and values of all annotations together, as in ``validation/objectmeta.go``."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
LABEL_SAID = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_SAID = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_1035_SAID = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
NAME_RULES: dict[str, tuple[re.Pattern[str], int, str]] = {
    "subdomain": (re.compile(rf"{_LABEL}(?:\.{_LABEL})*"), 253, SUBDOMAIN_SAID),
    "label": (re.compile(_LABEL), 63, LABEL_SAID),
    "label1035": (re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?"), 63, LABEL_1035_SAID),
    "segment": (re.compile(r"(?!\.\.?$)[^/%]+"), 1 << 20, "may not be '.' or '..' or contain '/' or '%'"),
}


def new_uid(rng: Random) -> str:
    """Draw a uid in the form of a random UUID."""
    digits = f"{rng.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def generated_name(base: str, rng: Random) -> str:
    """Draw a name that begins with ``base``."""
    return base[:_BASE_LIMIT] + "".join(rng.choice(_ALPHABET) for _ in range(_SUFFIX))


def same(old: FrozenDict, new: FrozenDict) -> bool:
    """Tell whether two states of an object differ in nothing but when its managers last wrote."""
    if len(old) != len(new) or any(new[name] != old.get(name, new) for name in new if name != "metadata"):
        return False
    was, now = old["metadata"], new["metadata"]
    if was is now:
        return True
    return _timeless(was) == _timeless(now)


def _timeless(metadata: Json) -> Json:
    entries = [{k: v for k, v in entry.items() if k != "time"} for entry in metadata.get("managedFields", ())]
    return {**metadata, "managedFields": entries}


def check_name(rule: str, name: str, field: str, *, prefix: bool = False) -> Iterator[Cause]:
    """Judge a name (or, with ``prefix``, the begin of one) by one of :data:`NAME_RULES`."""
    pattern, limit, said = NAME_RULES[rule]
    if prefix and len(name) > 1 and name.endswith("-"):
        name = name[:-2] + "a"  # as upstream's maskTrailingDash
    if len(name) > limit:
        yield invalid_value(field, name, f"must be no more than {limit} bytes")
    if not pattern.fullmatch(name):
        yield invalid_value(field, name, said)


def judge(kind: Kind, new: Json) -> Iterator[Cause]:
    """Judge a new object's metadata as its kind's own validation does."""
    if kind.metadata_rules.on_create:
        yield from _judge_names(kind.name_rule, new["metadata"])
        yield from _judge_whole(new["metadata"], strict=kind.metadata_rules.finalizers)


def judge_generally(new: Json) -> Iterator[Cause]:
    """Judge a new object's metadata as the server does for every kind, once the kind's own validation has passed."""
    yield from _judge_names("segment", new["metadata"])
    yield from _judge_whole(new["metadata"], strict=False)


def _judge_names(rule: str, metadata: Json) -> Iterator[Cause]:
    if metadata.get("generateName"):
        yield from check_name(rule, metadata["generateName"], "metadata.generateName", prefix=True)
    if not metadata.get("name"):
        yield required_value("metadata.name", "name or generateName is required")
    else:
        yield from check_name(rule, metadata["name"], "metadata.name")


def _judge_whole(metadata: Json, *, strict: bool) -> Iterator[Cause]:
    yield from _judge_maps(metadata)
    yield from _judge_finalizers(metadata)
    if strict:
        yield from _judge_plain_finalizers(metadata)
    yield from _judge_owners(metadata)


def _judge_maps(metadata: Json) -> Iterator[Cause]:
    for key, value in (metadata.get("labels") or EMPTY).items():
        if not is_label_key(key):
            yield invalid_value("metadata.labels", key, _key_said(key))
        if not is_label_value(value):
            yield invalid_value("metadata.labels", value, _value_said(value))
    size = 0
    for key, value in (metadata.get("annotations") or EMPTY).items():
        size += len(key.encode()) + len(value.encode())
        if not is_label_key(key.lower()):
            yield invalid_value("metadata.annotations", key, _key_said(key))
    if size > ANNOTATIONS_LIMIT_BYTES:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
        yield Cause("FieldValueTooLong", "metadata.annotations", text)


def _key_said(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if not name:
        return "name part must be non-empty"
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


def _value_said(value: str) -> str:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


PLAIN_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
"""Finalizers that need no qualified name: the server's own."""


def _judge_finalizers(metadata: Json) -> Iterator[Cause]:
    names: list[Any] = metadata.get("finalizers") or []
    for name in names:
        if not is_label_key(name):
            yield invalid_value("metadata.finalizers", name, _key_said(name))
    if "orphan" in names and "foregroundDeletion" in names:
        yield invalid_value("metadata.finalizers", names, "finalizer orphan and foregroundDeletion cannot be both set")


def _judge_plain_finalizers(metadata: Json) -> Iterator[Cause]:
    for index, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in PLAIN_FINALIZERS:
            said = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{index}]", name, said)


def _judge_owners(metadata: Json) -> Iterator[Cause]:
    controllers: list[str] = []
    for owner in metadata.get("ownerReferences") or ():
        at = "metadata.ownerReferences"
        group, slash, version = owner.get("apiVersion", "").partition("/")
        if not (version if slash else group) or "/" in version:
            yield invalid_value(f"{at}.apiVersion", owner.get("apiVersion", ""), "version must not be empty")
        if not owner.get("kind"):
            yield invalid_value(f"{at}.kind", "", "must not be empty")
        if not owner.get("name"):
            yield invalid_value(f"{at}.name", "", "must not be empty")
        if not owner.get("uid"):
            yield invalid_value(f"{at}.uid", "", "must not be empty")
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            yield invalid_value(at, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        listed = f"{controllers[0]} and {controllers[1]}"
        said = f'Only one reference can have Controller set to true. Found "true" in references for {listed}'
        yield Cause("FieldValueInvalid", "metadata.ownerReferences", f"Invalid value: {said}")


_IMMUTABLE = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def judge_change(kind: Kind, new: Json, old: FrozenDict, *, status: bool = False) -> Iterator[Cause]:
    """Judge the metadata of an update, ``status``: of the status alone. A mistake is told once for each look at it."""
    metadata, was = new["metadata"], old["metadata"]
    if metadata is was:
        return
    rules = kind.metadata_rules
    own_changes = int(rules.on_update)
    own_whole = int(rules.on_update and rules.whole_on_update and not status)
    everything = 2 + own_changes + own_whole
    for name in _IMMUTABLE:
        if metadata.get(name, "") != was.get(name, ""):
            wrong = invalid_value(f"metadata.{name}", metadata.get(name, ""), "field is immutable")
            yield from [wrong] * (1 + own_changes)
    if metadata.get("labels") is not was.get("labels") or metadata.get("annotations") is not was.get("annotations"):
        yield from [*_judge_maps(metadata)] * everything
    finalizers, had = metadata.get("finalizers") or [], was.get("finalizers") or []
    if finalizers != had:
        yield from [*_judge_finalizers(metadata)] * (1 + own_whole)
        if rules.finalizers:
            yield from [*_judge_plain_finalizers(metadata)] * (own_changes + own_whole)
        if was.get("deletionTimestamp"):
            yield from [*_judge_added_finalizers(finalizers, had)] * (1 + own_changes)
    if metadata.get("ownerReferences") != was.get("ownerReferences"):
        yield from [*_judge_owners(metadata)] * everything


def _judge_added_finalizers(finalizers: list[str], had: list[str]) -> Iterator[Cause]:
    added = sorted({name for name in finalizers if name not in had})
    if added:
        listed = ", ".join(f'"{name}"' for name in added)
        said = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield forbidden_value("metadata.finalizers", f"{said} []string{{{listed}}}")
