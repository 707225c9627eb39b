"""Defaults and rules of the built-in kinds other than pods and what they are made by."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from random import Random

from iriscw_sims.kube.frozen import EMPTY, freeze
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.refusals import Cause, forbidden_value, invalid_value, required_value, unsupported_value

ACTIVE = freeze({"phase": "Active"})


def default_namespace(new: Json, old: Json | None) -> None:
    """Give a namespace the label by which others select it."""
    metadata = new.get("metadata")
    if type(metadata) is dict and metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}


def prepare_namespace(new: Json, old: Json | None) -> None:
    """Hold a namespace until it is emptied; nobody but /finalize changes that."""
    new["spec"] = {"finalizers": ["kubernetes"]} if old is None else old.get("spec") or {}


def prepare_namespace_status(new: Json, old: Json | None) -> None:
    """Begin a namespace as active."""
    if old is None:
        new["status"] = ACTIVE
    else:
        new["spec"] = old.get("spec") or {}


def only_status(new: Json, old: Json | None) -> None:
    """Begin with an empty status; an update of it leaves all else alone."""
    if old is None:
        new["status"] = {}
        return
    for name in [name for name in new if name not in ("metadata", "status", "kind", "apiVersion")]:
        del new[name]
    new.update({name: part for name, part in old.items() if name not in ("metadata", "status")})


def keep_status_on_create(new: Json, old: Json | None) -> None:
    """As :func:`only_status`, but a new object may come with a status: a kubelet registers its node so."""
    if old is not None:
        only_status(new, old)


def default_secret(new: Json, old: Json | None) -> None:
    """A secret is opaque unless it says what it is; ``stringData`` is for writing only."""
    new.setdefault("type", "Opaque")
    texts = new.pop("stringData", None)
    if texts:
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def default_claim(new: Json, old: Json | None) -> None:
    """A claim is for a file system unless it says otherwise."""
    spec = new.get("spec")
    if type(spec) is dict:
        spec.setdefault("volumeMode", "Filesystem")


def prepare_claim(new: Json, old: Json | None) -> None:
    """Protect a new claim from being deleted while it is used (the admission plugin)."""
    if old is None:
        metadata = new["metadata"]
        finalizers = metadata.get("finalizers") or []
        if "kubernetes.io/pvc-protection" not in finalizers:
            metadata["finalizers"] = [*finalizers, "kubernetes.io/pvc-protection"]


def prepare_claim_status(new: Json, old: Json | None) -> None:
    """Begin a claim as pending."""
    only_status(new, old)
    if old is None:
        new["status"] = {"phase": "Pending"}


def prepare_service(new: Json, old: Json | None) -> None:
    """Give a headless service the families of its addresses; other addresses are not allocated here."""
    spec = new.get("spec")
    if old is None and type(spec) is dict and spec.get("clusterIP") == "None":
        spec.setdefault("clusterIPs", ["None"])
        dual = not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual else ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")


def draw_address(new: Json, rng: Random) -> None:
    """Give a new service an address of its own; that none has it yet is left to chance."""
    spec = new.get("spec")
    if type(spec) is dict and spec.get("type") != "ExternalName" and not spec.get("clusterIP"):
        address = f"10.{rng.randrange(96, 112)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        spec |= {"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}


def prepare_service_status(new: Json, old: Json | None) -> None:
    """Begin a service without a load balancer."""
    only_status(new, old)
    if old is None:
        new["status"] = {"loadBalancer": {}}


def prepare_role(new: Json, old: Json | None) -> None:
    """Store no rules as null: empty and absent are the same in protobuf."""
    if not new.get("rules"):
        new["rules"] = None


def judge_role(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a role: each of its rules allows something."""
    for index, rule in enumerate(new.get("rules") or ()):
        if not rule.get("verbs"):
            yield required_value(f"rules[{index}].verbs", "verbs must contain at least one value")
        if not rule.get("nonResourceURLs"):
            for name in ("apiGroups", "resources"):
                if not rule.get(name):
                    yield required_value(f"rules[{index}].{name}", f"resource rules must supply at least one {name}")


_DATA_KEY = re.compile(r"(?!\.\.?$|\.\.)[-._a-zA-Z0-9]{1,253}")
DATA_LIMIT_BYTES = 1024 * 1024
"""All values of a config map or secret together (``MaxSecretSize``)."""


def judge_data(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a config map or secret: its keys are names of files, and nothing of it changes once it is immutable."""
    data, binary = new.get("data") or EMPTY, new.get("binaryData") or EMPTY
    for field, values in (("data", data), ("binaryData", binary)):
        if old is not None and values is old.get(field):
            continue
        for key in values:
            if not _DATA_KEY.fullmatch(key):
                said = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                yield invalid_value(f"{field}[{key}]", key, said)
            if values is binary and key in data:
                yield invalid_value(f"{field}[{key}]", key, "duplicate of key present in data")
    if old is None or data is not old.get("data") or binary is not old.get("binaryData"):
        plain = sum(len(text.encode()) for text in data.values()) if new.get("kind") == "ConfigMap" else 0
        encoded = [*binary.values(), *(() if new.get("kind") == "ConfigMap" else data.values())]
        if plain + sum(len(text.rstrip("=")) * 3 // 4 for text in encoded) > DATA_LIMIT_BYTES:
            yield Cause("FieldValueTooLong", "", f"Too long: may not be more than {DATA_LIMIT_BYTES} bytes")
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden_value("immutable", "field is immutable when `immutable` is set")
    for name in ("data", "binaryData"):
        if (new.get(name) or EMPTY) != (old.get(name) or EMPTY):
            yield forbidden_value(name, "field is immutable when `immutable` is set")


def judge_secret(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a secret: its type is for life."""
    yield from judge_data(new, old)
    if old is not None and new.get("type") != old.get("type"):
        yield invalid_value("type", new.get("type"), "field is immutable")


def judge_lease(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a lease."""
    spec = new.get("spec") or EMPTY
    if (spec.get("leaseDurationSeconds") or 1) <= 0 or spec.get("leaseDurationSeconds") == 0:
        yield invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if (spec.get("leaseTransitions") or 0) < 0:
        said = "must be greater than or equal to 0"
        yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], said)


def judge_event(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge an event: it happens where its object is."""
    namespace = new["metadata"].get("namespace", "")
    involved = nested(new, "involvedObject", "namespace") or ""
    if involved != namespace and not (not involved and namespace in ("default", "kube-system")):
        yield invalid_value("involvedObject.namespace", involved, "does not match event.namespace")


def default_node(new: Json, old: Json | None) -> None:
    """All that a node has can be allocated unless it says otherwise."""
    status = new.get("status")
    if type(status) is dict and status.get("capacity"):
        status.setdefault("allocatable", status["capacity"])


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def admit_node(new: Json, old: Json | None) -> None:
    """Taint a new node: it is not ready before it says so (the admission plugin TaintNodesByCondition)."""
    if old is None:
        spec = new["spec"] = dict(new.get("spec") or {})
        taints = spec.get("taints") or []
        if NOT_READY not in taints:
            spec["taints"] = [*taints, NOT_READY]


def judge_node(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a node's taints, and that it stays the machine it is."""
    if old is None or new.get("spec") != old.get("spec"):
        yield from [*_judge_taints(new)] * (1 if old is None else 2)  # an update judges them twice, as upstream
    was = nested(old, "spec", "providerID")
    if was and nested(new, "spec", "providerID") != was:
        said = 'node updates may not change providerID except from "" to valid'
        yield forbidden_value("spec.providerID", said)


def _judge_taints(new: Json) -> Iterator[Cause]:
    seen: list[tuple[str, str]] = []
    for index, taint in enumerate(nested(new, "spec", "taints") or ()):
        at = f"metadata.taints[{index}]"
        if not taint.get("key"):
            yield invalid_value(f"{at}.key", "", "name part must be non-empty")
        if not taint.get("effect"):
            yield required_value(f"{at}.effect")
        elif taint["effect"] not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            supported = ("NoSchedule", "PreferNoSchedule", "NoExecute")
            yield unsupported_value(f"{at}.effect", taint["effect"], supported)
        pair = (taint.get("key", ""), taint.get("effect", ""))
        if pair in seen:
            text = "taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", at, f"Duplicate value: {text}")
        seen.append(pair)


def default_service(new: Json, old: Json | None) -> None:
    """Fill in a service's defaults; no address is allocated here but ``None``."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        if type(port) is dict:
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port")


def judge_service(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a service's ports."""
    spec = new.get("spec") or EMPTY
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield required_value("spec.ports")
    for index, port in enumerate(ports):
        if not 0 < (port.get("port") or 0) < 65_536:
            said = "must be between 1 and 65535, inclusive"
            yield invalid_value(f"spec.ports[{index}].port", port.get("port"), said)
        if len(ports) > 1 and not port.get("name"):
            yield required_value(f"spec.ports[{index}].name")


def default_role_binding(new: Json, old: Json | None) -> None:
    """Fill in the groups of a role binding's role and subjects."""
    role = new.get("roleRef")
    if type(role) is dict and not role.get("apiGroup"):
        role["apiGroup"] = "rbac.authorization.k8s.io"
    for subject in new.get("subjects") or ():
        if type(subject) is dict and subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def judge_role_binding(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a role binding: its role is for life."""
    role = new.get("roleRef") or EMPTY
    if role.get("kind") not in ("Role", "ClusterRole"):
        yield unsupported_value("roleRef.kind", role.get("kind", ""), ("Role", "ClusterRole"))
    if not role.get("name"):
        yield required_value("roleRef.name")
    if old is not None and role != old.get("roleRef"):
        yield invalid_value("roleRef", role, "cannot change roleRef")
