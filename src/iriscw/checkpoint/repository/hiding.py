"""How what lies in a repository is encrypted: which key, which text goes with it. Pure.

Each checkpoint has one key, by its id. From it a key of its own is derived for each attempt and each :class:`Purpose`
(HMAC-SHA256), so what one derived key encrypts is bounded by what one attempt stores, and no nonce of 96 random bits
has to be unlike those of years. The cipher is AES-256-GCM; what is stored is the nonce, the encrypted bytes, and the
tag.

Beside what it encrypts each call names what belongs to it (``about``), which is compared and not stored: of a chunk its
row in the manifest, of a manifest and a head their lines that are not encrypted.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

from iriscw.checkpoint.model import KeyMissing
from iriscw.checkpoint.repository.model import Chunk, ChunkCodec

DERIVED: Final = b"iriscw repository key 1\0"
"""How the text begins that a key is derived with, with the version of what follows."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
MORE_BYTES: Final = NONCE_BYTES + 16
"""What is encrypted is longer by that: its nonce and its tag."""

_ABOUT_CHUNK: Final = struct.Struct("<32sIB")

Clear: TypeAlias = "bytes | memoryview"


class Purpose(enum.Enum):
    """What is encrypted."""

    CHUNK = b"chunk"
    MANIFEST = b"manifest"
    HEAD = b"head"


class NotOurs(ValueError):
    """What was to be decrypted was changed, or was encrypted for something else."""


class RepositoryKey(Protocol):
    """A key with its cipher."""

    @property
    def key(self) -> str:
        """Its id."""

    def hide(self, purpose: Purpose, attempt: str, clear: Clear, about: bytes) -> bytes:
        """Return bytes encrypted, longer by :data:`MORE_BYTES`; never twice the same."""
        ...

    def show(self, purpose: Purpose, attempt: str, hidden: Clear, about: bytes) -> bytes:
        """Return what was encrypted.

        Raises:
            NotOurs: it was not, by this key for this purpose and attempt, with this ``about``.
        """
        ...

    def tag(self, name: str) -> str:
        """Return a word for a name that tells nothing of it to whoever has not the key."""
        ...


Keys: TypeAlias = "Mapping[str, RepositoryKey]"
"""Those that a machine has, by their ids."""


def derived_key(master: bytes, purpose: Purpose, attempt: str) -> bytes:
    """Return the key of 32 bytes of one attempt, for one purpose."""
    return hmac.digest(master, DERIVED + purpose.value + b"\0" + attempt.encode(), hashlib.sha256)


def secret_key_id(master: bytes) -> str:
    """Return the id of a key of 32 bytes, hexadecimal; it tells nothing of the key."""
    return hmac.digest(master, DERIVED + b"id", hashlib.sha256)[:16].hex()


def name_tag(master: bytes, name: str) -> str:
    """Return a word for a name, hexadecimal: the same for the same name and key."""
    return hmac.digest(master, DERIVED + b"name\0" + name.encode(), hashlib.sha256)[:16].hex()


def about_chunk(digest: bytes, size_bytes: int, codec: ChunkCodec) -> bytes:
    """Return what belongs to an encrypted chunk."""
    return _ABOUT_CHUNK.pack(digest, size_bytes, codec)


def shown_chunk(key: RepositoryKey, chunk: Chunk, hidden: Clear) -> bytes:
    """Return what is stored of a chunk, decrypted.

    Raises:
        NotOurs: it was changed.
    """
    about = about_chunk(chunk.digest, chunk.size_bytes, chunk.place.codec)
    return key.show(Purpose.CHUNK, chunk.place.pack.partition("-")[0], hidden, about)


def key_among(keys: Keys, key: str, checkpoint: str) -> RepositoryKey:
    """Return the key of this id.

    Raises:
        KeyMissing: this machine has none.
    """
    if key not in keys:
        raise KeyMissing(f"checkpoint {checkpoint} in the repository is encrypted, and the key {key} is not here")
    return keys[key]
