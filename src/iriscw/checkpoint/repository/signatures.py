"""What the signatures of checkpoints in a repository are of, and what a machine accepts. Pure.

A signature is of the head of a checkpoint. The head has the checkpoint's id, the attempt and the SHA-256 of the
manifest; the manifest has the digest of each chunk, so one signature is of every byte that is fetched. What is signed
begins with :data:`SIGNED`, so that no other text that a key may ever sign is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from iriscw.checkpoint.model import SignatureMissing, SignatureWrong
from iriscw.checkpoint.repository.model import SignedHead

SIGNED: Final = b"iriscw repository head 1\0"
"""How the text begins that is signed, with the version of what follows."""

MAX_SIGNATURES: Final = 16
"""Of one head: keys that change one after the other."""

SIGNATURE_BYTES: Final = 64

Holds = Callable[[bytes, bytes], bool]
"""Whether a signature is of a text, by one public key: ``holds(signature, text)``."""


def public_key_id(raw: bytes) -> str:
    """Return the id of a public key of 32 bytes: the first 16 bytes of its SHA-256, hexadecimal."""
    return hashlib.sha256(raw).hexdigest()[:32]


def signed_text(lines: bytes) -> bytes:
    """Return the text that is signed for a head of these lines."""
    return SIGNED + lines


def check_signed(found: SignedHead, trusted: Mapping[str, Holds], *, unsigned_too: bool) -> None:
    """Refuse a head that no trusted key has signed.

    Args:
        found: the head.
        trusted: what verifies by each trusted key, by its id.
        unsigned_too: whether one that has no signature of a trusted key is accepted. A wrong one never is.

    Raises:
        SignatureMissing: it has no signature of a trusted key.
        SignatureWrong: it has one, which is not of this head.
    """
    text, checkpoint = signed_text(found.lines), found.head.checkpoint
    wrong = []
    for each in found.signatures:
        if each.key in trusted:
            if trusted[each.key](each.signature, text):
                return
            wrong.append(each.key)
    if wrong:
        raise SignatureWrong(
            f"checkpoint {checkpoint} in the repository has a wrong signature of the key {wrong[0]}: it was changed "
            "after it was signed, or the signature is that of another checkpoint"
        )
    if not unsigned_too:
        others = ", ".join(each.key for each in found.signatures)
        raise SignatureMissing(
            f"checkpoint {checkpoint} in the repository is not signed by a key that this machine trusts"
            + (f", but by {others}" if others else "")
        )
