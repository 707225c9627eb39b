"""Containers that end, are started again, or are evicted; and what the API is told."""

import pytest
from cloud_world import SECOND, World

from iriscw_sims.coreweave.settings import FAITHFUL


@pytest.mark.parametrize(
    ("policy", "code", "phase", "reason"),
    [
        ("Never", 0, "Succeeded", "Completed"),
        ("Never", 3, "Failed", "Error"),
        ("OnFailure", 0, "Succeeded", "Completed"),
    ],
)
def test_an_exit_ends_the_pod(pooled, policy, code, phase, reason):
    """With its code, its reason and the times."""
    uid = pooled.running_pod(policy=policy)
    pooled.run(5)
    pooled.exit(uid, code)
    assert pooled.phase() == phase
    assert pooled.ended() == (code, reason)
    end = pooled.pod()["status"]["containerStatuses"][0]["state"]["terminated"]
    assert end["finishedAt"] > end["startedAt"]
    ready = [each for each in pooled.pod()["status"]["conditions"] if each["type"] == "Ready"]
    assert ready[0]["status"] == "False"
    pooled.run(600)
    assert pooled.starts == {uid: 1}


def test_a_reason_can_be_given(pooled):
    """As the runtime would."""
    uid = pooled.running_pod()
    pooled.exit(uid, 139, "Segfault")
    assert pooled.ended() == (139, "Segfault")


def test_an_exit_of_what_does_not_run_is_nothing(pooled):
    """It was killed before, or never was."""
    uid = pooled.running_pod()
    pooled.cloud.exited("nobody", 1)
    pooled.exit(uid)
    before = pooled.pod()
    pooled.cloud.exited(uid, 1)
    assert pooled.pod() is before


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("Always", 1), ("OnFailure", 1)])
def test_a_container_is_started_again(pooled, policy, code):
    """At once the first time, then after pauses that grow; the pod stays running."""
    uid = pooled.running_pod(policy=policy)
    pauses = []
    for restart in range(1, 8):
        pooled.exit(uid, code)
        assert pooled.phase() == "Running"
        pauses.append(pooled.until(lambda: uid in pooled.alive))
        (status,) = pooled.pod()["status"]["containerStatuses"]
        assert status["restartCount"] == restart
        assert status["lastState"]["terminated"]["exitCode"] == code
    assert pauses == [0, 1, 2, 4, 8, 16, 20]


def test_a_crash_loop_is_called_so(pooled):
    """While it waits: not ready, with the reason and an event."""
    uid = pooled.running_pod(policy="Always")
    pooled.exit(uid, 1)
    pooled.until(lambda: uid in pooled.alive)
    pooled.exit(uid, 1)
    assert pooled.waits() == "CrashLoopBackOff"
    (status,) = pooled.pod()["status"]["containerStatuses"]
    assert not status["ready"]
    assert "BackOff" in pooled.reasons("a")


def test_a_container_that_ran_for_long_starts_its_pauses_anew(pooled):
    """It was no loop."""
    uid = pooled.running_pod(policy="Always")
    for _ in range(5):
        pooled.exit(uid, 1)
        pooled.until(lambda: uid in pooled.alive)
    pooled.run(601)
    pooled.exit(uid, 1)
    assert pooled.until(lambda: uid in pooled.alive) == 0


def test_a_crash_loop_ends_with_its_pod(pooled):
    """A deletion during the pause is obeyed."""
    uid = pooled.running_pod(policy="Always")
    for _ in range(4):
        pooled.exit(uid, 1)
        pooled.until(lambda: uid in pooled.alive)
    pooled.exit(uid, 1)
    pooled.delete_pod()
    pooled.until(lambda: pooled.pod() is None)
    pooled.run(60)
    assert uid not in pooled.alive


def probed(kind, **probe):
    """Return the containers of a pod with a probe."""
    return [{"name": "c", "image": "registry.test/i:1", kind: {"exec": {"command": ["true"]}, **probe}}]


def test_a_pod_is_ready_when_its_probe_has_succeeded(pooled):
    """Often enough, and not before its delay; again after each start."""
    containers = probed("readinessProbe", initialDelaySeconds=5, periodSeconds=3, successThreshold=2)
    uid = pooled.running_pod(containers=containers, policy="Always")

    def ready():
        (status,) = pooled.pod()["status"]["containerStatuses"]
        conditions = {each["type"]: each["status"] for each in pooled.pod()["status"]["conditions"]}
        assert status["ready"] == (conditions["Ready"] == "True")
        return status["ready"]

    for _ in range(2):
        assert not ready()
        assert pooled.until(ready) == 8
        pooled.exit(uid, 1)
        assert not ready()
        pooled.until(lambda: uid in pooled.alive)


def test_a_pod_whose_probe_fails_is_started_again(pooled):
    """It is killed, and an event says why."""
    pooled.scripted["liveness probe fails"] = [True]
    uid = pooled.running_pod(containers=probed("livenessProbe"), policy="Always")
    pooled.until(lambda: uid not in pooled.alive)
    assert pooled.why[uid] == "liveness probe failed"
    pooled.until(lambda: uid in pooled.alive)
    (status,) = pooled.pod()["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert "Unhealthy" in pooled.reasons("a")


def test_a_pod_without_a_probe_is_not_probed(pooled):
    """The chance is not even asked for."""
    pooled.running_pod()
    assert "liveness probe fails" not in pooled.asked


def test_an_evicted_pod_has_failed_for_good(pooled):
    """Whatever its policy; its node is short of disk for a while and takes no pods."""
    uid = pooled.running_pod(policy="Always")
    name = pooled.alive[uid][1]
    assert pooled.cloud.evict(uid)
    assert pooled.why[uid] == "Evicted"
    status = pooled.pod()["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert "ephemeral-storage" in status["message"]
    assert ("DisruptionTarget", "TerminationByKubelet") in [
        (each["type"], each.get("reason")) for each in status["conditions"]
    ]
    node = pooled.get(f"/api/v1/nodes/{name}")
    assert ("DiskPressure", "True") in [(each["type"], each["status"]) for each in node["status"]["conditions"]]
    assert "node.kubernetes.io/disk-pressure" in [each["key"] for each in node["spec"]["taints"]]
    pooled.run(60)
    node = pooled.get(f"/api/v1/nodes/{name}")
    assert ("DiskPressure", "False") in [(each["type"], each["status"]) for each in node["status"]["conditions"]]
    assert not node["spec"].get("taints")
    assert pooled.starts == {uid: 1}
    assert not pooled.cloud.evict(uid)


def test_an_eviction_can_be_drawn(pooled):
    """When a container starts."""
    pooled.scripted["pod evicted"] = [True]
    pooled.running_pod()
    pooled.until(lambda: pooled.phase() == "Failed")
    assert pooled.pod()["status"]["reason"] == "Evicted"


def test_a_lost_node_reports_late(pooled):
    """What ended there is told when it is back."""
    pooled.cloud.site.settings = FAITHFUL
    uid = pooled.running_pod()
    pooled.cloud.lose_node_for(pooled.alive[uid][1], 100 * SECOND)
    pooled.run(10)
    pooled.exit(uid, 7)
    pooled.run(60)
    assert pooled.phase() == "Running"
    assert [each["status"] for each in pooled.pod()["status"]["conditions"] if each["type"] == "Ready"] == ["False"]
    pooled.until(lambda: pooled.phase() == "Failed")
    assert pooled.ended() == (7, "Error")


def test_a_lost_pod_that_went_on_is_ready_again(pooled):
    """When its node is back."""
    pooled.cloud.site.settings = FAITHFUL
    uid = pooled.running_pod()
    pooled.cloud.lose_node_for(pooled.alive[uid][1], 100 * SECOND)
    pooled.run(80)
    pooled.until(
        lambda: [each["status"] for each in pooled.pod()["status"]["conditions"] if each["type"] == "Ready"] == ["True"]
    )
    assert uid in pooled.alive


def test_dead_processes_are_dead_at_once(pooled):
    """Though the API shows them as running until the node is known to be gone."""
    uid = pooled.running_pod()
    pooled.cloud.kill_node(pooled.alive[uid][1])
    assert uid not in pooled.alive
    assert pooled.phase() == "Running"


def test_every_container_of_a_pod_is_told_of():
    """They share one fate."""
    world = World()
    world.make_pool()
    world.until(world.whole)
    world.running_pod(containers=[{"name": name, "image": "registry.test/i:1"} for name in ("x", "y")])
    assert [each["name"] for each in world.pod()["status"]["containerStatuses"]] == ["x", "y"]
