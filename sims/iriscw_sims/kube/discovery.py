"""What is served: the documents by which clients find their way before they ask for an object."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from iriscw_sims.kube.kinds import Json, Kind

HEALTH = ("/readyz", "/livez", "/healthz")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_SUBRESOURCES = {
    "binding": ("Binding", "", "v1", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
    "scale": ("Scale", "autoscaling", "v1", ["get", "patch", "update"]),
    "finalize": ("", "", "", ["update"]),
}


def document(path: str, kinds: Sequence[Kind], version: str) -> Json | None:
    """Return the discovery document at a path, ``None`` if there is none."""
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return _version(version)
    if path in HEALTH:
        return {"text": "ok"}
    if parts == ["api"]:
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
    if parts == ["apis"]:
        groups = [_group(name, kinds) for name in dict.fromkeys(kind.group for kind in kinds if kind.group)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] == "api" and len(parts) == 2:
        return _resources("", parts[1], kinds)
    if parts[0] == "apis" and len(parts) == 2 and any(kind.group == parts[1] for kind in kinds):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], kinds)}
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(parts[1], parts[2], kinds)
    return None


def _version(version: str) -> Json:
    """Say what is served. Clients of some languages want all that a real one says; nobody built this one."""
    major, minor = version.lstrip("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(max(0, int(minor) - 1)),
        "gitVersion": version,
        "gitCommit": "simulated",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "simulated",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def _group(name: str, kinds: Sequence[Kind]) -> Json:
    versions = dict.fromkeys(kind.version for kind in kinds if kind.group == name)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(group: str, version: str, kinds: Sequence[Kind]) -> Json | None:
    mine = [kind for kind in kinds if kind.group == group and kind.version == version]
    if not mine:
        return None
    listed = [entry for kind in sorted(mine, key=lambda kind: kind.plural) for entry in _entries(kind)]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def _entries(kind: Kind) -> list[Json]:
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS if kind.typed else _CUSTOM_VERBS,
    }
    if kind.one_by_one:
        entry["verbs"] = [verb for verb in _VERBS if verb != "deletecollection"]
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    digest = hashlib.sha256(f"{kind.group}/{kind.version}/{kind.kind}".encode()).digest()
    entry["storageVersionHash"] = base64.b64encode(digest[:8]).decode()
    return [entry, *(_subresource(kind, name) for name in sorted(subresources_of(kind)))]


def subresources_of(kind: Kind) -> list[str]:
    """Return the names of a kind's subresources."""
    return [*kind.subresources, *(["status"] if kind.status else []), *(["scale"] if kind.scale else [])]


def _subresource(kind: Kind, name: str) -> Json:
    own, group, version, verbs = _SUBRESOURCES.get(name, ("", "", "", ["get", "patch", "update"]))
    entry: Json = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    if group or (own and own != kind.kind and name == "scale"):
        entry |= {"group": group, "version": version}
    return {**entry, "kind": own or kind.kind, "verbs": verbs}
