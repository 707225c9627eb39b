"""Which container somebody means, and who may look into it."""

import pytest
from serve_caller import PODS, a_pod

from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import route
from iriscw_sims.kube.refusals import Refused
from iriscw_sims.serve.pods import find
from iriscw_sims.serve.scripted import ScriptedStreams
from raised import that

LOG = f"{PODS}/p/log"


def two(**metadata):
    """Return a pod with two containers, and one that prepares them."""
    pod = a_pod(nodeName="n")
    pod["metadata"] |= metadata
    pod["spec"]["containers"].append({"name": "side", "image": "x"})
    pod["spec"]["initContainers"] = [{"name": "prepare", "image": "x"}]
    return pod


def found(server, container="", user="admin", **streams):
    """Return the container that a request for a log is about."""
    query = (("container", container),) if container else ()
    request = Request("GET", LOG, query, user=user)
    place, _ = find(server.live, ScriptedStreams(**streams), request, route(LOG), "get")
    return place


async def test_a_container_is_named_or_the_only_one(server, caller):
    """Or the default one that an annotation names; one that prepares has to be named."""
    await caller.done("POST", PODS, a_pod(nodeName="n"))
    assert found(server).container == "main"
    await caller.done("DELETE", f"{PODS}/p", gracePeriodSeconds="0")
    await caller.done("POST", PODS, two())
    for name in ("main", "side", "prepare"):
        assert found(server, name).container == name
    with pytest.raises(Refused, check=that(comes_from="pods._container")):
        found(server)
    await caller.done("DELETE", f"{PODS}/p", gracePeriodSeconds="0")
    await caller.done("POST", PODS, two(annotations={"kubectl.kubernetes.io/default-container": "side"}))
    assert found(server).container == "side"


async def test_a_place_is_one_pods(server, caller):
    """Another pod of the same name is another one."""
    await caller.done("POST", PODS, a_pod(nodeName="n"))
    place = found(server)
    assert place.pod()["metadata"]["uid"] == place.uid
    await caller.done("DELETE", f"{PODS}/p", gracePeriodSeconds="0")
    assert place.pod() is None
    await caller.done("POST", PODS, a_pod(nodeName="n"))
    assert place.pod() is None


async def test_nodes_that_cannot_be_reached(server, caller):
    """Are known to who knows them; a pod on a node that does not exist is looked into all the same."""
    await caller.done("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    await caller.done("POST", PODS, a_pod(nodeName="n"))
    asked = []
    assert found(server, reachable=lambda name: asked.append(name) or True)
    assert asked == ["n"]
    with pytest.raises(Refused, check=that(comes_from="pods._check_node", names="n")):
        found(server, reachable=lambda _name: False)
    await caller.done("DELETE", "/api/v1/nodes/n")
    assert found(server, reachable=lambda _name: False)


async def test_who_may_not_look_is_told_before_what_is_there(server):
    """403 whether there is such a pod or not."""
    with pytest.raises(Refused, check=that(names=("bob", "pods/log"))) as refused:
        found(server, user="bob")
    assert refused.value.status["code"] == 403
