"""What keeps a pod from running, by the words of its status."""

import pytest

from iriscw.cloud.lifecycle import PodHealth, judge_pod
from iriscw.cloud.model import MAX_TOLD, Pod, PodPhase


def pod(**fields):
    return Pod("p", "u", "1", {}, **fields)


@pytest.mark.parametrize(
    ("seen", "health"),
    [
        (pod(), PodHealth.WELL),
        (pod(reason="ErrImagePull"), PodHealth.IMAGE),
        (pod(reason="ImagePullBackOff"), PodHealth.IMAGE),
        (pod(reason="InvalidImageName"), PodHealth.IMAGE),
        (pod(reason="CreateContainerConfigError"), PodHealth.SETUP),
        (pod(reason="CreateContainerError"), PodHealth.SETUP),
        (pod(reason="CrashLoopBackOff", phase=PodPhase.RUNNING), PodHealth.CRASHES),
        (pod(reason="Unschedulable"), PodHealth.UNSCHEDULED),
        (pod(reason="ContainerCreating", node="n"), PodHealth.WELL),
        (pod(reason="ContainerCreating", node="n", unset=True), PodHealth.VOLUMES),
        # A node says what it has not set up; a pod without one waits for the scheduler.
        (pod(unset=True), PodHealth.WELL),
        (pod(node="n", unset=True, phase=PodPhase.RUNNING), PodHealth.WELL),
        (pod(reason="SomethingNew"), PodHealth.WELL),
        # How it ended, it says itself.
        (pod(reason="ErrImagePull", phase=PodPhase.FAILED), PodHealth.WELL),
    ],
)
def test_what_a_status_means(seen, health):
    """Known words are told apart; unknown ones are no reason to give a pod up."""
    assert judge_pod(seen) is health


def test_why_is_one_line_for_people():
    """Reason and message, without line breaks, and not the list of all nodes."""
    assert pod().why == ""
    assert pod(reason="Unschedulable").why == "Unschedulable"
    assert pod(reason="ErrImagePull", message="rpc error:\n  not found").why == "ErrImagePull: rpc error: not found"
    assert len(pod(reason="R", message="x" * 10_000).why) < MAX_TOLD + 10
