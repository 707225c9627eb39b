"""Paths, taken apart."""

import pytest

from iriscw_sims.kube.paths import Route, route


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/api/v1/pods", Route("", "v1", "pods")),
        ("/api/v1/namespaces/a/pods", Route("", "v1", "pods", "a")),
        ("/api/v1/namespaces/a/pods/b", Route("", "v1", "pods", "a", "b")),
        ("/api/v1/namespaces/a/pods/b/status", Route("", "v1", "pods", "a", "b", "status")),
        ("/api/v1/namespaces", Route("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", Route("", "v1", "namespaces", "a", "a")),
        ("/api/v1/namespaces/a/status", Route("", "v1", "namespaces", "a", "a", "status")),
        ("/api/v1/namespaces/a/finalize", Route("", "v1", "namespaces", "a", "a", "finalize")),
        ("/apis/apps/v1/deployments", Route("apps", "v1", "deployments")),
        ("/apis/g.dev/v1/nodepools/p/status", Route("g.dev", "v1", "nodepools", "", "p", "status")),
    ],
)
def test_resource_paths(path, wanted):
    """Group, version, resource, namespace, name, subresource."""
    assert route(path) == wanted


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/readyz", "/api/v1//pods", "/api/v1/a/b/c/d"]
)
def test_other_paths(path):
    """What cannot name a resource names none."""
    assert route(path) is None
