"""How the objects of a repository are called.

::

    format                               what a repository is, and which version of it
    packs/<attempt>-<number>             chunks, one after the other
    manifests/<checkpoint>/<attempt>     what a checkpoint consists of
    heads/<checkpoint>                   which attempt a checkpoint is: without it nobody sees the checkpoint
    recent                               the heads that were written last, for whoever looks for chunks to share
    tombs/<key>                          marks objects that nothing refers to
    damaged/<pack>                       says that a chunk of a pack was not what it should be: nobody shares it

No pack and no manifest is ever written twice: an attempt has a name of its own. What may be changed (a head, a mark,
``recent``) is changed on the condition that nobody else has changed it meanwhile.
"""

from __future__ import annotations

import re
from typing import Final

from iriscw.checkpoint.manifest import ARTIFACT_ID

FORMAT: Final = "format"
RECENT: Final = "recent"
PACKS: Final = "packs/"
MANIFESTS: Final = "manifests/"
HEADS: Final = "heads/"
TOMBS: Final = "tombs/"
DAMAGED: Final = "damaged/"

ATTEMPT: Final = re.compile(r"[0-9a-f]{24}")
"""96 random bits."""
KEY_ID: Final = re.compile(r"[0-9a-f]{32}")
PACK: Final = re.compile(r"([0-9a-f]{24})-[0-9]{1,8}")


def pack_key(pack: str) -> str:
    """Return the key of a pack."""
    return f"{PACKS}{pack}"


def packs_of(attempt: str) -> str:
    """Return how the keys of an attempt's packs begin."""
    return f"{PACKS}{attempt}-"


def manifest_key(checkpoint: str, attempt: str) -> str:
    """Return the key of an attempt's manifest."""
    return f"{MANIFESTS}{checkpoint}/{attempt}"


def head_key(checkpoint: str) -> str:
    """Return the key of a checkpoint's head."""
    return f"{HEADS}{checkpoint}"


def tomb_key(key: str) -> str:
    """Return the key of the mark beside an object."""
    return f"{TOMBS}{key}"


def damaged_key(pack: str) -> str:
    """Return the key that says that a pack is damaged."""
    return f"{DAMAGED}{pack}"


def named_pack(key: str) -> str:
    """Return the pack that a key is of; empty if it is of none."""
    name = key.removeprefix(PACKS)
    return name if key.startswith(PACKS) and PACK.fullmatch(name) else ""


def named_manifest(key: str) -> tuple[str, str]:
    """Return the checkpoint and the attempt that a key is the manifest of; two empty texts if of none."""
    checkpoint, _, attempt = key.removeprefix(MANIFESTS).partition("/")
    if key.startswith(MANIFESTS) and ARTIFACT_ID.fullmatch(checkpoint) and ATTEMPT.fullmatch(attempt):
        return checkpoint, attempt
    return "", ""


def named_head(key: str) -> str:
    """Return the checkpoint that a key is the head of; empty if of none."""
    name = key.removeprefix(HEADS)
    return name if key.startswith(HEADS) and ARTIFACT_ID.fullmatch(name) else ""
