"""Paths of objects, by their manifests."""

import pytest

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.model import InvalidSpec


def manifest(version, kind, name="a", **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (manifest("v1", "Namespace"), "/api/v1/namespaces/a"),
        (manifest("v1", "Secret", namespace="n"), "/api/v1/namespaces/n/secrets/a"),
        (manifest("v1", "Secret"), "/api/v1/namespaces/default/secrets/a"),
        (manifest("apps/v1", "Deployment", namespace="n"), "/apis/apps/v1/namespaces/n/deployments/a"),
        (manifest("compute.coreweave.com/v1alpha1", "NodePool"), "/apis/compute.coreweave.com/v1alpha1/nodepools/a"),
        (
            manifest("rbac.authorization.k8s.io/v1", "ClusterRole"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
        ),
    ],
)
def test_paths(given, path):
    """By group, version, kind, namespace and name."""
    assert path_of(given, "default") == path


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"metadata": None},
        manifest("", "Secret"),
        manifest("v1", "Secret", ""),
        manifest("v1", "Unheard"),
        manifest("v1", "Secret"),
    ],
)
def test_what_is_no_manifest(given):
    """Or one whose namespace nobody says."""
    with pytest.raises(InvalidSpec):
        path_of(given)
