"""What controllers finish after a delete."""

import pytest
from kube_caller import DEFINITIONS, MAPS, POOLS, config_map, definition, spec_schema

from iriscw_sims.kube.garbage import collect, path_of


def settle(caller, limit=20):
    """Let the controllers work until they have nothing to do; give how many rounds that took."""
    for rounds in range(limit):
        requests = collect(caller.store.collections)
        if not requests:
            return rounds
        for request in requests:
            assert caller.store.handle(request, caller.now).code in (200, 404, 409), request
    pytest.fail("the collector does not converge")


def owned(name, owner, *, blocking=False):
    """Give a config map that belongs to another object."""
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if blocking:
        reference["blockOwnerDeletion"] = True
    return config_map(name, ownerReferences=[reference])


def names(caller):
    """Return the names of all config maps in the namespace."""
    return [item["metadata"]["name"] for item in caller.done("GET", MAPS)["items"]]


def test_dependents_follow_in_the_background(caller):
    """First the owner, then, level by level, what it owned."""
    owner = caller.done("POST", MAPS, config_map("owner"))
    child = caller.done("POST", MAPS, owned("child", owner))
    caller.done("POST", MAPS, owned("grandchild", child))
    assert settle(caller) == 0
    caller.done("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Background"})
    assert names(caller) == ["child", "grandchild"]
    settle(caller)
    assert names(caller) == []


def test_an_owner_waits_for_dependents_in_the_foreground(caller):
    """For those that block it."""
    owner = caller.done("POST", MAPS, config_map("owner"))
    caller.done("POST", MAPS, {**owned("child", owner, blocking=True)})
    caller.patch(f"{MAPS}/child", {"metadata": {"finalizers": ["x.dev/slow"]}})
    caller.done("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    settle_once = collect(caller.store.collections)
    assert [request.method for request in settle_once] == ["DELETE"]
    caller.store.handle(settle_once[0], caller.now)
    assert names(caller) == ["child", "owner"]
    caller.patch(f"{MAPS}/child", {"metadata": {"finalizers": None}})
    settle(caller)
    assert names(caller) == []


def test_orphans_stay(caller):
    """Without their owner."""
    owner = caller.done("POST", MAPS, config_map("owner"))
    caller.done("POST", MAPS, owned("child", owner))
    caller.done("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    settle(caller)
    assert names(caller) == ["child"]
    assert "ownerReferences" not in caller.done("GET", f"{MAPS}/child")["metadata"]


def test_one_living_owner_is_enough(caller):
    """The dependent stays as long as one is there; a new object of the same name is none."""
    one, two = (caller.done("POST", MAPS, config_map(name)) for name in ("one", "two"))
    both = owned("child", one)["metadata"]["ownerReferences"] + owned("child", two)["metadata"]["ownerReferences"]
    caller.done("POST", MAPS, config_map("child", ownerReferences=both))
    caller.done("DELETE", f"{MAPS}/one")
    assert settle(caller) == 0
    caller.done("DELETE", f"{MAPS}/two")
    caller.done("POST", MAPS, config_map("two"))
    settle(caller)
    assert names(caller) == ["two"]


def test_a_namespace_is_emptied(caller):
    """All that is in it goes, then it goes."""
    caller.done("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    caller.done("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))
    caller.done("DELETE", "/api/v1/namespaces/n")
    settle(caller)
    assert caller.ask("GET", "/api/v1/namespaces/n").code == 404
    assert caller.done("GET", "/api/v1/configmaps")["items"] == []


def test_a_late_request_harms_nobody(caller):
    """What the collector saw is a precondition: a new object of the same name stays."""
    owner = caller.done("POST", MAPS, config_map("owner"))
    caller.done("POST", MAPS, owned("child", owner))
    caller.done("DELETE", f"{MAPS}/owner")
    (late,) = collect(caller.store.collections)
    caller.done("DELETE", f"{MAPS}/child")
    caller.done("POST", MAPS, config_map("child"))
    assert caller.store.handle(late, caller.now).code == 409
    assert names(caller) == ["child"]


def test_paths_of_objects(caller):
    """Of every group and scope."""
    schema = definition(spec_schema(), group="compute.coreweave.com", kind="NodePool", scope="Cluster")
    caller.done("POST", DEFINITIONS, schema)
    kinds = {kind.kind: kind for kind in caller.store.kinds}
    assert path_of(kinds["ConfigMap"], "default", "a") == f"{MAPS}/a"
    assert path_of(kinds["NodePool"], "", "p") == POOLS.replace("v1alpha1", "v1") + "/p"
