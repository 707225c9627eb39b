"""Calls on pods keep the port's contract. What they share with those on pools is tested there."""

from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_shell import LOST, OK, PODS, POOLS, SECOND, SETTINGS, SILENT, Server, pod_spec, pool_spec, refusal

from iriscw.cloud.kube.pods import create_pod, delete_pod, list_pods
from iriscw.cloud.kube.pools import create_pool, delete_pool
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_INCARNATION,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
    Conflict,
    Gone,
    InvalidSpec,
    PodPhase,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw_sims.kube.garbage import collect
from raised import that


@pytest.fixture
def pooled(server):
    """A server with a pool."""
    server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.requests.clear()
    return server


def make(server, spec, fates=()):
    """Create a pod."""
    return server.run(create_pod(SETTINGS, spec, Random(1)), fates)


def on_a_node(server, name="slice-1-0"):
    """Let a pod run, so that its deletion waits for its node."""
    server.do("POST", f"{PODS}/{name}/binding", {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": name}})
    server.do("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}})


def test_a_pod_is_made_as_it_was_asked_for(pooled):
    """After a look at its pool; what comes back is what the server acknowledged."""
    pod = make(pooled, pod_spec())
    (found,) = pooled.objects(PODS)
    assert (pod.name, pod.uid, pod.phase) == ("slice-1-0", found["metadata"]["uid"], PodPhase.PENDING)
    assert pooled.said() == [("GET", f"{POOLS}/slice-1"), ("POST", PODS)]


def test_a_pod_needs_its_pool(server):
    """Absent, or being deleted: Gone, and no pod."""
    with pytest.raises(Gone):
        make(server, pod_spec())
    pool = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.do("PATCH", f"{POOLS}/slice-1", {"metadata": {"finalizers": ["test.dev/x"]}})
    server.run(delete_pool(SETTINGS, pool.name, pool.uid, Random(1)))
    with pytest.raises(Gone):
        make(server, pod_spec())
    assert server.objects(PODS) == []


def test_the_same_incarnation_is_given_back_ended_or_not(pooled):
    """And never a second pod."""
    first = make(pooled, pod_spec())
    pooled.do("PATCH", f"{PODS}/slice-1-0/status", {"status": {"phase": "Failed"}})
    again = make(pooled, pod_spec())
    assert (again.uid, again.phase) == (first.uid, PodPhase.FAILED)


@pytest.mark.parametrize("label", [LABEL_INCARNATION, LABEL_CLUSTER, LABEL_SLICE])
def test_a_name_that_another_has_is_a_conflict(pooled, label):
    """Another incarnation, another cluster, another slice."""
    make(pooled, pod_spec())
    other = pod_spec()
    with pytest.raises(Conflict, check=that(names=label)):
        make(pooled, attrs.evolve(other, labels={**other.labels, label: "other"}))


def test_a_pod_that_is_being_deleted_is_a_conflict(pooled):
    """Its processes may still run."""
    pod = make(pooled, pod_spec())
    on_a_node(pooled)
    pooled.run(delete_pod(SETTINGS, pod.name, pod.uid, 30 * SECOND, Random(1)))
    with pytest.raises(Conflict, check=that(comes_from="ownership._compare")):
        make(pooled, pod_spec())


def test_no_grace_leaves_the_last_word_to_the_node(pooled):
    """A second is the least, so that the pod is not forgotten while its processes run."""
    pod = make(pooled, pod_spec())
    on_a_node(pooled)
    pooled.run(delete_pod(SETTINGS, pod.name, pod.uid, 0, Random(1)))
    (found,) = pooled.objects(PODS)
    assert found["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_deletion_can_be_shortened_and_not_lengthened(pooled):
    """The one that is under way is enough for whoever would wait longer."""
    pod = make(pooled, pod_spec())
    on_a_node(pooled)
    graces = []
    for grace in (60, 90, 20, 60):
        pooled.run(delete_pod(SETTINGS, pod.name, pod.uid, grace * SECOND, Random(1)))
        graces.append(pooled.objects(PODS)[0]["metadata"]["deletionGracePeriodSeconds"])
    assert graces[0] == graces[1] == 60
    assert graces[2] == graces[3] < 60
    assert [method for method, _ in pooled.said()].count("DELETE") == 2


@pytest.mark.parametrize("labels", [{LABEL_ROLE: ROLE_CONTROLLER}, {LABEL_CLUSTER: "another"}])
def test_what_is_not_ours_is_never_deleted(pooled, labels):
    """INV-F2: the controller's own pod, and another cluster's."""
    spec = pod_spec()
    pod = make(pooled, attrs.evolve(spec, labels={**spec.labels, **labels}))
    with pytest.raises(Conflict):
        pooled.run(delete_pod(SETTINGS, pod.name, pod.uid, SECOND, Random(1)))
    assert len(pooled.objects(PODS)) == 1


def test_a_pod_goes_with_its_pool(pooled):
    """The pool owns it: the cluster's garbage collector sees to it, also for one that landed late."""
    pool = pooled.objects(POOLS)[0]["metadata"]
    make(pooled, pod_spec())
    pooled.run(delete_pool(SETTINGS, pool["name"], pool["uid"], Random(1)))
    assert len(pooled.objects(PODS)) == 1
    for request in collect(pooled.store.collections):
        pooled.store.handle(request, pooled.now)
    assert pooled.objects(PODS) == []


def test_lists_are_ordered_and_filtered(pooled):
    """All labels must fit; pages are put together."""
    for name in ("b", "a", "c"):
        make(pooled, pod_spec(name, incarnation=name))
    settings = attrs.evolve(SETTINGS, page_limit=1)
    assert [pod.name for pod in pooled.run(list_pods(settings, {}, Random(1)))] == ["a", "b", "c"]
    only = pooled.run(list_pods(settings, {LABEL_INCARNATION: "b"}, Random(1)))
    assert [pod.name for pod in only] == ["b"]


def test_a_used_up_quota_is_told_as_such(pooled):
    """And a quota that is being counted is asked again."""
    used_up = refusal(403, "Forbidden", 'pods "slice-1-0" is forbidden: exceeded quota: gpus')
    with pytest.raises(QuotaExceeded):
        make(pooled, pod_spec(), [OK, used_up])
    counting = refusal(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "gpus": modified')
    assert make(pooled, pod_spec(), [OK, counting, counting]).name == "slice-1-0"


def test_what_cannot_be_asks_nothing(server):
    """A bad name is refused before the pool is looked at."""
    with pytest.raises(InvalidSpec):
        make(server, pod_spec("a.b"))
    assert server.requests == []


@given(st.lists(st.sampled_from([OK, OK, LOST, SILENT]), max_size=16))
def test_lost_answers_at_every_position_make_one_pod(words):
    """Whatever becomes of each request; repeating leads to the one pod."""
    server = Server()
    server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    try:
        first = make(server, pod_spec(), words).uid
    except (Throttled, Unavailable):
        first = ""
    again = make(server, pod_spec())
    assert [each["metadata"]["uid"] for each in server.objects(PODS)] == [again.uid]
    assert first in ("", again.uid)
