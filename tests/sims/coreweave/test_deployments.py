"""The Deployment controller: as many pods as there are to be, of the present template, and a status that says so."""

import pytest
from cloud_world import IMAGE, MERGE, PODS

from iriscw_sims.coreweave.deployments import HASH, Deployments

DEPLOYMENTS = "/apis/apps/v1/namespaces/iris/deployments"
D = f"{DEPLOYMENTS}/d"


@pytest.fixture
def rolling(pooled):
    """A world with two nodes, and a controller of Deployments beside CoreWeave's."""
    deployments, react = Deployments(pooled.cloud.site), pooled.cloud.react

    def both():
        react()
        deployments.react()

    pooled.cloud.react = pooled.cloud.site.react = both
    return pooled


def deployment(replicas=1, image=IMAGE, name="d", **spec):
    """Return the body of a Deployment on the pool."""
    pod = {
        "nodeSelector": {"slice": "p"},
        "terminationGracePeriodSeconds": 20,
        "containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": "1"}}}],
    }
    template = {"metadata": {"labels": {"app": "d"}}, "spec": pod}
    selector = {"matchLabels": {"app": "d"}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


def names(world):
    """Return the names of the pods that are there."""
    return sorted(each["metadata"]["name"] for each in world.items(PODS))


def status(world):
    """Return the counts of the status, and its conditions' statuses."""
    found = world.get(D).get("status") or {}
    counts = {name: value for name, value in found.items() if name.endswith("eplicas")}
    return counts, {each["type"]: each["status"] for each in found.get("conditions", ())}


def available(world):
    """Tell whether all are."""
    return status(world)[1].get("Available") == "True"


def test_pods_are_made_and_told(rolling):
    """They belong to the Deployment; its status says how far they are, and rests when they are ready."""
    made = rolling.do("POST", DEPLOYMENTS, deployment(replicas=2))
    rolling.until(lambda: names(rolling))
    assert names(rolling) == ["d-1", "d-2"]
    (owner,) = rolling.pod("d-1")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Deployment", made["metadata"]["uid"], True)
    rolling.run(0.2)
    assert status(rolling)[1] == {"Available": "False", "Progressing": "True"}
    rolling.until(lambda: available(rolling))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    assert status(rolling) == (counts, {"Available": "True", "Progressing": "True"})
    assert rolling.get(D)["status"]["observedGeneration"] == 1
    version = rolling.get(D)["metadata"]["resourceVersion"]
    rolling.run(60)
    assert rolling.get(D)["metadata"]["resourceVersion"] == version, "it is written only where it changes"


def test_what_goes_is_replaced(rolling):
    """A pod that somebody deletes, when it is gone; one that was evicted stays as it is beside the new one."""
    rolling.do("POST", DEPLOYMENTS, deployment())
    rolling.until(lambda: available(rolling))
    rolling.do("DELETE", f"{PODS}/d-1")
    rolling.run(1)
    assert names(rolling) == ["d-1"]
    rolling.until(lambda: names(rolling) == ["d-2"])
    rolling.until(lambda: available(rolling))
    rolling.cloud.evict(rolling.pod("d-2")["metadata"]["uid"])
    rolling.until(lambda: "d-3" in names(rolling))
    assert names(rolling) == ["d-2", "d-3"]
    rolling.until(lambda: available(rolling))
    assert status(rolling)[0]["replicas"] == 1


def test_another_template_is_another_pod(rolling):
    """The old one ends first, so that there are never two; what is paused stays as it is."""
    rolling.do("POST", DEPLOYMENTS, deployment())
    rolling.until(lambda: available(rolling))
    before = rolling.pod("d-1")["metadata"]["labels"][HASH]
    rolling.patch(D, {"spec": {"paused": True, "template": {"metadata": {"annotations": {"a": "1"}}}}})
    rolling.run(60)
    assert names(rolling) == ["d-1"]
    rolling.patch(D, {"spec": {"paused": False}})
    rolling.until(lambda: names(rolling) == ["d-2"])
    assert rolling.pod("d-2")["metadata"]["labels"][HASH] != before
    rolling.until(lambda: available(rolling))
    assert rolling.get(D)["status"]["observedGeneration"] == 3


def test_fewer_are_wanted(rolling):
    """The surplus ends, what is not ready first; none is left at none, and a Deployment that is gone gets no more."""
    rolling.do("POST", DEPLOYMENTS, deployment(replicas=2))
    rolling.until(lambda: available(rolling))
    rolling.patch(D, {"spec": {"replicas": 1}})
    rolling.until(lambda: len(names(rolling)) == 1)
    rolling.patch(D, {"spec": {"replicas": 0}})
    rolling.until(lambda: not names(rolling))
    rolling.run(1)
    assert status(rolling) == ({}, {"Available": "True", "Progressing": "True"})
    rolling.do("DELETE", D)
    rolling.run(60)
    assert names(rolling) == []


def test_a_name_that_is_taken(rolling):
    """The next number is tried."""
    rolling.make_pod("d-1")
    rolling.do("POST", DEPLOYMENTS, deployment())
    rolling.until(lambda: available(rolling))
    assert names(rolling) == ["d-1", "d-2"]


def test_a_pod_that_is_refused_is_told_and_tried_again(rolling):
    """A Deployment's name may be longer than a pod's; that fails nobody else, and stops when the Deployment does."""
    name = "d" * 252
    rolling.do("POST", DEPLOYMENTS, deployment(name=name))
    rolling.do("POST", DEPLOYMENTS, deployment())
    rolling.until(lambda: available(rolling))
    (failure,) = (
        each
        for each in rolling.get(f"{DEPLOYMENTS}/{name}")["status"]["conditions"]
        if each["type"] == "ReplicaFailure"
    )
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "must be no more than 253 bytes" in failure["message"]
    rolling.run(60)
    assert names(rolling) == ["d-1"]
    rolling.do("DELETE", f"{DEPLOYMENTS}/{name}")
    rolling.run(60)
    assert rolling.do("PATCH", D, {"spec": {"replicas": 2}}, content_type=MERGE)
    rolling.until(lambda: names(rolling) == ["d-1", "d-2"])
