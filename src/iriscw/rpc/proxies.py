"""Which HTTP proxy the environment names for an address, by the rules of Go's clients. Pure.

What a cluster's machines have in ``NO_PROXY`` (``10.0.0.0/8,.svc,.cluster.local``) is written for kubectl, the kubelet
and containerd, which are Go's. Python's own library knows no networks there, so a controller in a pod would ask a
company's proxy for its API server. All clients here ask this module instead.

``NO_PROXY`` is a list with commas: ``*`` for all; an address; a network (``10.0.0.0/8``); a name, with those below it;
``.name`` or ``*.name``, those below alone; each with ``:port`` for that port only. Names match names, never addresses.
This machine (``localhost``, loopback) has no proxy. ``HTTPS_PROXY`` goes before ``https_proxy``, and ``ALL_PROXY`` is
not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}


def proxy_of(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy for a URL, as it is written; None: it is reached directly.

    Args:
        url: Of HTTP or HTTPS.
        environ: Has ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, in either case.
    """
    parts = urlsplit(url)
    proxy = _named(environ, f"{parts.scheme}_proxy") if parts.scheme in PORTS else ""
    host = (parts.hostname or "").strip().lower()
    if not proxy or not host or not _through(host, parts.port or PORTS[parts.scheme], _named(environ, "no_proxy")):
        return None
    return proxy


def _named(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _through(host: str, port: int, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    return not any(_matches(each.strip().lower(), host, address, port) for each in exceptions.split(","))


def _matches(pattern: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    if pattern == "*":
        return True
    if "/" in pattern:
        try:
            return address is not None and address in ip_network(pattern, strict=False)
        except ValueError:  # a name with a slash, which is nobody's
            return False
    name, its_port = _split(pattern)
    if not name or (its_port and its_port != str(port)):
        return False
    wanted = _address(name)
    if wanted is not None or address is not None:
        return wanted == address
    below = name.removeprefix("*")
    if below.startswith("."):
        return host.endswith(below)
    return host == below or host.endswith(f".{below}")


def _split(pattern: str) -> tuple[str, str]:
    """Return host and port; a bare IPv6 address has colons and no port."""
    if pattern.startswith("["):
        name, _, rest = pattern[1:].partition("]")
        return name, rest.removeprefix(":")
    name, colon, port = pattern.rpartition(":")
    return (name, port) if colon and ":" not in name else (pattern, "")


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


__all__ = ["proxy_of"]
