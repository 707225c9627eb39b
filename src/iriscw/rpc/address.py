"""Addresses as people write them: ``host:port``, ``http://host:port``, ``[::1]:port``, ``https://host``,
``unix:/path``.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

import attrs

from iriscw.rpc.errors import InvalidAddress

DEFAULT_PORT = 10000
"""The controller's port, used where an address names none."""

MAX_UNIX_PATH_BYTES = 107
"""The kernel's limit (``sun_path``, with its closing zero)."""

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]+)?")


@attrs.frozen
class Address:
    """Where a server listens: a host and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    """Whether the text asked for TLS (``https://``)."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address.

        Raises:
            InvalidAddress: the text is none; it is quoted in the error.
        """
        if text.startswith("unix:"):
            return cls(path=_unix_path(text))
        if not text.isprintable():  # urlsplit drops line feeds and tabs in silence
            raise InvalidAddress(f"{text!r} is not an address: it holds unprintable characters")
        try:
            parts = urlsplit(text if "://" in text else f"//{text}", scheme="http")
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise InvalidAddress(f"{text!r} is not an address: {error}") from error
        if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or _has_more(parts):
            raise InvalidAddress(f"{text!r} is not an address: write host:port, http://host:port or unix:/path")
        if port == 0:
            raise InvalidAddress(f"{text!r} is not an address: the port must be between 1 and 65535")
        return cls(host=host, port=DEFAULT_PORT if port is None else port, tls=parts.scheme == "https")

    @property
    def is_unix(self) -> bool:
        """Whether this is a unix socket."""
        return bool(self.path)

    @property
    def is_loopback(self) -> bool:
        """Whether nothing sent here leaves the machine. A name other than ``localhost`` is taken for another
        machine.
        """
        return self.is_unix or self.host == "localhost" or is_loopback(self.host)

    def __str__(self) -> str:
        """The address as :meth:`parse` reads it."""
        if self.is_unix:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}" if self.tls else f"{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a literal loopback address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _unix_path(text: str) -> str:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if not path.startswith("/") or "\0" in path:
        raise InvalidAddress(f"{text!r} is not an address: a unix socket is written unix:/absolute/path")
    if len(path.encode()) > MAX_UNIX_PATH_BYTES:
        raise InvalidAddress(f"{text!r} is too long: a unix socket's path has at most {MAX_UNIX_PATH_BYTES} bytes")
    return path


def _has_more(parts: SplitResult) -> bool:
    return parts.path not in ("", "/") or bool(parts.query or parts.fragment or parts.username or parts.password)
