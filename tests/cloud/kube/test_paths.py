"""Requests for lists and watches say what they want."""

from kube_shell import POOLS, SECOND

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.kube.paths import NODE_POOLS, Source, pods_of, selector


def test_only_what_is_managed_is_seen():
    """Whatever labels are asked for, in one spelling."""
    assert selector({}) == "iris-managed=true"
    assert selector({"b": "2", "a": "1"}) == selector({"a": "1", "b": "2"}) == "a=1,b=2,iris-managed=true"


def test_where_things_are():
    """As CoreWeave and Kubernetes serve them."""
    assert NODE_POOLS == POOLS
    assert pods_of("iris") == "/api/v1/namespaces/iris/pods"


def test_pages_and_watches():
    """A list never names a version, a watch always does; its timeout is in whole seconds, one at least."""
    source = Source("/x", "a=1")
    assert source.page() == ApiRequest("GET", "/x", (("labelSelector", "a=1"),))
    assert dict(source.page(5, "t").query) == {"labelSelector": "a=1", "limit": "5", "continue": "t"}
    query = dict(source.watch("9", 90 * SECOND).query)
    assert (query["watch"], query["resourceVersion"], query["timeoutSeconds"]) == ("1", "9", "90")
    assert query["allowWatchBookmarks"] == "true"
    assert dict(source.watch("9", 1).query)["timeoutSeconds"] == "1"
