"""The cloud's own words on why a pod waits or how it ended come with the reason."""

import pytest

from iriscw.cloud.kube.parsing import pod_of

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


def pod(**status):
    """Return a pod with a status."""
    return {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}, "status": status}


def waiting(reason, message=""):
    """Return the statuses of a container that waits."""
    return [{"state": {"waiting": {"reason": reason, "message": message}}}]


@pytest.mark.parametrize(
    ("obj", "reason", "message"),
    [
        (pod(phase="Pending", conditions=[UNSCHEDULABLE]), "Unschedulable", UNSCHEDULABLE["message"]),
        (pod(containerStatuses=waiting("ErrImagePull", "not found")), "ErrImagePull", "not found"),
        (pod(reason="Evicted", message="low on disk", containerStatuses=waiting("X")), "Evicted", "low on disk"),
        (pod(containerStatuses=waiting("ContainerCreating")), "ContainerCreating", ""),
        (pod(), "", ""),
        (pod(message="said without a reason"), "", ""),
    ],
)
def test_reason_and_message_belong_together(obj, reason, message):
    """Never the message of one part with the reason of another."""
    found = pod_of(obj)
    assert (found.reason, found.message) == (reason, message)


@pytest.mark.parametrize(("status", "unset"), [("False", True), ("True", False), ("Unknown", False), (None, False)])
def test_what_a_node_has_not_set_up(status, unset):
    """Only a node that says so: older ones say nothing."""
    conditions = [{"type": "PodReadyToStartContainers", "status": status}] if status else []
    assert pod_of(pod(conditions=conditions)).unset is unset
