"""The few objects that kubectl sends as protobuf, whatever the server says it would rather have.

Most of kubectl sends JSON. ``create configmap``, ``auth can-i``, ``drain`` and their like send Kubernetes' own
protobuf, and take a 415 for the end. So those kinds are read here, by tables of the fields that kubectl sets
(``generated.proto`` of each group). All other kinds are refused by name, and so is an object with something in a field
that is in no table: nothing is lost in silence. Nothing is ever written as protobuf: every client takes JSON for an
answer.

The envelope is four bytes and a message ``Unknown``: the object's apiVersion and kind, and the object.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube.clock import written

MAGIC = b"k8s\0"

_TYPES = """
Unknown 1:typeMeta:TypeMeta 2:raw:raw
TypeMeta 1:apiVersion:s 2:kind:s
v1/ConfigMap 1:metadata:ObjectMeta 2:data:{}s 3:binaryData:{}y 4:immutable:b
v1/Secret 1:metadata:ObjectMeta 2:data:{}y 3:type:s 4:stringData:{}s 5:immutable:b
v1/Namespace 1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:-
v1/ServiceAccount 1:metadata:ObjectMeta 4:automountServiceAccountToken:b
v1/DeleteOptions 1:gracePeriodSeconds:i 2:preconditions:Preconditions 3:orphanDependents:b 4:propagationPolicy:s 5:dryRun:[]s
meta.k8s.io/v1/DeleteOptions 1:gracePeriodSeconds:i 2:preconditions:Preconditions 3:orphanDependents:b 4:propagationPolicy:s 5:dryRun:[]s
policy/v1/Eviction 1:metadata:ObjectMeta 2:deleteOptions:v1/DeleteOptions
authorization.k8s.io/v1/SelfSubjectAccessReview 1:metadata:ObjectMeta 2:spec:AccessReviewSpec 3:status:-
rbac.authorization.k8s.io/v1/Role 1:metadata:ObjectMeta 2:rules:[]PolicyRule
rbac.authorization.k8s.io/v1/ClusterRole 1:metadata:ObjectMeta 2:rules:[]PolicyRule
rbac.authorization.k8s.io/v1/RoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
rbac.authorization.k8s.io/v1/ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
apps/v1/Deployment 1:metadata:ObjectMeta 2:spec:DeploymentSpec 3:status:-
PolicyRule 1:verbs:[]s 2:apiGroups:[]s 3:resources:[]s 4:resourceNames:[]s 5:nonResourceURLs:[]s
Subject 1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s
RoleRef 1:apiGroup:s 2:kind:s 3:name:s
DeploymentSpec 1:replicas:i 2:selector:LabelSelector 3:template:PodTemplateSpec
LabelSelector 1:matchLabels:{}s
PodTemplateSpec 1:metadata:ObjectMeta 2:spec:PodSpec
PodSpec 2:containers:[]Container
Container 1:name:s 2:image:s 3:command:[]s 4:args:[]s 5:workingDir:s 6:ports:[]ContainerPort
ContainerPort 1:name:s 3:containerPort:i 4:protocol:s
AccessReviewSpec 1:resourceAttributes:ResourceAttributes 2:nonResourceAttributes:NonResourceAttributes
ResourceAttributes 1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s 6:subresource:s 7:name:s
NonResourceAttributes 1:path:s 2:verb:s
NamespaceSpec 1:finalizers:[]s
Preconditions 1:uid:s 2:resourceVersion:s
ObjectMeta 1:name:s 2:generateName:s 3:namespace:s 5:uid:s 6:resourceVersion:s 7:generation:i 8:creationTimestamp:t 9:deletionTimestamp:t 10:deletionGracePeriodSeconds:i 11:labels:{}s 12:annotations:{}s 13:ownerReferences:[]OwnerReference 14:finalizers:[]s
OwnerReference 1:kind:s 3:name:s 4:uid:s 5:apiVersion:s 6:controller:b 7:blockOwnerDeletion:b
"""  # noqa: E501 - one message a line

UNSET_LEVELS = 4
"""Levels of a field that was never set; a deployment's strategy and a container's probes have two."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SECOND = 1_000_000_000


def _table() -> dict[str, dict[int, tuple[str, str]]]:
    table: dict[str, dict[int, tuple[str, str]]] = {}
    for line in _TYPES.strip().splitlines():
        name, *fields = line.split()
        table[name] = {int(number): (json, kind) for number, json, kind in (each.split(":") for each in fields)}
    return table


_MESSAGES = _table()


class Undecodable(ValueError):
    """A body that is no protobuf, or of a kind that is not read as protobuf here."""


def decode(data: bytes) -> dict[str, Any]:
    """Give the object in a body, as JSON would have it.

    Raises:
        Undecodable: it is none, or of another kind than those of this module.
    """
    if not data.startswith(MAGIC):
        raise Undecodable("the body is no Kubernetes protobuf")
    envelope = _message("Unknown", data[len(MAGIC) :])
    meta = envelope.get("typeMeta", {})
    version, kind = meta.get("apiVersion", ""), meta.get("kind", "")
    name = f"{version}/{kind}"
    if name not in _MESSAGES:
        raise Undecodable(f"{name[:100]} is not read as protobuf here")
    return {"apiVersion": version, "kind": kind, **_message(name, envelope.get("raw", b""))}


def _message(name: str, data: bytes) -> dict[str, Any]:
    fields = _MESSAGES[name]
    result: dict[str, Any] = {}
    for number, wire, value in _pairs(data):
        if number not in fields:
            if not _is_unset(value):
                raise Undecodable(f"field {number} of {name} is not read as protobuf here")
            continue
        json, kind = fields[number]
        if kind == "-":
            continue
        if kind.startswith("[]"):
            result.setdefault(json, []).append(_value(kind[2:], wire, value))
        elif kind.startswith("{}"):
            key, item = _entry(kind[2:], wire, value)
            result.setdefault(json, {})[key] = item
        else:
            read = _value(kind, wire, value)
            if read not in ("", None):  # Go writes what is not set as empty
                result[json] = read
    return result


def _is_unset(value: int | bytes, levels: int = UNSET_LEVELS) -> bool:
    """Tell whether a field is one of those that Go writes although they were never set."""
    if isinstance(value, int):
        return value == 0
    try:
        return levels > 0 and all(_is_unset(inner, levels - 1) for _, _, inner in _pairs(value))
    except Undecodable:
        return False  # a text


def _value(kind: str, wire: int, value: int | bytes) -> Any:
    if kind in ("i", "b"):
        if not isinstance(value, int) or wire != _VARINT:
            raise Undecodable("a number is none")
        if kind == "b":
            return bool(value)
        return value - 2**64 if value >= 2**63 else value
    if not isinstance(value, bytes) or wire != _BYTES:
        raise Undecodable("a text is none")
    if kind == "s":
        return _text(value)
    if kind == "y":
        return base64.b64encode(value).decode()
    if kind == "t":
        return _time(value)
    return value if kind == "raw" else _message(kind, value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as wrong:
        raise Undecodable("a text is no UTF-8") from wrong


def _time(data: bytes) -> str | None:
    seconds = next((value for number, wire, value in _pairs(data) if number == 1 and wire == _VARINT), 0)
    if not isinstance(seconds, int) or not 0 < seconds < 2**33:
        return None
    return written(seconds * _SECOND)


def _entry(kind: str, wire: int, value: int | bytes) -> tuple[str, Any]:
    """Read one entry of a map."""
    if not isinstance(value, bytes) or wire != _BYTES:
        raise Undecodable("an entry of a map is none")
    key: Any = ""
    item: Any = ""
    for number, inner, each in _pairs(value):
        if number == 1:
            key = _value("s", inner, each)
        elif number == 2:
            item = _value(kind, inner, each)
    return key, item


def _pairs(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Give the fields of a message: number, wire type, and a number or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise Undecodable("an unknown wire type")
        if length > len(data) - at:
            raise Undecodable("the body ends early")
        yield number, wire, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise Undecodable("the body ends early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise Undecodable("a number is too long")
