"""One row for each checkpoint, wherever it lies. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iriscw.checkpoint.model import ArtifactCopy, ListedArtifact


def together(listed: Iterable[ListedArtifact]) -> list[ListedArtifact]:
    """Return each checkpoint once, as its first copy that can be used shows it, with all of its copies."""
    found: dict[str, list[ListedArtifact]] = {}
    for each in listed:
        found.setdefault(each.artifact, []).append(each)
    return [_one(copies) for copies in found.values()]


def _one(copies: list[ListedArtifact]) -> ListedArtifact:
    shown = next((each for each in copies if each.manifest is not None), copies[0])
    lying = tuple(ArtifactCopy(each.tier, each.size_bytes, each.trouble, each.pinned_by) for each in copies)
    return attrs.evolve(shown, copies=lying)
