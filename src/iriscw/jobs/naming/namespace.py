"""Who has which name: answers from the registry. Pure.

Nothing is kept for this: a name is found as long as its job is there, so a restarted controller finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from iriscw.jobs.messages import MAX_PAGE
from iriscw.jobs.model import JobSpec, job_uid
from iriscw.jobs.naming.messages import FindNames, NamedJob, NamesFound


class NameHolder(Protocol):
    """A job, as far as its name goes."""

    @property
    def job_id(self) -> str:
        """Which one."""

    @property
    def order(self) -> int:
        """When it was submitted, before which others."""

    @property
    def spec(self) -> JobSpec:
        """As it was submitted."""

    @property
    def root(self) -> str:
        """Its namespace."""

    @property
    def ended(self) -> bool:
        """Whether its name is free again."""


def place_of(namespace: str, name: str) -> str:
    """Return where a name stands; in the empty namespace those of jobs without a parent. Names have no ``/``."""
    return f"{namespace}/{name}"


def holder(entries: Mapping[str, NameHolder], names: Mapping[str, str], namespace: str, name: str) -> NameHolder | None:
    """Return the job that has a name in a namespace: one that descends from its first job, or that job itself."""
    first = entries.get(namespace)
    if first is not None and first.spec.name == name and not first.ended:
        return first
    return entries.get(names.get(place_of(namespace, name), ""))


def find_names(
    entries: Mapping[str, NameHolder],
    names: Mapping[str, str],
    within: Mapping[str, Mapping[str, None]],
    question: FindNames,
) -> NamesFound:
    """Answer a question for names. ``within`` has the jobs of each namespace, in the order of submission."""
    if question.name:
        found = holder(entries, names, question.namespace, question.name)
        return NamesFound(() if found is None else (_named(found),), -1)
    rows: list[NamedJob] = []
    limit = min(max(question.limit, 1), MAX_PAGE)
    last = -1
    for job_id in within.get(question.namespace, ()):
        entry = entries[job_id]
        if entry.order > question.after and not entry.ended:
            if len(rows) == limit:
                return NamesFound(tuple(rows), last)
            rows.append(_named(entry))
            last = entry.order
    return NamesFound(tuple(rows), -1)


def _named(entry: NameHolder) -> NamedJob:
    spec = entry.spec
    return NamedJob(entry.job_id, job_uid(entry.job_id), spec.name, entry.root, spec.replicas, spec.ports)
