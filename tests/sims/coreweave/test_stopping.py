"""How pods end when somebody wants them to."""

from cloud_world import PODS, SECOND

from iriscw_sims.coreweave.settings import FAITHFUL


def test_a_deletion_leaves_time_to_end(pooled):
    """The object is marked, the processes get their signal, the object goes when they are gone."""
    uid = pooled.running_pod(grace=20)
    pooled.delete_pod()
    assert pooled.pod()["metadata"]["deletionGracePeriodSeconds"] == 20
    assert uid in pooled.alive
    took = pooled.until(lambda: uid not in pooled.alive)
    assert 0.5 <= took <= 5
    assert pooled.pod() is None
    assert pooled.why[uid] == "its pod was deleted"


def test_the_last_word_is_that_it_ended(pooled):
    """A watch sees the end before the removal."""
    pooled.running_pod(grace=20)
    seen = []
    pooled.delete_pod()
    while pooled.pod() is not None:
        seen.append(pooled.pod())
        pooled.step()
    watched = [event for event in _history(pooled, PODS) if event["type"] == "MODIFIED"][-1]["object"]
    assert watched["status"]["phase"] == "Failed"
    assert watched["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def _history(world, path):
    from iriscw_sims.kube.messages import Request

    watch = world.store.watch(Request("GET", path, (("watch", "1"), ("resourceVersion", "1"))), world.now)
    return watch.take(world.now)


def test_grace_is_a_bound(pooled):
    """Who is killed at its end has another exit code."""
    uid = pooled.running_pod(grace=1)
    pooled.scripted["deletion slow"] = [True]
    pooled.delete_pod()
    assert pooled.until(lambda: uid not in pooled.alive) <= 1
    assert pooled.until(lambda: pooled.pod() is None) >= 15


def test_an_exit_during_the_grace_is_the_end(pooled):
    """By itself; the pod goes all the same, and is not restarted."""
    uid = pooled.running_pod(policy="Always")
    pooled.delete_pod()
    pooled.exit(uid, 0)
    assert pooled.phase() == "Succeeded"
    pooled.until(lambda: pooled.pod() is None)
    assert pooled.starts == {uid: 1}


def test_a_second_deletion_may_hurry(pooled):
    """A shorter grace counts."""
    pooled.scripted["deletion slow"] = [True]
    uid = pooled.running_pod(grace=600)
    pooled.delete_pod()
    pooled.run(10)
    assert uid in pooled.alive
    pooled.delete_pod(gracePeriodSeconds=15)
    assert pooled.until(lambda: uid not in pooled.alive) <= 15
    pooled.until(lambda: pooled.pod() is None, 60)


def test_a_forced_deletion_removes_the_object_first(pooled):
    """The processes end a moment later."""
    uid = pooled.running_pod()
    pooled.delete_pod(gracePeriodSeconds=0)
    assert pooled.pod() is None
    assert uid in pooled.alive
    assert pooled.until(lambda: uid not in pooled.alive) <= 1
    assert pooled.cloud.nodes.machines[pooled.nodes()[0]["metadata"]["name"]].idle


def test_a_stuck_deletion_waits_for_a_repair(pooled):
    """Of many, in some the processes have ended and in others not."""
    alive = []
    for number in range(12):
        pooled.scripted["deletion stuck"] = [True]
        uid = pooled.running_pod(f"x{number}")
        pooled.delete_pod(f"x{number}")
        pooled.run(600)
        assert pooled.pod(f"x{number}")["metadata"]["deletionTimestamp"]
        alive.append(uid in pooled.alive)
    assert {*alive} == {True, False}
    pooled.cloud.heal()
    assert pooled.items(PODS) == []
    assert not pooled.alive


def test_a_pod_that_never_ran_goes_quickly(pooled):
    """There is nothing to wait for."""
    pooled.scripted["pod never starts"] = [True]
    pooled.make_pod(grace=600)
    pooled.run(30)
    pooled.delete_pod()
    assert pooled.until(lambda: pooled.pod() is None) <= 1


def test_a_pod_that_is_over_goes_at_once(pooled):
    """By the API alone."""
    uid = pooled.running_pod()
    pooled.exit(uid)
    pooled.delete_pod()
    assert pooled.pod() is None


def test_a_finalizer_keeps_the_object_and_not_the_processes(pooled):
    """As Kueue's kept dead pods: the object goes when the finalizer does."""
    uid = pooled.running_pod()
    pooled.patch(f"{PODS}/a", {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}})
    pooled.delete_pod()
    pooled.run(60)
    assert uid not in pooled.alive
    assert pooled.phase() == "Failed"
    pooled.patch(f"{PODS}/a", {"metadata": {"finalizers": None}})
    assert pooled.pod() is None
    assert pooled.cloud.statistics().pods == 0


def test_on_a_dead_node_a_pod_stays_terminating(pooled):
    """Until the node's object goes; then the collector removes it."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    pooled.cloud.kill_node(name)
    pooled.delete_pod()
    pooled.until(lambda: pooled.get(f"/api/v1/nodes/{name}") is None)
    assert pooled.pod()["metadata"]["deletionTimestamp"]
    pooled.until(lambda: pooled.pod() is None, 10)


def test_a_forced_deletion_on_a_node_that_is_cut_off_leaves_a_ghost(pooled):
    """The name is free while the processes run; they end when the node is back."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    pooled.cloud.site.settings = FAITHFUL
    pooled.cloud.lose_node_for(name, 330 * SECOND)
    pooled.delete_pod(gracePeriodSeconds=0)
    other = pooled.running_pod()
    assert other != uid
    assert uid in pooled.alive
    pooled.until(lambda: pooled.cloud.exec_ready(name))
    pooled.run(5)
    assert uid not in pooled.alive
    assert other in pooled.alive


def test_a_ghost_ends_with_its_machine(pooled):
    """Or by itself, and what it held is free."""
    for end in ("exit", "power"):
        uid = pooled.running_pod(end)
        name = pooled.alive[uid][1]
        pooled.cloud.lose_node_for(name, 3 * SECOND)
        pooled.delete_pod(end, gracePeriodSeconds=0)
        machine = pooled.cloud.nodes.machines[name]
        assert not machine.idle
        if end == "exit":
            pooled.exit(uid)
        else:
            pooled.cloud.kill_node(name)
        assert machine.idle
        assert machine.guests == {}
    pooled.run(60)
    assert not pooled.alive


def test_a_pod_that_stops_is_not_evicted(pooled):
    """It goes anyway."""
    uid = pooled.running_pod()
    pooled.delete_pod()
    assert not pooled.cloud.evict(uid)
    pooled.until(lambda: pooled.pod() is None)


def test_a_deletion_that_a_lost_node_missed_is_made_up_for(pooled):
    """It hears of it when it is back."""
    pooled.cloud.site.settings = FAITHFUL
    uid = pooled.running_pod()
    pooled.cloud.lose_node_for(pooled.alive[uid][1], 100 * SECOND)
    pooled.delete_pod()
    pooled.run(95)
    assert uid in pooled.alive
    pooled.until(lambda: pooled.pod() is None, 120)
    assert uid not in pooled.alive


def test_a_node_lost_while_a_pod_stops_ends_it_when_it_is_back(pooled):
    """A deletion that had begun goes on."""
    pooled.cloud.site.settings = FAITHFUL
    pooled.running_pod(grace=30)
    pooled.delete_pod()
    pooled.cloud.lose_node_for(pooled.pod()["spec"]["nodeName"], 100 * SECOND)
    pooled.run(99)
    assert pooled.pod() is not None
    pooled.until(lambda: pooled.pod() is None, 120)
    assert not pooled.alive
