"""Which checkpoints a policy of retention lets go: one pure function, wherever it is applied.

The words are those of Kubernetes' checkpoint-restore-operator: at most so many checkpoints, and so many bytes of all of
them together, for each *group*, and none that is larger or older than a bound. A group is what has the same value of
one label, such as ``job``; without such a label it is all that was selected.

* The oldest go first, as many as it takes, and never more.
* What is *needed* stays, whatever the policy says: somebody uses it, or a suspended task consists of it. It takes its
  place all the same, so the others have less.
* What cannot be read stays: nobody knows how old it is, or whose.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.frozen
class RetentionPolicy:
    """What may stay. None: no bound."""

    max_checkpoints: int | None = None
    max_total_size_bytes: int | None = None
    max_checkpoint_size_bytes: int | None = None
    max_age_ms: int | None = None
    per: str = ""
    """The label by whose values the first two are counted; empty: all together."""

    @property
    def bounds(self) -> bool:
        """Whether it lets anything go at all."""
        limits = (self.max_checkpoints, self.max_total_size_bytes, self.max_checkpoint_size_bytes, self.max_age_ms)
        return any(limit is not None for limit in limits)


@attrs.frozen
class KeptCheckpoint:
    """A checkpoint as a policy sees it. ``size_bytes`` are those of all its copies."""

    checkpoint: str
    size_bytes: int
    sealed_at_ms: int
    """0: it cannot be read."""
    labels: tuple[tuple[str, str], ...] = ()
    needed: str = ""
    """Why it has to stay; empty if nobody needs it."""


@attrs.frozen
class Expired:
    """A checkpoint that the policy lets go, and why."""

    checkpoint: str
    why: str


def expired(candidates: Iterable[KeptCheckpoint], policy: RetentionPolicy, now_ms: int) -> list[Expired]:
    """Return what is to be deleted, the oldest of each group first."""
    groups: dict[str | None, list[KeptCheckpoint]] = {}
    for each in candidates:
        if each.sealed_at_ms:
            groups.setdefault(dict(each.labels).get(policy.per) if policy.per else None, []).append(each)
    return [gone for group in groups.values() for gone in _of_group(group, policy, now_ms)]


def _of_group(group: list[KeptCheckpoint], policy: RetentionPolicy, now_ms: int) -> list[Expired]:
    count, total = len(group), sum(each.size_bytes for each in group)
    gone = {each.checkpoint: why for each in group if (why := _alone(each, policy, now_ms))}
    count -= len(gone)
    total -= sum(each.size_bytes for each in group if each.checkpoint in gone)
    found = []
    for each in sorted(group, key=lambda one: (one.sealed_at_ms, one.checkpoint)):
        why = gone.get(each.checkpoint, "")
        if not why and not each.needed:
            why = _together(count, total, policy)
            if why:
                count, total = count - 1, total - each.size_bytes
        if why:
            found.append(Expired(each.checkpoint, why))
    return found


def _alone(each: KeptCheckpoint, policy: RetentionPolicy, now_ms: int) -> str:
    """Why it goes, whatever else there is."""
    if each.needed:
        return ""
    if policy.max_age_ms is not None and now_ms - each.sealed_at_ms > policy.max_age_ms:
        return "older than max-age"
    if policy.max_checkpoint_size_bytes is not None and each.size_bytes > policy.max_checkpoint_size_bytes:
        return "larger than max-checkpoint-size"
    return ""


def _together(count: int, total: int, policy: RetentionPolicy) -> str:
    """Why the oldest that is left goes."""
    if policy.max_checkpoints is not None and count > policy.max_checkpoints:
        return "beyond max-checkpoints"
    if policy.max_total_size_bytes is not None and total > policy.max_total_size_bytes:
        return "beyond max-total-size"
    return ""
