"""Pods as the cloud knows them, and what is written of them."""

import pytest
from cloud_world import World

from iriscw_sims.coreweave.guests import Guest, Stage, status_of, with_condition
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.shapes import GENERIC


@pytest.fixture
def guest():
    """A pod that is nowhere yet."""
    return Guest.of(World().make_pod())


MACHINE = Machine("n", "p", "uid", 0, GENERIC, "10.0.0.1", 0, {})


def test_phases_follow_from_the_stage(guest):
    """And from how its container ended."""
    assert guest.phase == "Pending"
    for stage, phase in ((Stage.CREATING, "Pending"), (Stage.RUNNING, "Running"), (Stage.WAITING, "Running")):
        guest.stage = stage
        assert guest.phase == phase
    guest.ends(0, "Completed", "now")
    assert guest.phase == "Succeeded"
    guest.ends(1, "Error", "now")
    assert guest.phase == "Failed"
    guest.ends(0, "Completed", "now")
    guest.failed = "Evicted"
    assert guest.phase == "Failed"


def test_each_turn_is_another(guest):
    """Timers of an older one are known by it."""
    assert guest.turn() != guest.turn()


def test_a_pod_without_a_container_has_no_address(guest):
    """It gets one with its sandbox, here with its container."""
    guest.stage, guest.begun = Stage.CREATING, "2026-01-01T00:00:00Z"
    status = status_of(guest, MACHINE, "now")
    assert "podIP" not in status
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    guest.stage, guest.started = Stage.RUNNING, "2026-01-01T00:00:01Z"
    assert status_of(guest, MACHINE, "now")["podIP"].startswith("10.2")


def test_what_others_wrote_stays(guest):
    """Conditions that are not the kubelet's."""
    guest.item = {**guest.item, "status": {"conditions": [{"type": "Theirs"}, {"type": "Ready"}]}}
    found = [each["type"] for each in status_of(guest, MACHINE, "now")["conditions"]]
    assert found == ["Theirs", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]


def test_times_stay_with_their_status(guest):
    """A condition that is written again is not younger."""
    guest.stage = Stage.CREATING
    status_of(guest, MACHINE, "1")
    guest.stage = Stage.RUNNING
    found = {each["type"]: each["lastTransitionTime"] for each in status_of(guest, MACHINE, "2")["conditions"]}
    assert found["Initialized"] == "1"
    assert found["Ready"] == "2"


def test_a_condition_is_set_among_others():
    """Once each."""
    item = {"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]}}
    assert with_condition(item, {"type": "A", "status": "True"}) == [{"type": "B"}, {"type": "A", "status": "True"}]
    assert with_condition({}, {"type": "A"}) == [{"type": "A"}]
