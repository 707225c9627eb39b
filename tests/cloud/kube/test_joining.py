"""Nodes stand with their pools, whatever comes first."""

from hypothesis import given, strategies as st

from iriscw.cloud.kube.joining import POOL_NAME_LABEL, Join, home_of, homes_of
from iriscw.cloud.model import LABEL_SLICE


def thing(name, version="1", **labels):
    """Return an object with labels."""
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": version, "labels": labels}}


def of_slice(name, slice_id, **metadata):
    """Return an object of a slice."""
    return thing(name, **metadata, **({LABEL_SLICE: slice_id} if slice_id else {}))


def test_a_node_belongs_to_its_slice_and_else_to_the_named_pool():
    """Our own label goes before CoreWeave's; a node that says nothing belongs nowhere."""
    both = thing("n", **{LABEL_SLICE: "s", POOL_NAME_LABEL: "p"})
    assert home_of(both) in homes_of("x", {LABEL_SLICE: "s"})
    assert home_of(both) not in homes_of("p", {})
    assert home_of(thing("n", **{POOL_NAME_LABEL: "p"})) in homes_of("p", {})
    assert home_of(thing("n")) == ""
    assert "" not in homes_of("", {})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pool", "node"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["", "s1", "s2"]) | st.none(),
    ),
    max_size=30,
)


@given(STEPS)
def test_the_join_is_what_a_plain_search_finds(steps):
    """After any history; and whatever looks different was named."""
    join, pools, nodes, before = Join(), {}, {}, {}
    for kind, name, slice_id in steps:
        if kind == "pool" and slice_id is None:
            if name in pools:
                last = join.pool_gone(pools.pop(name))
                assert last == before.pop(name), "as it was last seen"
            continue
        if kind == "pool":
            pools[name] = of_slice(name, slice_id)
            touched = join.pool_seen(pools[name])
        elif slice_id is None:
            nodes.pop(name, None)
            touched = join.node_gone(name)
        else:
            nodes[name] = of_slice(name, slice_id)
            touched = join.node_seen(nodes[name])
        now = {pool.name: pool for pool in join.all()}
        for found, pool in now.items():
            mine = pools[found]["metadata"]["labels"].get(LABEL_SLICE)
            expected = [
                node for node in sorted(nodes) if mine and nodes[node]["metadata"]["labels"].get(LABEL_SLICE) == mine
            ]
            assert [node.name for node in pool.nodes] == expected
            if before.get(found) != pool:
                assert found in touched
        assert list(now) == sorted(pools)
        before = now
    assert Join.of(pools.values(), nodes.values()).all() == join.all()


def test_a_heartbeat_touches_nobody():
    """What is read from a node is the same: no pool looks different."""
    join = Join.of([of_slice("p", "s")], [of_slice("n", "s")])
    assert join.node_seen(of_slice("n", "s", version="2")) == ()
    assert join.pool_seen(of_slice("p", "s", version="2")) == ("p",)


def test_taints_that_pods_of_a_group_tolerate():
    """A node with a taint of its group's is open; to others it is closed, and says why."""
    node = of_slice("n", "s")
    node["metadata"]["labels"]["iris-scale-group"] = "g"
    node["spec"] = {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}
    (closed,) = Join.of([of_slice("p", "s")], [node], {"h": ("dedicated",)}).pool("p").nodes
    (open_,) = Join.of([of_slice("p", "s")], [node], {"g": ("dedicated",)}).pool("p").nodes
    assert (closed.usable, closed.closed) == (False, "tainted with dedicated")
    assert (open_.usable, open_.closed) == (True, "")
