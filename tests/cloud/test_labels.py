"""Whose an object is, and which labels and names there can be."""

import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.labels import InvalidLabels, check_name, check_ours, is_name, our_labels
from iriscw.cloud.model import Conflict, InvalidSpec
from iriscw_sims.kube.selectors import is_label_key, is_label_value


def test_our_labels_say_whose_it_is():
    """Managed, and of the cluster, unless the specification says otherwise; in the order of their names."""
    assert list(our_labels("c", {"a": "1"}).items()) == [("a", "1"), ("iris-cluster", "c"), ("iris-managed", "true")]
    assert our_labels("c", {"iris-cluster": "d"})["iris-cluster"] == "d"


@given(st.text(max_size=70), st.text(alphabet="aA0-_./ é", max_size=70))
def test_what_passes_the_server_accepts(name, value):
    """A label that is not refused here is one that the API server accepts."""
    for key, each in ((name, value), (value, name)):
        try:
            our_labels("c", {key: each})
        except InvalidLabels:
            continue
        assert is_label_key(key)
        assert is_label_value(each)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"iris-managed": "true"},
        {"iris-cluster": "c"},
        {"iris-managed": "false", "iris-cluster": "c"},
        {"iris-managed": "true", "iris-cluster": "d"},
        {"iris-managed": "true", "iris-cluster": "c", "iris-role": "controller"},
    ],
)
def test_what_is_not_ours_is_refused(labels):
    """INV-F2: unmanaged, of another cluster, or the controller's."""
    with pytest.raises(Conflict):
        check_ours("c", labels)


def test_what_is_ours_is_ours():
    """Whatever other role it has."""
    check_ours("c", {"iris-managed": "true", "iris-cluster": "c", "iris-role": "worker"})


@given(st.text(max_size=70))
def test_names_are_rfc_1123_labels(name):
    """Nothing that could leave its place in a path is a name."""
    if is_name(name):
        check_name(name)
        assert name.isascii()
        assert not {*name} & {*"/.%?# "}
    else:
        with pytest.raises(InvalidSpec):
            check_name(name)
