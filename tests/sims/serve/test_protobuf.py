"""What clients send as protobuf is read as JSON would have it; nothing else is, and nothing breaks the reader."""

import base64
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.core_kinds import CORE_KINDS
from iriscw_sims.kube.kinds import Kind
from iriscw_sims.serve.protobuf import MAGIC, Undecodable, decode
from raised import that


def field(number, value):
    """Write one field: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    """Write a number."""
    value &= 2**64 - 1
    data = b""
    while value >= 0x80:
        data += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return data + bytes((value,))


def enveloped(version, kind, raw):
    """Write an object with what it is."""
    return MAGIC + field(1, field(1, version.encode()) + field(2, kind.encode())) + field(2, raw)


def schema_of(raw):
    """Return the schema of a definition that has this one."""
    data = field(2, field(7, field(4, field(1, raw))))
    read = decode(enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", data))
    return read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def entry(key, value):
    """Write an entry of a map."""
    return field(1, key) + field(2, value)


RECORDED = [json.loads(line) for line in (Path(__file__).parent / "recorded.jsonl").read_text().splitlines()]
"""What client-go 0.36.3 sends of small objects, and how it writes them as JSON (``kube/real/client/controller``)."""


@pytest.mark.parametrize("sent", RECORDED, ids=[each["json"]["kind"] for each in RECORDED])
def test_what_client_go_sends_is_what_its_json_says(sent):
    """Also what is not set: it is left out where JSON leaves it out, and empty or 0 where that means something."""
    assert decode(base64.b64decode(sent["pb"])) == sent["json"]


def test_every_kind_that_is_served_is_read():
    """So that no program in Go is told to send something else. Custom resources have no protobuf."""
    kinds = [*CORE_KINDS, Kind("", "v1", "Binding", "bindings", "binding"), Kind("policy", "v1", "Eviction", "", "")]
    for kind in (*kinds, Kind("autoscaling", "v1", "Scale", "", "")):
        version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        read = decode(enveloped(version, kind.kind, field(1, field(1, b"a"))))
        assert read == {"apiVersion": version, "kind": kind.kind, "metadata": {"name": "a"}}, kind.kind
    for version in ("v1", "apps/v1", "coordination.k8s.io/v1", "meta.k8s.io/v1"):
        read = decode(enveloped(version, "DeleteOptions", field(1, 0)))
        assert read == {"apiVersion": version, "kind": "DeleteOptions", "gracePeriodSeconds": 0}


def test_values_that_json_writes_in_its_own_way():
    """Quantities, numbers or texts, times, raw JSON, numbers with a point, and what stands for another thing."""
    resources = field(8, field(1, entry(b"cpu", field(1, b"2"))))
    probe = field(10, field(1, field(3, field(1, field(1, 0) + field(2, 80)))))
    container = field(1, b"main") + resources + probe
    pod = decode(enveloped("v1", "Pod", field(2, field(2, container))))
    assert pod["spec"]["containers"] == [
        {
            "name": "main",
            "resources": {"limits": {"cpu": "2"}},
            "livenessProbe": {"tcpSocket": {"port": 80}},
        }
    ]
    micro = field(4, field(1, 1_800_000_000) + field(2, 123_456_000))
    lease = decode(enveloped("coordination.k8s.io/v1", "Lease", field(2, micro)))
    assert lease["spec"] == {"renewTime": "2027-01-15T08:00:00.123456Z"}
    managed = field(17, field(1, b"me") + field(7, field(1, b'{"f:spec":{}}')))
    assert decode(enveloped("v1", "Pod", field(1, managed)))["metadata"] == {
        "managedFields": [{"manager": "me", "fieldsV1": {"f:spec": {}}}]
    }
    eight = varint(9 << 3 | 1) + struct.pack("<d", 1.5)
    either = field(29, entry(b"a", field(30, field(1, 1)))) + field(24, field(1, field(5, b"string")))
    of_two = field(29, entry(b"b", field(24, field(2, field(5, b"string")) + field(2, field(5, b"object")))))
    schema = schema_of(eight + either + of_two)
    assert schema == {
        "maximum": 1.5,
        "items": {"type": "string"},
        "properties": {"a": {"additionalProperties": True}, "b": {"items": [{"type": "string"}, {"type": "object"}]}},
    }


def test_messages_within_each_other_have_an_end():
    """Who sends more than anybody needs is refused, and the reader does not fall."""
    deep = b""
    for _ in range(200):
        deep = field(28, deep)
    with pytest.raises(Undecodable, check=that(comes_from="protobuf._message")):
        schema_of(deep)


def test_a_config_map_is_read():
    """Its name, its labels, texts and bytes; what is not set is left out."""
    metadata = field(1, b"c") + field(2, b"") + field(11, entry(b"a", b"b")) + field(8, b"")
    raw = field(1, metadata) + field(2, entry(b"x", b"1")) + field(2, entry(b"y", b"")) + field(3, entry(b"z", b"\xff"))
    assert decode(enveloped("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"a": "b"}},
        "data": {"x": "1", "y": ""},
        "binaryData": {"z": "/w=="},
    }


def test_an_eviction_is_read():
    """What ``kubectl drain`` sends: numbers, also 0 and negative ones, and what is within."""
    options = field(1, 0) + field(2, field(1, b"u")) + field(5, b"All") + field(3, 1)
    body = decode(enveloped("policy/v1", "Eviction", field(1, field(1, b"p") + field(7, -1)) + field(2, options)))
    assert body["metadata"] == {"name": "p", "generation": -1}
    assert body["deleteOptions"] == {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "dryRun": ["All"],
        "orphanDependents": True,
    }


def test_a_time_is_read():
    """Seconds since 1970."""
    metadata = field(8, field(1, 1_800_000_000))
    body = decode(enveloped("v1", "Namespace", field(1, metadata)))
    assert body["metadata"] == {"creationTimestamp": "2027-01-15T08:00:00Z"}


def test_nothing_is_lost_in_silence():
    """A field that is not in the tables may be there as Go writes what was never set, and not with a value."""
    unset = field(90, 0) + field(91, b"") + field(92, field(1, 0) + field(2, b""))
    assert decode(enveloped("v1", "Namespace", unset)) == {"apiVersion": "v1", "kind": "Namespace"}
    deep = b""
    for _ in range(50):
        deep = field(1, deep)
    eight, four = varint(93 << 3 | 1) + bytes(8), varint(93 << 3 | 5) + bytes(4)
    for value in (
        field(93, 1),
        field(93, deep),
        field(93, b"text"),
        field(93, field(1, b"a")),
        eight + field(94, 1),
        four + b"\xff",
    ):
        with pytest.raises(Undecodable):
            decode(enveloped("v1", "Namespace", value))


def test_a_role_and_its_binding_are_read():
    """What ``kubectl create role`` and ``create rolebinding`` send."""
    group = "rbac.authorization.k8s.io/v1"
    rule = field(1, b"get") + field(1, b"list") + field(2, b"") + field(3, b"pods")
    assert decode(enveloped(group, "Role", field(2, rule)))["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
    ]
    subject = field(1, b"User") + field(2, b"rbac.authorization.k8s.io") + field(3, b"bob")
    bound = decode(enveloped(group, "RoleBinding", field(2, subject) + field(3, field(3, b"reader"))))
    assert bound["subjects"] == [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]
    assert bound["roleRef"] == {"name": "reader"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        MAGIC,
        enveloped("compute.coreweave.com/v1alpha1", "NodePool", b""),
        enveloped("", "ObjectMeta", b""),
        enveloped("v1", "ConfigMap", b"\x0a\xff"),
        enveloped("v1", "ConfigMap", b"\xff" * 20),
        enveloped("v1", "ConfigMap", b"\x0b"),
        enveloped("v1", "ConfigMap", field(1, 5)),
        enveloped("v1", "ConfigMap", field(4, b"x")),
        enveloped("v1", "ConfigMap", field(1, field(1, b"\xff"))),
        enveloped("v1", "ConfigMap", field(2, 5)),
    ],
)
def test_what_is_none_is_refused(data):
    """Other kinds by their names, broken ones for what is broken."""
    with pytest.raises(Undecodable):
        decode(data)


@given(
    st.binary(max_size=200), st.sampled_from(["ConfigMap", "Pod", "Event", "PersistentVolumeClaim", "DeleteOptions"])
)
def test_any_bytes_are_read_or_refused(raw, kind):
    """One error for all that can be wrong."""
    try:
        read = decode(enveloped("v1", kind, raw))
    except Undecodable:
        return
    assert read["kind"] == kind
