"""Leases of nodes: written when somebody could notice, by the kubelet's clock."""

from cloud_world import BEGIN, MERGE, SECOND

from iriscw_sims.coreweave.leases import LEASES
from iriscw_sims.kube.clock import parsed

NAMESPACE = "/api/v1/namespaces/kube-node-lease"


def first(world):
    """Return the name of the first node of the pool."""
    return world.nodes()[0]["metadata"]["name"]


def renewed(world, name):
    """Return when a lease was renewed, s since the world began; None without one."""
    lease = world.get(f"{LEASES}/{name}")
    return lease and (parsed(lease["spec"]["renewTime"]) - BEGIN) / SECOND


def test_each_node_has_a_lease(pooled):
    """In its name, for 40 s, owned by the node."""
    for node in pooled.nodes():
        lease = pooled.get(f"{LEASES}/{node['metadata']['name']}")
        assert lease["spec"]["holderIdentity"] == node["metadata"]["name"]
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert len(pooled.items(LEASES)) == 2


def test_nothing_is_written_while_all_is_well(pooled):
    """Hours pass, and the store has no more to remember."""
    before = pooled.store.revision
    pooled.run(4 * 3600)
    assert pooled.store.revision == before


def test_a_silent_node_was_heard_last_when_it_fell_silent(pooled):
    """And again when it is back; a dead one never."""
    name, begun = first(pooled), (pooled.now - BEGIN) / SECOND
    pooled.run(5)
    pooled.cloud.lose_node_for(name, 4 * SECOND)
    assert abs(renewed(pooled, name) - begun - 5) < 0.001
    pooled.run(3)
    assert abs(renewed(pooled, name) - begun - 5) < 0.001
    pooled.run(2)
    assert abs(renewed(pooled, name) - begun - 9) < 0.001


def test_a_lease_goes_with_its_node(pooled):
    """Whoever removes the node."""
    name = first(pooled)
    pooled.do("DELETE", f"/api/v1/nodes/{name}")
    assert renewed(pooled, name) is None


def test_the_time_is_the_kubelets(pooled):
    """Whose clock may be wrong by minutes."""
    name = first(pooled)
    pooled.cloud.jump_clock(name, -300 * SECOND)
    pooled.cloud.lose_node_for(name, SECOND)
    assert abs(renewed(pooled, name) - (pooled.now - BEGIN) / SECOND + 300) < 0.001


def test_a_lease_that_somebody_removed_is_written_anew(pooled):
    """And one that somebody holds in the node's place is taken back."""
    name = first(pooled)
    pooled.do("DELETE", f"{LEASES}/{name}")
    pooled.cloud.lose_node_for(name, SECOND)
    pooled.run(2)
    assert renewed(pooled, name) is not None
    pooled.ask("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": None}}, MERGE)
    pooled.cloud.lose_node_for(name, SECOND)
    assert renewed(pooled, name) is not None


def test_leases_need_their_namespace(world):
    """Without it nodes join all the same."""
    world.ask("DELETE", NAMESPACE)
    world.make_pool()
    world.until(world.whole)
