"""What kubectl shows of built-in kinds."""

import pytest

from iriscw_sims.kube import columns
from iriscw_sims.kube.core_kinds import CORE_KINDS


def cells(kind, item):
    """Return the cells of an object made at the epoch, a minute later."""
    item = {**item, "metadata": {"name": "n", "creationTimestamp": "1970-01-01T00:00:00Z", **item.get("metadata", {})}}
    return [each.read(item, 60 * 10**9) for each in kind]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, "ImagePullBackOff"),
        ({"terminated": {"reason": "OOMKilled"}}, "OOMKilled"),
        ({"terminated": {"exitCode": 3}}, "ExitCode:3"),
        ({"terminated": {"signal": 9}}, "Signal:9"),
        ({"running": {}}, "Running"),
    ],
)
def test_why_a_pod_is_as_it_is(state, said):
    """The container's reason before the phase."""
    status = {"phase": "Running", "containerStatuses": [{"state": state, "ready": True, "restartCount": 1}]}
    assert cells(columns.POD, {"spec": {"containers": [{}]}, "status": status})[:4] == ["1/1", said, 1, "60s"]


def test_pods_that_are_gone():
    """Evicted says so; one that is going, too."""
    assert cells(columns.POD, {"status": {"phase": "Failed", "reason": "Evicted"}})[1] == "Evicted"
    going = {"metadata": {"deletionTimestamp": "t"}, "status": {"reason": "NodeLost"}}
    assert cells(columns.POD, going)[1] == "Unknown"


def test_nodes():
    """Ready or not or unknown; roles."""
    assert cells(columns.NODE, {})[:2] == ["Unknown", "<none>"]
    down = {
        "metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert cells(columns.NODE, down)[:2] == ["NotReady", "gpu"]


def test_other_kinds():
    """The figures people look for."""
    deployment = {"spec": {"replicas": 3}, "status": {"readyReplicas": 2, "updatedReplicas": 3}}
    assert cells(columns.DEPLOYMENT, deployment) == ["2/3", 3, 0, "60s"]
    event = {"involvedObject": {"kind": "Pod", "name": "a"}, "type": "Warning", "reason": "R", "message": " m\n"}
    assert cells(columns.EVENT, event) == ["60s", "Warning", "R", "pod/a", "m"]
    assert cells(columns.BUDGET, {"spec": {"minAvailable": 1}}) == ["1", "N/A", 0, "60s"]
    assert cells(columns.LEASE, {"spec": {"holderIdentity": "me"}}) == ["me", "60s"]
    labels = {"app": "a", "tier": "b"}
    assert cells(columns.NETWORK_POLICY, {"spec": {"podSelector": {"matchLabels": labels}}}) == ["app=a,tier=b", "60s"]
    pods = {"spec": {"nodeSelector": labels}}
    assert cells(columns.DAEMON_SET, {"spec": {"template": pods}, "status": {"numberReady": 2}}) == [
        *(0, 0, 2, 0, 0, "app=a,tier=b", "60s"),
    ]
    assert cells(columns.PRIORITY_CLASS, {"value": 7, "preemptionPolicy": "Never"}) == [7, False, "60s", "Never"]
    assert cells(columns.RUNTIME_CLASS, {"handler": "nvidia"}) == ["nvidia", "60s"]
    assert cells(columns.SECRET, {"type": "Opaque", "data": {"a": ""}}) == ["Opaque", 1, "60s"]


@pytest.mark.parametrize("kind", CORE_KINDS, ids=lambda kind: kind.kind)
def test_an_object_that_says_nothing_has_a_row(kind):
    """No column fails on what is missing."""
    assert len(cells(kind.columns, {})) == len(kind.columns)
