"""What a watch has been told is put together as the driver does it: whole lists, then what happened since."""

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw_sims.coreweave.crd import POOLS as POOL_PATH
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.telling import NODES, PODS, POOLS, Telling, is_refusal

UNKNOWN = ApiResponse(401, status_failure(401, "Unauthorized", "Unauthorized"))


def test_a_webhooks_refusal_is_none_of_credentials():
    """Both are 403; an authorizer names the user."""
    assert is_refusal(401, {})
    assert is_refusal(403, {"message": 'pods is forbidden: User "a" cannot list resource "pods"'})
    assert not is_refusal(403, {"message": 'admission webhook "a" denied the request'})
    assert not is_refusal(500, None)


class Recorded:
    """Stands for the checks, and notes what a telling passes on."""

    def __init__(self):
        self.said = []

    def listed(self, kind, objects):
        self.said.append(("listed", kind, sorted(objects)))

    def shown(self, kind, thing):
        self.said.append(("shown", thing["metadata"]["name"]))

    def vanished(self, kind, thing):
        self.said.append(("vanished", thing["metadata"]["name"]))


def page(*names, more=""):
    """Return a page of a list."""
    return ApiResponse(200, {"metadata": {"continue": more}, "items": [{"metadata": {"name": name}} for name in names]})


def event(kind, name):
    """Return what a watch tells."""
    return {"type": kind, "object": {"metadata": {"name": name}}}


def test_pools_are_told_when_their_nodes_are():
    """A watch of pools shows nothing before both lists are complete; events in between change the list."""
    checks = Recorded()
    telling = Telling(checks, POOLS)
    first, more = ApiRequest("GET", POOL_PATH), ApiRequest("GET", POOL_PATH, (("continue", "x"),))
    telling.answers(POOLS, first, page("a", more="x"))
    telling.answers(POOLS, more, None)
    telling.answers(POOLS, more, page("b"))
    telling.told(POOLS, event("ADDED", "c"))
    telling.told(POOLS, event("DELETED", "a"))
    assert checks.said == []
    telling.answers(NODES, first, page("n"))
    telling.told(NODES, event("DELETED", "n"))
    telling.told(POOLS, event("BOOKMARK", "d"))
    telling.told(POOLS, event("DELETED", "b"))
    telling.told(POOLS, event("MODIFIED", "c"))
    assert checks.said == [("listed", POOLS, ["b", "c"]), ("vanished", "b"), ("shown", "c")]


def test_a_list_that_begins_anew_forgets_the_pages_before():
    """What was in a page of a list that was given up is told of nobody."""
    checks = Recorded()
    telling = Telling(checks, PODS)
    first = ApiRequest("GET", "/pods")
    telling.answers(PODS, first, page("a", more="x"))
    telling.answers(PODS, first, UNKNOWN)
    assert telling.refused
    telling.answers(PODS, first, page("b"))
    assert not telling.refused
    assert checks.said == [("listed", PODS, ["b"])]
    telling.told(PODS, {"type": "ERROR", "object": UNKNOWN.body})
    assert telling.refused
