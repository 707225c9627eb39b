"""Binding and eviction."""

import pytest
from kube_caller import PODS, pod

A = f"{PODS}/a"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def binding(node="n1", **metadata):
    """Return the body of a binding."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", **metadata},
        "target": {"kind": "Node", "name": node},
    }


def eviction(**more):
    """Return the body of an eviction."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, **more}


def test_a_pod_is_bound_once(caller):
    """201 and a condition; then 409."""
    caller.done("POST", PODS, pod("a"))
    assert caller.ask("POST", f"{A}/binding", binding()).code == 201
    item = caller.done("GET", A)
    assert item["spec"]["nodeName"] == "n1"
    assert item["status"]["conditions"][0]["type"] == "PodScheduled"
    assert caller.refused("POST", f"{A}/binding", binding("n2"))[:2] == (409, "Conflict")


def test_bindings_that_are_refused(caller):
    """No node, another incarnation, a pod that is going away or may not be scheduled, no pod."""
    assert caller.refused("POST", f"{A}/binding", binding())[0] == 404
    gated = pod("a", finalizers=["x.dev/a"])
    gated["spec"]["schedulingGates"] = [{"name": "x.dev/wait"}]
    caller.done("POST", PODS, gated)
    assert caller.refused("POST", f"{A}/binding", binding(""))[0] == 500
    assert caller.refused("POST", f"{A}/binding", {"target": {"name": "n"}})[0] == 400
    elsewhere = {**binding(), "target": {"kind": "Pod", "name": "n"}}
    assert caller.refused("POST", f"{A}/binding", elsewhere)[0] == 500
    assert caller.refused("POST", f"{A}/binding", binding(uid="other"))[0] == 409
    assert "schedulingGates" in caller.refused("POST", f"{A}/binding", binding())[2]
    caller.done("DELETE", A)
    assert "is being deleted" in caller.refused("POST", f"{A}/binding", binding())[2]
    assert caller.refused("GET", f"{A}/binding")[0] == 405


@pytest.fixture
def guarded(caller):
    """A caller with a running pod under a budget."""
    caller.done("POST", PODS, pod("a", node="n", labels={"app": "x"}))
    caller.patch(f"{A}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    expressions = [{"key": "app", "operator": "In", "values": ["x"]}, {"key": "other", "operator": "DoesNotExist"}]
    spec = {"minAvailable": 1, "selector": {"matchExpressions": expressions}}
    caller.done("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    return caller


def allow(caller, count):
    """Say as the disruption controller how many may be disrupted."""
    status = {"observedGeneration": 1, "disruptionsAllowed": count, "currentHealthy": 1, "desiredHealthy": 1}
    caller.patch(f"{BUDGETS}/b/status", {"status": status})


def test_a_budget_that_nobody_looked_at_yet(guarded):
    """429 with Retry-After."""
    response = guarded.ask("POST", f"{A}/eviction", eviction())
    assert (response.code, response.headers) == (429, (("Retry-After", "10"),))


def test_a_spent_budget(guarded):
    """429 with a cause; the pod stays."""
    allow(guarded, 0)
    response = guarded.ask("POST", f"{A}/eviction", eviction())
    assert response.code == 429
    assert response.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in guarded.done("GET", A)["metadata"]


def test_an_eviction_spends_the_budget(guarded):
    """The pod is left its grace, the budget is one less and names it."""
    allow(guarded, 1)
    assert guarded.ask("POST", f"{A}/eviction", eviction(deleteOptions={"gracePeriodSeconds": 3})).code == 201
    assert guarded.done("GET", A)["metadata"]["deletionGracePeriodSeconds"] == 3
    status = guarded.done("GET", f"{BUDGETS}/b")["status"]
    assert (status["disruptionsAllowed"], [*status["disruptedPods"]]) == (0, ["a"])


def test_what_needs_no_budget(guarded):
    """Pods that ended, are going or have not begun; a dry run."""
    allow(guarded, 0)
    guarded.patch(f"{A}/status", {"status": {"phase": "Failed"}})
    assert guarded.ask("POST", f"{A}/eviction", eviction(deleteOptions={"dryRun": ["All"]})).code == 201
    guarded.done("GET", A)
    assert guarded.ask("POST", f"{A}/eviction", eviction()).code == 201
    assert guarded.ask("GET", A).code == 404


def test_two_budgets_are_too_many(guarded):
    """500, as upstream."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    guarded.done("POST", BUDGETS, {"metadata": {"name": "c"}, "spec": spec})
    assert guarded.refused("POST", f"{A}/eviction", eviction())[:2] == (500, "InternalError")


def test_an_eviction_of_another_name(guarded):
    """400."""
    assert guarded.refused("POST", f"{A}/eviction", {"metadata": {"name": "b"}})[0] == 400


def test_a_pod_that_is_not_ready_may_go(guarded):
    """If enough others are, or the budget does not care; nothing is spent."""
    guarded.patch(f"{A}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    status = {"disruptionsAllowed": 0, "observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 0}
    guarded.patch(f"{BUDGETS}/b/status", {"status": status})
    assert guarded.ask("POST", f"{A}/eviction", eviction()).code == 429
    guarded.patch(f"{BUDGETS}/b/status", {"status": {"currentHealthy": 1}})
    assert guarded.ask("POST", f"{A}/eviction", eviction()).code == 201


def test_a_pod_is_told_that_it_was_evicted(caller):
    """In a condition, by a write before the one that deletes it; a dry run writes neither."""
    caller.done("POST", PODS, pod("a", node="n"))
    watch = caller.watch(PODS, resourceVersion=caller.store.revision)
    assert caller.ask("POST", f"{A}/eviction", eviction(deleteOptions={"dryRun": ["All"]})).code == 201
    assert watch.take(caller.now) == []
    caller.ask("POST", f"{A}/eviction", eviction())
    told, going = (event["object"] for event in watch.take(caller.now))
    assert told["status"]["conditions"][0]["reason"] == "EvictionByEvictionAPI"
    assert "deletionTimestamp" not in told["metadata"]
    assert going["metadata"]["deletionTimestamp"]
    caller.ask("POST", f"{A}/eviction", eviction())
    assert watch.take(caller.now) == []
