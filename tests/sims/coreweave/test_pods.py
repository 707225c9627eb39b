"""The news of pods reaches whoever acts on it."""

from cloud_world import PODS

from iriscw_sims.coreweave.coreweave import CoreWeave, Statistics


def test_a_pod_that_was_over_before_is_left_alone(world):
    """It is known, and never runs."""
    world.cloud._reacting = True  # the cloud looks away
    world.do("POST", "/api/v1/nodes", {"metadata": {"name": "theirs"}})
    world.make_pod(nodeName="theirs")
    world.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    world.cloud = CoreWeave(world.store, world, world)
    world.run(60)
    assert world.phase() == "Succeeded"
    assert world.starts == {}
    assert world.cloud.statistics() == Statistics(pools=0, nodes=0, pods=1, running=0, waiting=0)


def test_a_pod_that_comes_and_goes_unseen_is_nothing(pooled):
    """Both are told at once."""
    pooled.cloud._reacting = True
    pooled.make_pod()
    pooled.delete_pod()
    pooled.cloud._reacting = False
    pooled.cloud.react()
    pooled.run(60)
    assert pooled.cloud.statistics().pods == 0


def test_each_pod_is_known_by_its_uid(pooled):
    """A name that is used again is another pod."""
    first = pooled.running_pod()
    pooled.delete_pod(gracePeriodSeconds=0)
    second = pooled.running_pod()
    assert first != second
    assert [*pooled.cloud.pods.guests] == [second]
