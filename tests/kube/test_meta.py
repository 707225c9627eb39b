"""Metadata: names, uids, what is accepted."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.core_kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    LEASE,
    NODE,
    POD,
    ROLE,
)
from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.meta import (
    check_name,
    generated_name,
    judge,
    judge_change,
    judge_generally,
    new_uid,
    same,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("subdomain", ["a", "a-b.c1", "1"], ["", "A", "a_", "-a", "a-", "a..b", "a" * 254]),
        ("label", ["a", "a-1"], ["a.b", "a" * 64]),
        ("label1035", ["a", "a-1"], ["1", "a.b"]),
        ("segment", ["A:b", "system:x"], [".", "..", "a/b", "a%b"]),
    ],
)
def test_names(rule, good, bad):
    """Each kind has one of four rules."""
    assert [name for name in good if [*check_name(rule, name, "f")]] == []
    assert [name for name in bad if not [*check_name(rule, name, "f")]] == []


def test_the_begin_of_a_generated_name_may_end_with_a_hyphen():
    """As almost all of them do."""
    assert [*check_name("subdomain", "job-", "f", prefix=True)] == []
    assert [*check_name("subdomain", "-job", "f", prefix=True)] != []


@given(st.integers())
def test_uids_are_random_uuids_and_names_fit(seed):
    """Law: version 4, variant 10, drawn from the given source alone; generated names are labels."""
    uid = new_uid(Random(seed))
    assert [len(part) for part in uid.split("-")] == [8, 4, 4, 4, 12]
    assert uid[14] == "4"
    assert uid[19] in "89ab"
    assert uid == new_uid(Random(seed))
    assert [*check_name("label", generated_name("a" * 80, Random(seed)), "f")] == []


def test_what_counts_as_the_same():
    """Not when managers last wrote; all else."""
    entry = {"manager": "m", "time": "1", "fieldsV1": {}}
    old = freeze({"metadata": {"name": "a", "managedFields": [entry]}, "data": {}})
    assert same(old, freeze({"metadata": {"name": "a", "managedFields": [{**entry, "time": "2"}]}, "data": {}}))
    assert not same(old, freeze({"metadata": {"name": "a", "managedFields": [{**entry, "manager": "n"}]}, "data": {}}))
    assert not same(old, freeze({"metadata": {"name": "a", "managedFields": [entry]}, "data": {"k": "1"}}))
    assert not same(old, freeze({"metadata": {"name": "a", "managedFields": [entry]}}))


TWO_CONTROLLERS = [{"apiVersion": "v1", "kind": "K", "name": n, "uid": n, "controller": True} for n in "xy"]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({}, "metadata.name"),
        ({"name": "a", "generateName": "-"}, "metadata.generateName"),
        ({"name": "a", "labels": {"/b": ""}}, "metadata.labels"),
        ({"name": "a", "labels": {"b": "c" * 64}}, "metadata.labels"),
        ({"name": "a", "labels": {"b" * 64: ""}}, "metadata.labels"),
        ({"name": "a", "annotations": {"": ""}}, "metadata.annotations"),
        ({"name": "a", "finalizers": ["-"]}, "metadata.finalizers"),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}, "metadata.finalizers"),
        ({"name": "a", "ownerReferences": [{}]}, "metadata.ownerReferences.uid"),
        (
            {"name": "a", "ownerReferences": TWO_CONTROLLERS},
            "metadata.ownerReferences",
        ),
    ],
)  # fmt: skip
def test_metadata_that_is_refused(metadata, field):
    """With the field."""
    assert field in [cause.field for cause in judge(CONFIG_MAP, {"metadata": metadata})]


def test_what_of_metadata_is_for_life():
    """Name, namespace, uid, when it is deleted; and no new finalizers once it is going. Each is told twice."""
    old = freeze(
        {"metadata": {"name": "a", "namespace": "n", "uid": "u", "deletionTimestamp": "t", "finalizers": ["x/a"]}}
    )
    new = {"metadata": {"name": "b", "namespace": "m", "uid": "v", "finalizers": ["x/a", "x/b"]}}
    names = ("name", "namespace", "uid", "deletionTimestamp", "finalizers")
    found = [cause.field for cause in judge_change(CONFIG_MAP, new, old)]
    assert found == [f"metadata.{name}" for name in names for _ in range(2)]
    assert [*judge_change(CONFIG_MAP, dict(old), old)] == []


@pytest.mark.parametrize(
    ("kind", "created", "updated", "status"),
    [
        (CONFIG_MAP, 1, 2, None),
        (POD, 1, 2, 1),
        (NODE, 1, 2, 1),
        (DEPLOYMENT, 1, 1, 1),
        (ROLE, 1, 2, None),
        (LEASE, 0, 0, None),
        (EVENT, 0, 0, None),
        (DISRUPTION_BUDGET, 0, 0, 0),
    ],
)
def test_finalizers_without_a_domain_are_told_as_often_as_a_kind_looks(kind, created, updated, status):
    """Each kind's own validation is another; some do not look at all."""
    new = {"metadata": {"name": "a", "finalizers": ["bad"]}}
    old = freeze({"metadata": {"name": "a"}})
    assert len([*judge(kind, new), *judge_generally(new)]) == created
    assert len([*judge_change(kind, new, old)]) == updated
    if status is not None:
        assert len([*judge_change(kind, new, old, status=True)]) == status


def test_labels_of_every_kind_are_judged():
    """By the server, if not by the kind."""
    new = {"metadata": {"name": "a", "labels": {"a b": "c"}}}
    old = freeze({"metadata": {"name": "a"}})
    assert [*judge(EVENT, new)] == []
    assert len([*judge_generally(new)]) == 1
    assert len([*judge_change(EVENT, new, old)]) == 2
    assert len([*judge_change(CONFIG_MAP, new, old)]) == 4
    assert len([*judge_change(POD, new, old, status=True)]) == 3
