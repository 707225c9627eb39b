"""TLS contexts from certificate files: 1.2 or later, and for clients always a verified host name."""

from __future__ import annotations

import ssl
from pathlib import Path

from iriscw.rpc.errors import InvalidTls

_ALPN = ["http/1.1", "h2"]
"""What a server speaks, best first. Who speaks gRPC offers h2 alone; who offers both (a kubelet's probes, Prometheus,
browsers) wants a page, and pages are HTTP/1.1."""


def server_tls(certificate: Path, key: Path, *, client_authority: Path | None = None) -> ssl.SSLContext:
    """Make the TLS side of a server.

    Args:
        certificate: PEM file with the server's certificate and the chain below its authority.
        key: PEM file with its private key, without a passphrase.
        client_authority: PEM file; given, only clients with a certificate of this authority are let in (and
            still need a token).

    Raises:
        InvalidTls: a file is missing or does not hold what it should.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    _load_pair(context, certificate, key)
    if client_authority is not None:
        _load_authority(context, client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(
    *, authority: Path | str | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Make the TLS side of a channel.

    Args:
        authority: PEM file with the authority to trust instead of the system's, or its text. A server's own certificate
            will do: then that one alone is trusted.
        certificate: PEM file with the client's own certificate, for servers that ask for one.
        key: PEM file with its private key; None if it stands in the certificate's file.

    Raises:
        InvalidTls: a file is missing or does not hold what it should.
    """
    context = ssl.create_default_context() if authority is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if authority is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authority(context, authority)
    if certificate is not None:
        _load_pair(context, certificate, key or certificate)
    return context


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def no_passphrase() -> str:  # without this OpenSSL would ask on the terminal
        raise InvalidTls(f"the key {key} has a passphrase; give one without")

    try:
        context.load_cert_chain(certificate, key, no_passphrase)
    except (OSError, ssl.SSLError) as error:
        raise InvalidTls(f"certificate {certificate} with key {key} cannot be used: {error}") from error


def _load_authority(context: ssl.SSLContext, authority: Path | str) -> None:
    try:
        if isinstance(authority, Path):
            context.load_verify_locations(authority)
        else:
            context.load_verify_locations(cadata=str(authority.encode("ascii"), "ascii"))
    except (OSError, ssl.SSLError, ValueError) as error:
        which = authority if isinstance(authority, Path) else "as a text"
        raise InvalidTls(f"authority {which} cannot be used: {error}") from error
