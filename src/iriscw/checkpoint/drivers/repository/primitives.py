"""Signatures and ciphers of a repository, by the package ``cryptography``, which comes with the extra ``protection``.

No other module knows that package. Keys are what OpenSSL writes: ``openssl genpkey -algorithm ed25519``,
``openssl rand -base64 32``.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from typing import TYPE_CHECKING, Final

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.repository.hiding import (
    KEY_BYTES,
    MORE_BYTES,
    NONCE_BYTES,
    Clear,
    NotOurs,
    Purpose,
    derived_key,
    name_tag,
    secret_key_id,
)
from iriscw.checkpoint.repository.signatures import Holds, public_key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


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


MAX_CIPHERS: Final = 1024
"""Derived keys that are held ready: a checkpoint shares chunks with a few others."""


@attrs.frozen
class AesGcmKey:
    """A key of 32 bytes; see :class:`~iriscw.checkpoint.repository.hiding.RepositoryKey`. Threads may share it."""

    _master: bytes = attrs.field(repr=False)
    key: str = attrs.field(init=False, default=attrs.Factory(lambda self: secret_key_id(self._master), takes_self=True))
    _ciphers: dict[tuple[Purpose, str], AESGCM] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def hide(self, purpose: Purpose, attempt: str, clear: Clear, about: bytes) -> bytes:
        """See the protocol."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher(purpose, attempt).encrypt(nonce, clear, about)

    def show(self, purpose: Purpose, attempt: str, hidden: Clear, about: bytes) -> bytes:
        """See the protocol."""
        from cryptography.exceptions import InvalidTag

        if len(hidden) < MORE_BYTES:
            raise NotOurs("it is too short")
        try:
            return self._cipher(purpose, attempt).decrypt(bytes(hidden[:NONCE_BYTES]), hidden[NONCE_BYTES:], about)
        except InvalidTag as error:
            raise NotOurs("its tag is another one") from error

    def tag(self, name: str) -> str:
        """See the protocol."""
        return name_tag(self._master, name)

    def _cipher(self, purpose: Purpose, attempt: str) -> AESGCM:
        found = self._ciphers.get((purpose, attempt))
        if found is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            if len(self._ciphers) >= MAX_CIPHERS:
                self._ciphers.clear()
            found = self._ciphers[purpose, attempt] = AESGCM(derived_key(self._master, purpose, attempt))
        return found


def secret_keys_of(text: bytes, where: str) -> tuple[AesGcmKey, ...]:
    """Return the keys of a file: 32 bytes on each line, base64.

    Raises:
        InvalidKey: it has none, or something else as well.
        ProtectionExtraMissing: the package is not installed.
    """
    check_installed()
    found = []
    for line in text.split():
        try:
            master = base64.b64decode(line, validate=True)
        except binascii.Error:
            master = b""
        if len(master) != KEY_BYTES:
            raise InvalidKey(f"{where} has a line that is not {KEY_BYTES} bytes in base64: openssl rand -base64 32")
        found.append(AesGcmKey(master))
    if not found:
        raise InvalidKey(f"{where} has no key: openssl rand -base64 32")
    return tuple(found)


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
