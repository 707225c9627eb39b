"""Keys for tests of signed checkpoints in a repository, as OpenSSL writes them."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from iriscw.checkpoint.drivers.repository.primitives import signer_of, verifiers_of
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
