"""The judges of what a cluster did: a blameless history, and one fault for each promise, which is found."""

import json
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from promises import ACCOUNT, CREDENTIAL, Asked, Evidence, Mark, judge, read_audit, read_marks

UID = "installation"
ONLY = {"preconditions": {"uid": "u", "resourceVersion": "7"}}
RUNNING = {"status": {"phase": "Running"}}


def asked(at, verb, kind, name, body=None, *, process="p1", user=ACCOUNT, part="", code=200):
    """Return a request, by default of the controller's first process."""
    return Asked(at, user, process, verb, kind, part, name, code, body or {})


def lease(at, *, process="p1", holder="me"):
    """Return a write of the Lease."""
    body = {"spec": {"holderIdentity": holder}}
    return asked(at, "update", "leases", "iris-controller", body, process=process)


def pool(at, name, group="single", **more):
    """Return the creation of a slice's pool."""
    labels = {"iris-managed": "true", "iris-slice-id": name, "iris-scale-group": group, "iris-cluster": UID}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeLabels": labels}}
    return asked(at, "create", "nodepools", name, body, **more)


def pod(at, name, worker_id):
    """Return the creation of a worker's pod."""
    return asked(at, "create", "pods", name, {"metadata": {"labels": {"iris-worker-id": worker_id}}})


def runs(at, name):
    """Return a kubelet's word that a pod runs."""
    return asked(at, "patch", "pods", name, RUNNING, user="kubelet", process="", part="status")


def mark(what, at, worker_id="iris-single-a-0", attempt="t1"):
    """Return what a task wrote down."""
    return Mark(what, "job", "0", attempt, worker_id, at)


BLAMELESS = Evidence(
    [
        lease(0),
        pool(5, "iris-single-a"),
        pool(5, "iris-pair-b", "pair"),
        lease(6),
        pod(7, "iris-single-a-0-x", "iris-single-a-0"),
        pod(7, "iris-pair-b-0-x", "iris-pair-b-0"),
        pod(7, "iris-pair-b-1-x", "iris-pair-b-1"),
        runs(8, "iris-single-a-0-x"),
        runs(8, "iris-pair-b-0-x"),
        runs(9, "iris-pair-b-1-x"),
        lease(10),
        asked(12, "delete", "pods", "iris-single-a-0-x", ONLY),
        asked(13, "delete", "nodepools", "iris-single-a", ONLY),
        lease(14, holder=""),
        lease(15, process="p2"),
        pool(20, "iris-single-c", process="p2"),
    ],
    [mark("begin", 9.5), mark("end", 11), mark("begin", 9.5, "iris-pair-b-1", "t2"), mark("end", 10, "b-1", "t2")],
    uid=UID,
    most={"single": (1, 1), "pair": (1, 2)},
    calm=frozenset({"t1"}),
)


def test_a_blameless_history_is_not_blamed():
    """Or the others would show nothing."""
    assert judge(BLAMELESS) == []


def with_more(*more):
    """Return the history with something more in it, at its moment."""
    return attrs.evolve(BLAMELESS, asked=sorted([*BLAMELESS.asked, *more], key=lambda each: each.at))


def without(name, key, value):
    """Return the history with a label taken from a pool's nodes."""
    found = []
    for each in BLAMELESS.asked:
        if (each.verb, each.name) == ("create", name):
            spec = {"nodeLabels": {**each.body["spec"]["nodeLabels"], key: value}}
            found.append(attrs.evolve(each, body={**each.body, "spec": spec}))
        else:
            found.append(each)
    return attrs.evolve(BLAMELESS, asked=found)


BROKEN = {
    "F1: the pool iris-single-a": without("iris-single-a", "iris-cluster", "another"),
    "F1: the pool  is": with_more(asked(11, "create", "nodepools", "", code=500)),
    "F1: the pool iris-single-d": with_more(
        asked(11, "create", "nodepools", "iris-single-d", {"metadata": {"name": "iris-single-d"}}, code=403)
    ),
    "F2: delete of nodepools somebodys": with_more(asked(11, "delete", "nodepools", "somebodys", ONLY)),
    "F2: patch of pods somebodys": with_more(asked(11, "patch", "pods", "somebodys")),
    "F3: pods iris-pair-b-0-x": with_more(
        asked(11, "delete", "pods", "iris-pair-b-0-x", {"preconditions": {"uid": "u"}})
    ),
    "F3: iris-single-a is asked to go while t1": attrs.evolve(BLAMELESS, marks=[mark("begin", 9.5), mark("end", 14)]),
    "F4: single has 2 pools": with_more(pool(11, "iris-single-d")),
    "F6: t2 begins on iris-pair-b": attrs.evolve(BLAMELESS, marks=[mark("begin", 8.5, "iris-pair-b-0", "t2")]),
    "F8: delete of pods iris-pair-b-0-x by p1": with_more(asked(19, "delete", "pods", "iris-pair-b-0-x", ONLY)),
    "F8: delete of pods iris-pair-b-0-x 15.0 s after": with_more(
        asked(30, "delete", "pods", "iris-pair-b-0-x", ONLY, process="p2")
    ),
    "F8: create of nodepools iris-single-c 1.0 s after": attrs.evolve(
        BLAMELESS, asked=[*BLAMELESS.asked[:-1], pool(16, "iris-single-c", process="p2")]
    ),
    "F9: p1 has made more than 50": with_more(*(asked(11 + number / 100, "list", "pods", "") for number in range(51))),
    "J2: t1 of task": attrs.evolve(BLAMELESS, overlaps=["t1 of task"]),
}


@pytest.mark.parametrize("blame", BROKEN)
def test_each_broken_promise_is_found(blame):
    """That one, and no other."""
    found = judge(BROKEN[blame])
    assert found, "nothing was found"
    assert all(each.startswith(blame) for each in found)


def test_a_refused_creation_makes_no_pool():
    """Nor does what somebody else's pools are called count."""
    more = with_more(pool(11, "iris-single-d", code=409), pool(11, "iris-single-e", user="admin", process=""))
    assert judge(more) == []


@pytest.mark.parametrize("code", [401, 403, 429])
def test_what_a_server_did_not_read_is_not_judged_by_what_it_said(code):
    """One that has just started knows no rights yet; its audit log has neither name nor labels then."""
    assert judge(with_more(asked(11, "create", "nodepools", "", code=code))) == []


def test_an_audit_log_is_read():
    """By the moments at which requests came, with the process that made them."""
    user = {"username": ACCOUNT, "extra": {CREDENTIAL: ["JTI=1"]}}
    event = {
        "requestReceivedTimestamp": "2026-11-22T22:22:11.053707Z",
        "user": user,
        "verb": "create",
        "objectRef": {"resource": "nodepools"},
        "responseStatus": {"code": 201},
        "requestObject": {"metadata": {"name": "a"}},
    }
    status = {"resource": "pods", "name": "p", "subresource": "status"}
    early = {
        **event,
        "requestReceivedTimestamp": "2026-11-22T22:22:10Z",
        "user": {"username": "x"},
        "objectRef": status,
    }
    first, second = read_audit([json.dumps(event), json.dumps(early)])
    assert (second.process, second.kind, second.name, second.ours, second.done) == (
        "JTI=1",
        "nodepools",
        "a",
        True,
        True,
    )
    assert (first.process, first.part, first.name, first.ours) == ("", "status", "p", False)
    assert second.at - first.at == pytest.approx(1.053707)


def test_marks_are_read_but_for_one_that_was_cut_off():
    """Whoever writes one may be killed."""
    whole = "begin job 0 t1 iris-single-a-0 9.5"
    assert read_marks(f"{whole}\nend job 0") == [mark("begin", 9.5)]
