"""What a collection does with what it found: which objects it marks, unmarks and removes. Pure.

An object that nothing refers to is marked by one pass and removed by a later one, which began to read manifests after
the mark was there. Whoever begins to refer to the object in between takes the mark away, so it is never removed under
whoever refers to it; see :mod:`iriscw.checkpoint.drivers.repository.storing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from iriscw.checkpoint.repository.keys import manifest_key, named_pack
from iriscw.checkpoint.repository.model import Tomb


@attrs.frozen
class StoredObjects:
    """What is in a repository, and what refers to what."""

    shown: Mapping[str, str]
    """The attempt that each checkpoint's head names, whether it can be seen or is being made."""
    begun: Mapping[str, tuple[str, int]]
    """Of heads whose attempt has not ended: the etag, and when it began."""
    manifests: Mapping[str, int]
    """Sizes in bytes, by key."""
    packs: Mapping[str, int]
    """Likewise."""
    referred: Mapping[str, None]
    """Packs that the manifests refer to that heads name."""
    again: Mapping[str, tuple[str, str, int]] = attrs.field(factory=dict)
    """Of heads that can be seen and whose checkpoint is stored anew: by which attempt, the etag, and when it began."""

    @property
    def kept_bytes(self) -> int:
        """Return what the packs take that something refers to."""
        return sum(size for key, size in self.packs.items() if named_pack(key) in self.referred)

    def size_of(self, key: str) -> int:
        """Return how large a pack or a manifest is."""
        return self.packs.get(key, self.manifests.get(key, 0))


@attrs.frozen
class Plan:
    """What a pass does."""

    mark: tuple[str, ...]
    """Keys of objects that nothing refers to."""
    unmark: tuple[Tomb, ...]
    """Marks beside objects that something refers to, or that are gone."""
    remove: tuple[Tomb, ...]
    """Marks of objects that nothing has referred to since the mark was there."""
    give_up: tuple[tuple[str, str], ...]
    """Checkpoints whose attempt began too long ago, with the etag of their head. If it lives it begins anew."""
    leave: tuple[tuple[str, str], ...] = ()
    """The same of checkpoints that can be seen, as they were before."""


def planned(marked: StoredObjects, tombs: Sequence[Tomb], *, now_wall_ns: int, grace_ns: int) -> Plan:
    """Decide what one pass does. ``tombs`` were read before anything of ``marked`` was."""
    shown = {manifest_key(checkpoint, attempt): None for checkpoint, attempt in marked.shown.items()}
    shown.update((manifest_key(name, attempt), None) for name, (attempt, _, _) in marked.again.items())
    dead = {key: None for key in marked.manifests if key not in shown}
    old = {name: None for name, (_, since) in marked.begun.items() if now_wall_ns - since >= grace_ns}
    going = {marked.shown[name]: None for name in marked.begun if name not in old}
    left = {name: None for name, (_, _, since) in marked.again.items() if now_wall_ns - since >= grace_ns}
    going.update((attempt, None) for name, (attempt, _, _) in marked.again.items() if name not in left)
    unreferred = (key for key in marked.packs if named_pack(key) not in marked.referred)
    dead.update((key, None) for key in unreferred if named_pack(key).partition("-")[0] not in going)
    before = {tomb.key: tomb for tomb in tombs}
    unmark: list[Tomb] = []
    remove: list[Tomb] = []
    for tomb in tombs:
        if tomb.key not in dead:
            there = tomb.key in marked.manifests or tomb.key in marked.packs
            if not there or not tomb.removing:  # a removal that began is brought to its end, whoever refers to it
                unmark.append(tomb)
            else:
                remove.append(tomb)
        elif tomb.removing or now_wall_ns - tomb.made_wall_ns >= grace_ns:
            remove.append(tomb)
    give_up = tuple((name, marked.begun[name][0]) for name in old)
    leave = tuple((name, marked.again[name][1]) for name in left)
    return Plan(tuple(key for key in dead if key not in before), tuple(unmark), tuple(remove), give_up, leave)
