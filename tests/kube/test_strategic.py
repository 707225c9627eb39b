"""Strategic merge patches on built-in types."""

import pytest

from iriscw_sims.kube.refusals import Refused
from iriscw_sims.kube.schema import core_schema
from iriscw_sims.kube.strategic import strategic

POD = core_schema("Pod")


def containers(*items):
    """Return a pod with these containers."""
    return {"spec": {"containers": list(items)}}


def names(pod):
    """Return the names of a pod's containers, in order."""
    return [each["name"] for each in pod["spec"]["containers"]]


A, B, C = ({"name": name, "image": "1"} for name in "abc")


def test_a_keyed_list_merges_by_its_key():
    """A container that is named is changed, another is added in front, as the server orders them."""
    patched = strategic(POD, containers(A, B), containers({"name": "b", "image": "2"}, {"name": "new"}))
    assert {each["name"]: each.get("image") for each in patched["spec"]["containers"]} == {
        "a": "1",
        "b": "2",
        "new": None,
    }
    assert names(patched) == ["a", "b", "new"]


def test_a_named_order_is_kept():
    """$setElementOrder says how the list is ordered."""
    order = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}], "containers": [A]}}
    assert names(strategic(POD, containers(A, B, C), order)) == ["c", "a", "b"]
    only = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert names(strategic(POD, containers(A, B), only)) == ["b", "a"]


def test_directives_delete_and_replace():
    """$patch: delete takes an entry or a field away, replace takes all others."""
    assert names(strategic(POD, containers(A, B), containers({"name": "a", "$patch": "delete"}))) == ["b"]
    assert names(strategic(POD, containers(A, B), containers(C, {"$patch": "replace"}))) == ["c"]
    labels = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    replaced = strategic(POD, labels, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}})
    assert replaced["metadata"]["labels"] == {"c": "3"}
    assert strategic(POD, labels, {"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}


def test_lists_of_scalars_unite_or_are_replaced():
    """Finalizers unite, and one can be taken away; arguments are replaced."""
    old = {"metadata": {"finalizers": ["x/one"]}, **containers({**A, "args": ["1"]})}
    assert strategic(POD, old, {"metadata": {"finalizers": ["x/two", "x/one"]}})["metadata"]["finalizers"] == [
        "x/two",
        "x/one",
    ]
    taken = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/one"]}}
    assert strategic(POD, old, taken)["metadata"]["finalizers"] == []
    assert strategic(POD, old, containers({"name": "a", "args": ["2"]}))["spec"]["containers"][0]["args"] == ["2"]


def test_retained_keys_drop_the_others():
    """$retainKeys keeps a union to one member."""
    old = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}
    assert strategic(POD, old, patch)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_null_removes():
    """As in a merge patch."""
    assert strategic(POD, {"spec": {"nodeName": "n", "hostname": "h"}}, {"spec": {"nodeName": None}}) == {
        "spec": {"hostname": "h"}
    }


@pytest.mark.parametrize(
    ("patch", "code"),
    [([], 400), (containers({"image": "i"}), 500), ({"metadata": {"$patch": "dance"}}, 400)],
)
def test_patches_that_make_no_sense(patch, code):
    """No object, an entry without its key, an unknown directive; the codes are the server's."""
    with pytest.raises(Refused) as refused:
        strategic(POD, containers(A), patch)
    assert refused.value.status["code"] == code
