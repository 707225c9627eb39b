"""What a cluster has before anybody uses it."""

from random import Random

from iriscw_sims.coreweave.crd import POOLS, install
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store


def posted(**spec):
    """Return the answer to the creation of a pool."""
    store = Store(rng=Random(1))
    install(store)
    body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}
    return store.handle(Request("POST", POOLS, body={**body, "spec": spec}), 0)


def test_defaults_are_filled_in():
    """By the schema."""
    answer = posted(instanceType="x", targetNodes=1, lifecycle={})
    assert answer.code == 201
    assert answer.body["spec"] == {
        "instanceType": "x",
        "targetNodes": 1,
        "computeClass": "default",
        "autoscaling": False,
        "lifecycle": {"scaleDownStrategy": "IdleOnly"},
    }


def test_what_the_schema_forbids_is_refused_at_once():
    """No type, a negative target, an unknown strategy."""
    for spec in (
        {"targetNodes": 1},
        {"instanceType": "x", "targetNodes": -1},
        {"instanceType": "x", "lifecycle": {"scaleDownStrategy": "Never"}},
        {"instanceType": "x", "prefill": {"maxNodes": 5}},
    ):
        assert posted(**spec).code == 422


def test_a_namespace_can_be_had_or_not():
    """As the caller wants it."""
    store = Store(rng=Random(1))
    install(store, namespace="")
    assert store.namespace("iris") is None
    other = Store(rng=Random(1))
    install(other, namespace="mine")
    assert other.namespace("mine") is not None


def test_tables_have_coreweaves_columns(world):
    """Reasons of conditions among them."""
    world.make_pool()
    world.until(world.whole)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = world.store.handle(Request("GET", POOLS, accept=accept), world.now).body
    row = dict(zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
    assert {name: row[name] for name in ("Name", "INSTANCE TYPE", "TARGET", "CURRENT", "CAPACITY", "QUOTA")} == {
        "Name": "p",
        "INSTANCE TYPE": "cd-gp-a192-genoa",
        "TARGET": 1,
        "CURRENT": 1,
        "CAPACITY": "Sufficient",
        "QUOTA": "Under",
    }
