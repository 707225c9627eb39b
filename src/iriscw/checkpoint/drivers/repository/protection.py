"""A machine's keys for a repository: it signs what it stores, and refuses what nobody has signed that it trusts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.repository.model import HeadSignature, SignedHead
from iriscw.checkpoint.repository.signatures import MAX_SIGNATURES, Holds, check_signed, signed_text


class SigningKeyMissing(UsageError):
    """This machine fetches only what is signed, and has no key to sign what it is to store."""


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
        unprotected_too: whether a checkpoint without a signature is accepted all the same.
    """

    signer: Signer | None = attrs.field(default=None, repr=False)
    trusted: Mapping[str, Holds] = attrs.field(factory=dict, repr=False)
    unprotected_too: bool = False

    def check_head(self, found: SignedHead) -> None:
        """Refuse a head that no trusted key has signed.

        Raises:
            SignatureMissing, SignatureWrong: see :func:`~iriscw.checkpoint.repository.signatures.check_signed`.
        """
        if self.trusted:
            check_signed(found, self.trusted, unsigned_too=self.unprotected_too)

    def check_stores(self) -> None:
        """Refuse to store what this machine would not fetch.

        Raises:
            SigningKeyMissing: it would not.
        """
        if self.trusted and self.signer is None and not self.unprotected_too:
            raise SigningKeyMissing(
                "this machine fetches signed checkpoints only, and has no key to sign what it stores: --sign-with FILE"
            )

    def signatures(self, lines: bytes, others: Sequence[HeadSignature] = ()) -> tuple[HeadSignature, ...]:
        """Return the signatures of a head of these lines: this machine's, and those of other keys that it has."""
        if self.signer is None:
            return tuple(others)
        own = HeadSignature(self.signer.key, self.signer.sign(signed_text(lines)))
        return (own, *(each for each in others if each.key != own.key))[:MAX_SIGNATURES]

    def has_signed(self, found: SignedHead) -> bool:
        """Whether this machine's own key has signed a head, or there is none. The same text has the same signature."""
        return self.signer is None or self.signatures(found.lines)[0] in found.signatures


PLAIN: Final = Protection()
"""Nothing is signed, and nothing has to be."""
