"""Label and field selectors."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.core_kinds import CONFIG_MAP, POD
from iriscw_sims.kube.refusals import Refused
from iriscw_sims.kube.selectors import EVERYTHING, is_label_key, is_label_value, parse, select as compiled


def select(kind, labels, fields):
    """Parse two selectors and compile them for a kind."""
    return compiled(kind, parse(labels, fields))


def item(labels=None, **more):
    """Return an object with labels."""
    return {"metadata": {"name": "n", "namespace": "s", **({"labels": labels} if labels else {})}, **more}


@pytest.mark.parametrize(
    ("selector", "labels", "wanted"),
    [
        ("a", {"a": "1"}, True), ("a", {}, False), ("!a", {}, True), ("!a", {"a": ""}, False),
        ("a=1", {"a": "1"}, True), ("a==1", {"a": "2"}, False), ("a=", {"a": ""}, True), ("a=", {}, False),
        ("a!=1", {}, True), ("a!=1", {"a": "1"}, False), ("a in (1, 2)", {"a": "2"}, True),
        ("a in ()", {"a": ""}, True), ("a in (1,)", {"a": ""}, True), ("a notin (1,2)", {}, True),
        ("a notin (1)", {"a": "1"}, False), ("a>1", {"a": "2"}, True), ("a>1", {"a": "x"}, False), ("a<1", {}, False),
        ("a=1,b!=2,!c", {"a": "1"}, True), ("x.dev/a in (b)", {"x.dev/a": "b"}, True), (" a = 1 ", {"a": "1"}, True),
    ],
)  # fmt: skip
def test_label_selectors(selector, labels, wanted):
    """Every operator, with and without the label."""
    assert select(POD, selector, "").matches(item(labels)) is wanted


@pytest.mark.parametrize(
    "selector", ["a=x=y", "a in", "a in (1", "=1", "a,", "a!", "a>x", "in (a)(", "a=_", "-a", "/a"]
)
def test_label_selectors_that_cannot_be_read(selector):
    """400, and never a guess."""
    with pytest.raises(Refused) as refused:
        select(POD, selector, "")
    assert refused.value.status["code"] == 400


def test_field_selectors():
    """Equal and not equal, missing compares as empty, and a name is an index."""
    pod = item(spec={"nodeName": "g1"}, status={"phase": "Running"})
    assert select(POD, "", "spec.nodeName=g1,status.phase!=Failed,status.podIP=").matches(pod)
    assert not select(POD, "", "spec.nodeName==g2").matches(pod)
    assert select(POD, "", "metadata.name=n").name == "n"
    assert select(POD, "", "metadata.name!=n").name == ""
    assert select(POD, "", "") is EVERYTHING


@pytest.mark.parametrize(
    ("kind", "selector", "said"),
    [
        (POD, "spec.hostname=a", "field label not supported: spec.hostname"),
        (CONFIG_MAP, "data.k=v", '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (POD, "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ],
)
def test_field_selectors_that_are_refused(kind, selector, said):
    """Unknown fields and unreadable terms are 400, in the server's words."""
    with pytest.raises(Refused) as refused:
        select(kind, "", selector)
    assert (refused.value.status["code"], refused.value.status["message"]) == (400, said)


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"]), max_size=3)


@given(LABELS, st.sampled_from("abc"), st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=2))
def test_opposite_selectors_part_everything(labels, key, values):
    """Law: in and notin, = and !=, a and !a select complements."""
    listed = ",".join(values)
    for one, other in (
        (f"{key} in ({listed})", f"{key} notin ({listed})"),
        (f"{key}=1", f"{key}!=1"),
        (key, f"!{key}"),
    ):
        assert select(POD, one, "").matches(item(labels)) != select(POD, other, "").matches(item(labels))


def test_label_keys_and_values():
    """Qualified names of at most 63 characters, with a DNS prefix or none."""
    assert is_label_key("a.b/c_D.e-1")
    assert not is_label_key("a_b/c")
    assert not is_label_key("a/" + "b" * 64)
    assert not is_label_key("")
    assert is_label_value("")
    assert is_label_value("a" * 63)
    assert not is_label_value("a" * 64)
    assert not is_label_value("-a")
