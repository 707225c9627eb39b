"""Keys for tests of signed and encrypted checkpoints in a repository, as OpenSSL writes them."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from iriscw.checkpoint.drivers.repository.primitives import secret_keys_of, signer_of, verifiers_of
from iriscw.checkpoint.drivers.repository.protection import Protection


def private_pem(number):
    """Return a private key: the same one for the same number."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(number):
    """Return the public key of :func:`private_pem`."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signing(own=None, trusted=(), **words):
    """Return the protection of a machine that signs with the key ``own`` and trusts those of these numbers."""
    signer = None if own is None else signer_of(private_pem(own), "own")
    found = {}
    for number in trusted:
        found.update(verifiers_of(public_pem(number), "trusted"))
    return Protection(signer, found, **words)


def secret_line(number):
    """Return a key to encrypt with, as a file has it: the same one for the same number."""
    return base64.b64encode(bytes([number]) * 32) + b"\n"


def encrypting(own=None, others=(), **words):
    """Return the protection of a machine that encrypts with the key ``own`` and has those of these numbers."""
    found = {number: secret_keys_of(secret_line(number), "keys")[0] for number in (*others, own) if number is not None}
    return Protection(own=found.get(own), keys={key.key: key for key in found.values()}, **words)


def both():
    """Return the protection of a machine that signs, trusts itself, and encrypts."""
    signed, encrypted = signing(1, (1,)), encrypting(1)
    return Protection(signed.signer, signed.trusted, encrypted.own, encrypted.keys)
