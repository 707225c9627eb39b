"""The built-in kinds as rows of data."""

import pytest

from iriscw_sims.kube.core_kinds import CORE_KINDS, LEASE, POD
from iriscw_sims.kube.meta import NAME_RULES


def test_the_kinds_that_are_needed_are_there():
    """Once each."""
    names = sorted(kind.kind for kind in CORE_KINDS)
    assert names == sorted({*names})
    assert {"Pod", "Node", "Namespace", "Lease", "Event", "CustomResourceDefinition", "ClusterRoleBinding"} < {*names}


@pytest.mark.parametrize("kind", CORE_KINDS, ids=lambda kind: kind.kind)
def test_a_row_is_consistent(kind):
    """Names rhyme, rules exist, what has a status has a type for it, and selectors read objects that lack all."""
    assert kind.plural.startswith(kind.singular[:-1])
    assert kind.kind.lower() == kind.singular
    assert kind.name_rule in NAME_RULES
    assert kind.schema is not None
    assert kind.status <= ("status" in kind.schema.fields)
    assert kind.generation <= ("spec" in kind.schema.fields)
    assert "metadata.name" in kind.fields
    assert kind.namespaced <= ("metadata.namespace" in kind.fields)
    assert all(isinstance(read({"metadata": {}}), str) for read in kind.fields.values())


def test_names_in_messages():
    """The core group has none."""
    assert (POD.api_version, POD.resource, POD.kind_of_list) == ("v1", "pods", "PodList")
    assert (LEASE.api_version, LEASE.resource) == ("coordination.k8s.io/v1", "leases.coordination.k8s.io")
