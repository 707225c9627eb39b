"""Secrets made of files."""

import base64

import pytest
from deploy_world import installed

from iriscw.deploy.errors import NoSecretMaterial
from iriscw.deploy.names import AUTHORITY_KEY, CONTROLLER_SECRET_KEYS
from iriscw.deploy.secrets import SENT, secret_manifests
from raised import that

FILES = {name: f"the {name}".encode() for name in (*SENT, "ca.key", "notes.txt")}


def data(manifest):
    """Return what a Secret holds."""
    return {name: base64.b64decode(text) for name, text in manifest.body["data"].items()}


def test_each_secret_has_its_keys():
    """What only the controller may know is apart from what all workers trust; the authority's own key stays home."""
    inside, authority, metrics = secret_manifests(installed(), FILES)
    assert inside.name == "Secret/iris-controller-secrets"
    assert data(inside) == {name: FILES[name] for name in CONTROLLER_SECRET_KEYS}
    assert authority.name == "Secret/iris-ca"
    assert data(authority) == {AUTHORITY_KEY: FILES[AUTHORITY_KEY]}
    assert metrics.name == "Secret/iris-metrics"
    assert data(metrics) == {"token": FILES["metrics-token"]}, "who scrapes needs to be shown nothing else"


def test_a_folder_without_a_token_for_metrics():
    """Of an earlier release: it does, unless Prometheus is to read with it."""
    files = {name: text for name, text in FILES.items() if name != "metrics-token"}
    inside, authority = secret_manifests(installed(), files)
    assert (inside.name, authority.name) == ("Secret/iris-controller-secrets", "Secret/iris-ca")
    assert "metrics-token" not in data(inside)
    with pytest.raises(NoSecretMaterial, check=that(comes_from="secrets.secret_manifests", names="metrics-token")):
        secret_manifests(installed({"service_monitor": True}), files)


@pytest.mark.parametrize("name", [name for name in SENT if name != "metrics-token"])
def test_nothing_may_be_missing(name):
    """The name is told, and the way to make it."""
    with pytest.raises(NoSecretMaterial, check=that(comes_from="secrets.secret_manifests", names=name)):
        secret_manifests(installed(), {each: text for each, text in FILES.items() if each != name})
    with pytest.raises(NoSecretMaterial, check=that(names=name)):
        secret_manifests(installed(), {**FILES, name: b""})


def test_without_tls_tokens_suffice():
    """No certificate is needed then, and no authority."""
    tokens = {name: FILES[name] for name in ("cluster-secret", "admin-token")}
    (only,) = secret_manifests(installed({"insecure_plaintext": True}), tokens)
    assert data(only) == tokens
