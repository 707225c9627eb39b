"""The way to a cluster: where its API server is, whom to trust there, and who we are.

Theory of operation. Three ways, and the first that is named is taken: a kubeconfig file and one of its contexts, the
files that ``KUBECONFIG`` names, the service account of the pod that we run in. Nothing is guessed beyond that: a
controller that found somebody's ``~/.kube/config`` would act on the wrong cluster.

TLS certificates are always verified. Plain HTTP is taken on loopback only, where nobody listens in.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from iriscw.cloud.drivers.kube.credentials import Credentials, InvalidAccess, NoAccess, read_small, token_file
from iriscw.rpc.proxies import proxy_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token, the authority and the namespace of a pod's service account."""

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"

AUTHORITY_BYTES = 2**20
"""Of a file with certificates: the bundles of whole distributions have 250 KiB."""

NAMESPACE_BYTES = 2**10
"""Of the file that names the pod's namespace, which has at most 63 characters."""


class InsecureAccess(InvalidAccess):
    """The configuration asks for a connection that others could read or answer."""


@attrs.frozen
class ClusterAccess:
    """The way to a cluster.

    Attributes:
        url: Of the API server, without a trailing slash. Its path may hold a secret, so it is not shown.
        credentials: Who we are.
        tls: Whom to trust; None for plain HTTP.
        tls_name: The name in the server's certificate, where it is not the one in ``url``.
        proxy: The URL of an HTTP proxy in between; it may hold a password.
        namespace: What the configuration names, or empty.
        in_pod: Whether it is that of the pod that we run in.
    """

    url: str = attrs.field(repr=False)
    credentials: Credentials = attrs.field(repr=False)
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    tls_name: str | None = None
    proxy: str | None = attrs.field(default=None, repr=False)
    namespace: str = ""
    in_pod: bool = False

    @property
    def server(self) -> str:
        """Scheme, host and port: what may be shown of the URL."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def checked_url(text: str) -> str:
    """Return the URL of an API server as it is used.

    Raises:
        InvalidAccess: it is none.
        InsecureAccess: it is not HTTPS, and not on loopback.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidAccess("the server's address is not a plain http or https URL")
    if parts.scheme == "http" and not is_loopback(host):
        raise InsecureAccess(f"the server {host} is reached by plain HTTP: it would receive the token in plain text")
    return f"{parts.scheme}{text[len(parts.scheme) :]}".rstrip("/")  # the scheme may stand there in capitals


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and stays so whatever a name server says."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the HTTP proxy that the environment names for a server (``HTTPS_PROXY``, ``NO_PROXY``), as Go does it.

    Raises:
        InvalidAccess: it is no HTTP proxy.
    """
    named = proxy_of(url, environ)
    return None if named is None else checked_proxy(named)


def checked_proxy(text: str) -> str:
    """Return the URL of a proxy as it is used; without a scheme it is HTTP, as in Go.

    Raises:
        InvalidAccess: it is no HTTP proxy.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidAccess("the proxy's address is not a plain http or https URL")
    return url


def trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return a TLS context that trusts one authority (PEM), or the machine's.

    Raises:
        InvalidAccess: the authority is not a certificate.
    """
    try:
        return ssl.create_default_context(cadata=None if authority is None else str(authority, "ascii"))
    except (ssl.SSLError, ValueError) as problem:
        raise InvalidAccess(f"the certificate authority cannot be used ({type(problem).__name__})") from None


async def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """Return the way that each pod has: the service account's token, which the kubelet rotates.

    Args:
        environ: Says where the API server is.
        folder: Where the service account is mounted.

    Raises:
        NoAccess: we do not run in a pod.
        InvalidAccess: its service account cannot be used.
    """
    host, port = environ.get(HOST, ""), environ.get(PORT, "")
    if not host or not port:
        raise NoAccess(f"this is not a pod: {HOST} and {PORT} are not set; and no kubeconfig is named")
    url = checked_url(f"https://{f'[{host}]' if ':' in host else host}:{port}")
    authority = read_small(folder / "ca.crt", AUTHORITY_BYTES)
    namespace = folder / "namespace"
    return ClusterAccess(
        url,
        await token_file(folder / "token"),
        trusting(authority),
        proxy=proxy_for(url, environ),
        namespace=str(read_small(namespace, NAMESPACE_BYTES), "utf-8", "replace").strip() if namespace.exists() else "",
        in_pod=True,
    )


async def find_access(
    kubeconfig: Path | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> ClusterAccess:
    """Return the way to the cluster: by a file, by what ``KUBECONFIG`` names, or as a pod.

    Args:
        kubeconfig: A kubeconfig file.
        context: One of its contexts; by default its current one.
        environ: Where to look for ``KUBECONFIG`` and for the pod's service.

    Raises:
        NoAccess: there is none.
        InvalidAccess: it cannot be used as it is written.
        InsecureAccess: it is not protected by TLS.
    """
    from iriscw.cloud.drivers.kube.kubeconfig import from_kubeconfig

    if kubeconfig is not None:
        return await from_kubeconfig((kubeconfig,), context, environ)
    named = tuple(Path(each) for each in environ.get(KUBECONFIG, "").split(os.pathsep) if each)
    if named:
        return await from_kubeconfig(named, context, environ)
    if context is not None:
        raise InvalidAccess(f"there is no kubeconfig to look up the context {context!r} in: set {KUBECONFIG}")
    return await in_cluster(environ)
