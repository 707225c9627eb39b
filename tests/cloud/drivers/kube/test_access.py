"""The way to a cluster: as a pod, by a file, by the environment; never without TLS beyond this machine."""

import json

import pytest
import trustme

from iriscw.cloud.drivers.kube.access import (
    ClusterAccess,
    InsecureAccess,
    checked_url,
    find_access,
    in_cluster,
    is_loopback,
    proxy_for,
    trusting,
)
from iriscw.cloud.drivers.kube.credentials import Fixed, InvalidAccess
from raised import that

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path):
    """What the kubelet mounts."""
    (tmp_path / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    (tmp_path / "token").write_text("CW-SECRET")
    (tmp_path / "namespace").write_text("iris")
    return tmp_path


async def test_in_a_pod(account):
    """Address, authority, token and namespace are where every pod has them."""
    access = await in_cluster(POD, account)
    assert (access.url, access.server, access.namespace) == ("https://10.0.0.1:443", "https://10.0.0.1:443", "iris")
    assert (await access.credentials.header()).reveal() == "Bearer CW-SECRET"
    assert access.tls.check_hostname
    assert len(access.tls.get_ca_certs()) == 1
    assert "CW-SECRET" not in repr(access)


async def test_in_a_pod_with_ipv6(account):
    """Addresses of IPv6 stand in brackets; a namespace is not everybody's."""
    (account / "namespace").unlink()
    access = await in_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account)
    assert (access.url, access.namespace) == ("https://[fd00::1]:443", "")


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "ca.crt", "token"])
async def test_not_in_a_pod(account, missing):
    """What is not there is named."""
    environ = {name: value for name, value in POD.items() if name != missing}
    if environ == POD:
        (account / missing).unlink()
    with pytest.raises(InvalidAccess, check=that(names=missing.partition(".")[0])):
        await in_cluster(environ, account)


async def test_an_authority_that_is_none(account):
    """Is refused at once, not when the first connection is made."""
    (account / "ca.crt").write_text("none")
    with pytest.raises(InvalidAccess, check=that(comes_from="access.trusting")):
        await in_cluster(POD, account)


@pytest.mark.parametrize(
    "url",
    ["", "h", "ftp://h", "https://", "https://u:p@h", "https://h?x=1", "https://h#x", "https://h:x", "https://[h"],
)
def test_what_is_no_address(url):
    """A password in it is refused, too: it would be shown."""
    with pytest.raises(InvalidAccess) as refused:
        checked_url(url)
    assert "u:p" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://10.0.0.1", "http://kubernetes.default.svc", "http://127.0.0.1.evil.example"])
def test_plain_http_is_for_loopback(url):
    """Elsewhere others would read the token."""
    with pytest.raises(InsecureAccess, check=that(comes_from="access.checked_url")):
        checked_url(url)


def test_addresses():
    """A path stays; the slash behind it goes."""
    assert checked_url("http://127.0.0.1:80/t/x/") == "http://127.0.0.1:80/t/x"
    assert checked_url("http://[::1]:80") == "http://[::1]:80"
    assert checked_url("https://h/k8s/clusters/c-1") == "https://h/k8s/clusters/c-1"
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example")


def test_what_is_shown_of_an_address():
    """Neither its path nor its proxy: both may hold secrets."""
    access = ClusterAccess("http://127.0.0.1:1/t/CW-SECRET", Fixed(), proxy="http://u:CW-SECRET@p")
    assert access.server == "http://127.0.0.1:1"
    assert "CW-SECRET" not in repr(access)


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"https_proxy": "http://p:1"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other,.example"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://u:p@p:1"}, "http://u:p@p:1"),
    ],
)
def test_proxies(environ, proxy):
    """As Go's programs find them."""
    assert proxy_for("https://api.example:443", environ) == proxy
    assert proxy_for("https://127.0.0.1", environ) is None
    assert proxy_for("http://127.0.0.1", environ) is None


@pytest.mark.parametrize("proxy", ["socks5://p:1", "http://", "p:x", "http://u:CW-SECRET@p:99999999"])
def test_proxies_that_cannot_be(proxy):
    """Are refused before anything is asked, and not quoted."""
    with pytest.raises(InvalidAccess, check=that(comes_from="access.checked_proxy")) as refused:
        proxy_for("https://api.example", {"HTTPS_PROXY": proxy})
    assert "CW-SECRET" not in str(refused.value)


def test_verification_is_always_on():
    """Names and certificates, whomever we trust."""
    for context in (trusting(None), trusting(trustme.CA().cert_pem.bytes())):
        assert context.check_hostname
        assert context.verify_mode.name == "CERT_REQUIRED"


async def test_where_it_is_looked_for(tmp_path, account, monkeypatch):
    """A file that is named, then KUBECONFIG, then the pod; nobody's home is looked into."""
    files = {}
    for name in ("named", "environment"):
        files[name] = tmp_path / name
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"https://{name}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "users": [],
            "current-context": "x",
        }
        files[name].write_text(json.dumps(config))
    environ = {**POD, "KUBECONFIG": str(files["environment"])}
    assert (await find_access(files["named"], environ=environ)).url == "https://named"
    assert (await find_access(environ=environ)).url == "https://environment"
    monkeypatch.setattr("iriscw.cloud.drivers.kube.access.in_cluster.__defaults__", (POD, account))
    assert (await find_access(environ=POD)).url == "https://10.0.0.1:443"
    with pytest.raises(InvalidAccess):
        await find_access(environ={"HOME": str(tmp_path)})
    with pytest.raises(InvalidAccess, check=that(names="KUBECONFIG")):
        await find_access(context="x", environ=POD)
