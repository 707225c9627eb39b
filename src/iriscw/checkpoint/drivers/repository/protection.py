"""A machine's keys for a repository, and what it does with them.

It signs and encrypts what it stores, and refuses what nobody has signed that it trusts, and what is not encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.drivers.repository.cutting import Cut
from iriscw.checkpoint.drivers.repository.encoding import Piece
from iriscw.checkpoint.model import ChunkDamaged, NotEncrypted
from iriscw.checkpoint.repository.hiding import (
    Keys,
    NotOurs,
    Purpose,
    RepositoryKey,
    about_chunk,
    key_among,
    shown_chunk,
)
from iriscw.checkpoint.repository.model import Chunk, HeadSignature, SignedHead
from iriscw.checkpoint.repository.signatures import MAX_SIGNATURES, Holds, check_signed, signed_text


class SigningKeyMissing(UsageError):
    """This machine fetches only what is signed, and has no key to sign what it is to store."""


class EncryptionKeyMissing(UsageError):
    """This machine fetches only what is encrypted, and has no key to encrypt what it is to store."""


class Signer(Protocol):
    """A private key."""

    @property
    def key(self) -> str:
        """The id of its public key."""

    def sign(self, text: bytes) -> bytes:
        """Return its signature of a text."""
        ...


@attrs.frozen
class Protection:
    """The keys of one machine.

    Attributes:
        signer: signs what is stored; None: nothing is signed.
        trusted: what verifies by each public key, by its id. If there are any, one of them must have signed a
            checkpoint, or nothing of it is read.
        own: encrypts what is stored; None: nothing is encrypted.
        keys: of what is encrypted, by their ids, ``own`` among them. If there are any, nothing is read of a checkpoint
            that is not encrypted.
        unprotected_too: whether a checkpoint without a signature, or without encryption, is accepted all the same.
    """

    signer: Signer | None = attrs.field(default=None, repr=False)
    trusted: Mapping[str, Holds] = attrs.field(factory=dict, repr=False)
    own: RepositoryKey | None = None
    keys: Keys = attrs.field(factory=dict)
    unprotected_too: bool = False

    @property
    def stores_plain(self) -> bool:
        """Whether a version that knows of neither signatures nor encryption can read what is stored."""
        return self.signer is None and self.own is None

    def check_head(self, found: SignedHead) -> None:
        """Refuse a head that no trusted key has signed, or whose checkpoint this machine cannot or may not read.

        Raises:
            SignatureMissing, SignatureWrong: see :func:`~iriscw.checkpoint.repository.signatures.check_signed`.
            KeyMissing: its key is not here.
            NotEncrypted: it has none, and it has to.
        """
        if self.trusted:
            check_signed(found, self.trusted, unsigned_too=self.unprotected_too)
        if found.key:
            key_among(self.keys, found.key, found.head.checkpoint)
        elif self.keys and not self.unprotected_too:
            raise NotEncrypted(
                f"checkpoint {found.head.checkpoint} in the repository is not encrypted, and this machine has keys"
            )

    def check_stores(self) -> None:
        """Refuse to store what this machine would not fetch.

        Raises:
            SigningKeyMissing, EncryptionKeyMissing: it would not.
        """
        if self.trusted and self.signer is None and not self.unprotected_too:
            raise SigningKeyMissing(
                "this machine fetches signed checkpoints only, and has no key to sign what it stores: --sign-with FILE"
            )
        if self.keys and self.own is None and not self.unprotected_too:
            raise EncryptionKeyMissing(
                "this machine fetches encrypted checkpoints only, and has no key to encrypt with: --encrypt-with FILE"
            )

    def signatures(self, lines: bytes, others: Sequence[HeadSignature] = ()) -> tuple[HeadSignature, ...]:
        """Return the signatures of a head of these lines: this machine's, and those of other keys that it has."""
        if self.signer is None:
            return tuple(others)
        own = HeadSignature(self.signer.key, self.signer.sign(signed_text(lines)))
        return (own, *(each for each in others if each.key != own.key))[:MAX_SIGNATURES]

    def hidden(self, cut: Cut, attempt: str) -> Cut:
        """Return a chunk that was cut as it is stored by an attempt: encrypted, if there is anything of it to store."""
        if self.own is None or not cut.stored:
            return cut
        about = about_chunk(cut.digest, cut.size_bytes, cut.codec)
        return attrs.evolve(cut, stored=self.own.hide(Purpose.CHUNK, attempt, cut.stored, about))

    def shown(self, key: str, chunk: Chunk, stored: Piece) -> Piece:
        """Return what is stored of a chunk of a checkpoint with this key, decrypted; without a key, as it is.

        Raises:
            ChunkDamaged: it was changed.
        """
        if not key:
            return stored
        pack = chunk.place.pack
        try:
            return shown_chunk(self.keys[key], chunk, stored)
        except NotOurs as error:
            raise ChunkDamaged(f"an encrypted chunk in pack {pack} of the repository was changed", pack) from error

    def program(self, name: str) -> str:
        """Return how the list of recent checkpoints names a program."""
        return name if self.own is None else self.own.tag(name)

    def trusts(self, found: SignedHead) -> bool:
        """Whether a key that this machine trusts has signed a head."""
        return any(each.key in self.trusted for each in self.not_wrong(found))

    def not_wrong(self, found: SignedHead) -> tuple[HeadSignature, ...]:
        """Return the signatures of a head without those of trusted keys that are of something else."""
        text = signed_text(found.lines)
        return tuple(
            each
            for each in found.signatures
            if each.key not in self.trusted or self.trusted[each.key](each.signature, text)
        )

    def has_signed(self, found: SignedHead) -> bool:
        """Whether this machine's own key has signed a head, or there is none. The same text has the same signature."""
        return self.signer is None or self.signatures(found.lines)[0] in found.signatures


PLAIN: Final = Protection()
"""Nothing is signed or encrypted, and nothing has to be."""
