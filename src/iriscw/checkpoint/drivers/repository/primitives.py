"""The signatures of checkpoints in a repository, by the package ``cryptography`` of the extra ``protection``.

No other module knows that package. Keys are what OpenSSL writes: ``openssl genpkey -algorithm ed25519``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.repository.signatures import Holds, public_key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class ProtectionExtraMissing(UsageError):
    """Keys are given for a repository, and this Python has no package ``cryptography``."""


class InvalidKey(UsageError, ValueError):
    """A key file has not what it should have. The text says which file, and never what is in it."""


_PUBLIC_KEY: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----\s*", re.DOTALL)


@attrs.frozen
class Ed25519Signer:
    """A private key; see :class:`~iriscw.checkpoint.drivers.repository.protection.Signer`."""

    key: str
    _private: Ed25519PrivateKey = attrs.field(repr=False)

    def sign(self, text: bytes) -> bytes:
        """Return its signature of a text: 64 bytes, the same for the same text."""
        return self._private.sign(text)


def signer_of(pem: bytes, where: str) -> Ed25519Signer:
    """Return the private key of a file.

    Raises:
        InvalidKey: it has none, or one of another kind, or one with a password.
        ProtectionExtraMissing: the package is not installed.
    """
    check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the cause may quote what is secret
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise InvalidKey(f"{where} has no Ed25519 private key in PEM without a password: openssl genpkey makes one")
    return Ed25519Signer(public_key_id(private.public_key().public_bytes_raw()), private)


def verifiers_of(pem: bytes, where: str) -> dict[str, Holds]:
    """Return what verifies by each public key of a file, by the key's id.

    Raises:
        InvalidKey: it has none, or something else as well.
        ProtectionExtraMissing: the package is not installed.
    """
    check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found: dict[str, Holds] = {}
    rest = _PUBLIC_KEY.sub(b"", pem)
    for block in _PUBLIC_KEY.findall(pem):
        public: object
        try:
            public = load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm):
            public = None
        if not isinstance(public, Ed25519PublicKey):
            raise InvalidKey(f"{where} has a public key that is not Ed25519")
        found[public_key_id(public.public_bytes_raw())] = _holds(public)
    if not found or rest.strip():
        raise InvalidKey(f"{where} has to have Ed25519 public keys in PEM, and nothing else: openssl pkey -pubout")
    return found


def _holds(public: Ed25519PublicKey) -> Holds:
    from cryptography.exceptions import InvalidSignature

    def holds(signature: bytes, text: bytes) -> bool:
        try:
            public.verify(signature, text)
        except InvalidSignature:
            return False
        return True

    return holds


def check_installed() -> None:
    """Refuse where the package is missing.

    Raises:
        ProtectionExtraMissing: it is.
    """
    try:
        import cryptography  # noqa: F401 - that it is there is all that is asked
    except ImportError as error:
        raise ProtectionExtraMissing(
            "keys of a repository need the package cryptography: pip install '.[protection]' in a checkout of iriscw"
        ) from error
