"""Calls on node pools keep the port's contract, whatever becomes of each request."""

from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_shell import (
    LOST,
    NODES,
    OK,
    POOLS,
    SECOND,
    SETTINGS,
    SILENT,
    Server,
    node_body,
    pod_spec,
    pool_spec,
    refusal,
)

from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.pods import create_pod, delete_pod
from iriscw.cloud.kube.pools import create_pool, delete_pool, list_pools
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
    CloudError,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
    Unseen,
)
from raised import that

FATES = st.sampled_from([OK, OK, OK, LOST, SILENT, "later", "trouble"])
LATER = refusal(429, "TooManyRequests", retry_after=2 * SECOND)
TROUBLE = refusal(500, "InternalError", "etcdserver: leader changed")


def fates(words):
    return [{"later": LATER, "trouble": TROUBLE}.get(word, word) for word in words]


def test_a_pool_is_made_as_it_was_asked_for(server):
    """Fixed in size, labelled, its nodes too; what comes back is what the server acknowledged."""
    pool = server.run(create_pool(SETTINGS, pool_spec(nodes=2), Random(1)))
    (found,) = server.objects(POOLS)
    assert (pool.name, pool.uid, pool.target_nodes) == ("slice-1", found["metadata"]["uid"], 2)
    assert pool.labels == found["metadata"]["labels"] == found["spec"]["nodeLabels"]
    assert found["spec"]["autoscaling"] is False
    assert server.said() == [("POST", POOLS)]


def test_creating_again_gives_the_pool_with_its_nodes(server):
    """A name that is taken by the same slice is that slice's pool, as it is now."""
    first = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.do("POST", NODES, node_body("n1", "slice-1"))
    server.do("POST", NODES, node_body("n2", "slice-2"))
    again = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    assert again.uid == first.uid
    assert [node.name for node in again.nodes] == ["n1"]
    assert len(server.objects(POOLS)) == 1


@pytest.mark.parametrize("label", [LABEL_SLICE, LABEL_CLUSTER])
def test_a_name_that_another_has_is_a_conflict(server, label):
    """Another slice, or another cluster: its pool is not given away."""
    server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    with pytest.raises(Conflict, check=that(names=label)):
        server.run(create_pool(SETTINGS, pool_spec(**{label: "other"}), Random(1)))


def test_a_pool_that_is_being_deleted_is_a_conflict(server):
    """Its name is not free yet."""
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.do("PATCH", f"{POOLS}/slice-1", {"metadata": {"finalizers": ["test.dev/x"]}})
    server.run(delete_pool(SETTINGS, "slice-1", pool.uid, Random(1)))
    with pytest.raises(Conflict, check=that(comes_from="ownership._compare")):
        server.run(create_pool(SETTINGS, pool_spec(), Random(1)))


def test_a_holder_that_is_gone_when_it_is_looked_at_has_left_its_name(server):
    """409, then 404: the name is free, and is taken."""
    other = server.run(create_pool(SETTINGS, pool_spec(**{LABEL_SLICE: "other"}), Random(1)))

    def vanish(request):
        if request.method == "GET":
            server.before = None
            server.do("DELETE", f"{POOLS}/slice-1")

    server.before = vanish
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    assert pool.uid != other.uid
    assert [method for method, _ in server.said()[1:]] == ["POST", "GET", "POST"]


def test_a_holder_that_may_not_be_looked_at_is_told_as_that(server):
    """Not that the API is silent: the credentials are what people have to mend (seed 2745, INV-F5)."""
    exists, forbidden = refusal(409, "AlreadyExists"), refusal(403, "Forbidden")
    with pytest.raises(Unseen, check=that(comes_from="ownership.look")):
        server.run(create_pool(SETTINGS, pool_spec(), Random(1)), [exists, forbidden])


def test_a_name_that_never_comes_to_rest_is_told(server):
    """Others make and delete it each time: bounded, then no answer."""
    exists, absent = refusal(409, "AlreadyExists"), refusal(404, "NotFound")
    with pytest.raises(Unavailable, check=that(names="slice-1")):
        server.run(create_pool(SETTINGS, pool_spec(), Random(1)), [exists, absent] * 100)
    assert len(server.requests) < 40


@given(st.lists(FATES, max_size=12), st.lists(FATES, max_size=12))
def test_lost_answers_at_every_position_make_one_pool(first, second):
    """Whatever becomes of each request, a call ends in its contract; then repeating it leads to one pool."""
    server = Server()
    uids = []
    for words in (first, second, []):
        try:
            uids.append(server.run(create_pool(SETTINGS, pool_spec(), Random(1)), fates(words)).uid)
        except (Throttled, Unavailable):
            continue
    assert [each["metadata"]["uid"] for each in server.objects(POOLS)] == uids[:1] == [uids[-1]]
    assert len(server.requests) <= 3 * SETTINGS.attempts * 3


@given(st.lists(FATES, max_size=12), st.sampled_from(["pool", "pod"]))
def test_lost_answers_at_every_position_delete_one_thing(words, kind):
    """Gone is said only of what is gone; the call repeated leads there; a successor of the name stays."""
    server = Server()
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    pod = server.run(create_pod(SETTINGS, pod_spec(), Random(1)))
    thing, path = (pool, POOLS) if kind == "pool" else (pod, "/api/v1/namespaces/iris/pods")

    def delete(words):
        if kind == "pool":
            return server.run(delete_pool(SETTINGS, thing.name, thing.uid, Random(1)), fates(words))
        return server.run(delete_pod(SETTINGS, thing.name, thing.uid, 30 * SECOND, Random(1)), fates(words))

    try:
        delete(words)
    except Gone:
        assert server.objects(path) == []
    except (Throttled, Unavailable):
        pass
    else:
        assert server.objects(path) == []  # nothing holds it here
    if server.objects(path):
        delete([])
    successor = server.run(
        create_pool(SETTINGS, pool_spec(), Random(1)) if kind == "pool" else create_pod(SETTINGS, pod_spec(), Random(1))
    )
    with pytest.raises(Gone):
        delete([])
    assert [each["metadata"]["uid"] for each in server.objects(path)] == [successor.uid]


@pytest.mark.parametrize("labels", [{LABEL_ROLE: ROLE_CONTROLLER}, {LABEL_CLUSTER: "another"}])
def test_what_is_not_ours_is_never_deleted(server, labels):
    """INV-F2: no request to delete it leaves."""
    pool = server.run(create_pool(SETTINGS, pool_spec(**labels), Random(1)))
    with pytest.raises(Conflict):
        server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    assert "DELETE" not in [method for method, _ in server.said()]


def test_what_changes_hands_meanwhile_is_not_deleted(server):
    """Between the look and the deletion it is given to the controller: the server refuses, and we see why."""
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))

    def hand_over(request):
        if request.method == "DELETE":
            server.before = None
            server.do("PATCH", f"{POOLS}/slice-1", {"metadata": {"labels": {LABEL_ROLE: ROLE_CONTROLLER}}})

    server.before = hand_over
    with pytest.raises(Conflict, check=that(comes_from="labels.check_ours")):
        server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    assert len(server.objects(POOLS)) == 1


def test_status_writes_meanwhile_do_not_stop_a_deletion(server):
    """Its version moves under the call: it is judged again, and deleted; if that never ends, it is told."""
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    left = [3]

    def write(request):
        if request.method == "DELETE" and left[0]:
            left[0] -= 1
            server.do("PATCH", f"{POOLS}/slice-1", {"metadata": {"annotations": {"n": str(left[0])}}})

    server.before = write
    server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    assert server.objects(POOLS) == []
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    left[0] = 1000
    with pytest.raises(Unavailable, check=that(comes_from="ownership.delete")):
        server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    assert left[0] > 980


def test_gone_is_told_apart_from_another_one(server):
    """No such name, another uid, or a name that is not a valid name: Gone; and the last asks nothing."""
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    for name, uid in [("nothing", pool.uid), (pool.name, "another")]:
        with pytest.raises(Gone):
            server.run(delete_pool(SETTINGS, name, uid, Random(1)))
    before = len(server.requests)
    with pytest.raises(Gone):
        server.run(delete_pool(SETTINGS, "../pods/x", pool.uid, Random(1)))
    assert len(server.requests) == before
    assert len(server.objects(POOLS)) == 1


def test_deleting_what_goes_already_succeeds(server):
    """It waits for a finalizer: nothing more is asked for."""
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.do("PATCH", f"{POOLS}/slice-1", {"metadata": {"finalizers": ["test.dev/x"]}})
    for _ in range(2):
        server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    assert [method for method, _ in server.said()].count("DELETE") == 1


def test_lists_are_ordered_joined_and_filtered(server):
    """All labels must fit; nodes stand with their pools; what is not managed is not seen."""
    for name, group in [("b", "x"), ("a", "x"), ("c", "y")]:
        server.run(create_pool(SETTINGS, pool_spec(name, **{"iris-scale-group": group}), Random(1)))
        labels = {"iris-scale-group": group}
        for serial in range(2):
            server.do("POST", NODES, node_body(f"{name}{serial}", name, labels=labels))
    server.do("POST", NODES, {"metadata": {"name": "stranger"}})
    settings = attrs.evolve(SETTINGS, page_limit=2)
    found = server.run(list_pools(settings, {"iris-scale-group": "x"}, Random(1)))
    assert [(pool.name, [node.name for node in pool.nodes]) for pool in found] == [
        ("a", ["a0", "a1"]),
        ("b", ["b0", "b1"]),
    ]
    assert [pool.name for pool in server.run(list_pools(settings, {}, Random(1)))] == ["a", "b", "c"]
    assert server.run(list_pools(settings, {"iris-scale-group": "z"}, Random(1))) == ()


def test_a_list_that_is_forgotten_half_way_begins_anew(server):
    """410 after the first page: everything at once, of one moment."""
    for number in range(5):
        server.run(create_pool(SETTINGS, pool_spec(f"s{number}"), Random(1)))

    def forget(request):
        if dict(request.query).get("continue"):
            server.before = None
            server.do("DELETE", f"{POOLS}/s0")
            server.store.compact(server.store.revision)

    server.before = forget
    found = server.run(list_pools(attrs.evolve(SETTINGS, page_limit=2), {}, Random(1)))
    assert [pool.name for pool in found] == ["s1", "s2", "s3", "s4"]


def test_a_list_that_is_always_forgotten_is_told(server):
    """Bounded, then no answer."""
    with pytest.raises(Unavailable, check=that(comes_from="calls.collect")):
        server.run(list_pools(SETTINGS, {}, Random(1)), [refusal(410, "Expired")] * 100)
    assert len(server.requests) < 10


def test_an_endless_or_too_long_list_ends(server):
    """A page that brings nothing and promises more, and more objects than memory was meant for."""
    page = {"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []}
    with pytest.raises(Unavailable, check=that(comes_from="calls.ListPages.add")):
        server.run(list_pools(SETTINGS, {}, Random(1)), [ApiResponse(200, page)] * 100)
    for number in range(5):
        server.run(create_pool(SETTINGS, pool_spec(f"s{number}"), Random(1)))
    with pytest.raises(Unavailable, check=that(comes_from="calls.ListPages.add", names="4")):
        server.run(list_pools(attrs.evolve(SETTINGS, object_limit=4, page_limit=1), {}, Random(1)))


REFUSALS = [
    (refusal(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus'), QuotaExceeded),
    (refusal(403, "Forbidden", 'User "x" cannot create resource "nodepools"'), Forbidden),
    (refusal(403, "Forbidden", 'admission webhook "v" denied the request: no such type'), InvalidSpec),
    (refusal(401, "Unauthorized"), Forbidden),
    (refusal(422, "Invalid"), InvalidSpec),
    (refusal(400, "BadRequest"), InvalidSpec),
    (refusal(404, "NotFound", "the server could not find the requested resource"), Unavailable),
    (refusal(405, "MethodNotAllowed"), Unavailable),
    (refusal(409, "Conflict", "the object has been modified"), Unavailable),
    (refusal(429, "TooManyRequests"), Throttled),
    (refusal(503, "ServiceUnavailable"), Unavailable),
    (refusal(504, "Timeout"), Unavailable),
    (refusal(302), Unavailable),
]


@pytest.mark.parametrize(("answer", "error"), REFUSALS)
def test_refusals_of_a_creation(server, answer, error):
    """Each is the error of the contract that says who has to do what; no call asks for ever."""
    with pytest.raises(CloudError) as caught:
        server.run(create_pool(SETTINGS, pool_spec(), Random(1)), [answer] * 1000)
    assert type(caught.value) is error
    assert len(server.requests) <= 8 * SETTINGS.attempts


@pytest.mark.parametrize("answer", [answer for answer, _ in REFUSALS])
def test_refusals_of_lists_and_deletions_stay_in_their_contracts(server, answer):
    """What creation tells in more detail is ``Unavailable`` there."""
    with pytest.raises((Forbidden, Throttled, Unavailable)):
        server.run(list_pools(SETTINGS, {}, Random(1)), [answer] * 1000)
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    with pytest.raises((Gone, Conflict, Forbidden, Throttled, Unavailable)):
        server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)), [OK, *[answer] * 1000])


def test_a_pool_without_nodes_or_with_a_bad_name_asks_nothing(server):
    """It is refused here."""
    for spec in (pool_spec(nodes=0), pool_spec(nodes=10**6), pool_spec("A_b")):
        with pytest.raises(InvalidSpec):
            server.run(create_pool(SETTINGS, spec, Random(1)))
    assert server.requests == []
