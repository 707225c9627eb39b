"""Names of jobs: what ``/jobs`` is asked about them.

A job's *namespace* is the id of the job at the top of its parents: a job without a parent has one of its own, and all
that descends from it shares it. In a namespace a name has one job at most that has not ended. Jobs without a parent
have their names at the top, too, where each of them is unique.
"""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class FindNames:
    """Give a :class:`NamesFound`: the jobs that have not ended and have a name in a namespace.

    Args:
        namespace: the id of a job without a parent; empty: the top, where such jobs have their names.
        name: this very name; empty: all of them.
        after: where the last page ended; -1: from the start.
        limit: how many at most.
    """

    namespace: str = ""
    name: str = ""
    after: int = -1
    limit: int = 100


@message
class NamedJob:
    """A job that has a name."""

    job_id: str
    uid: str
    name: str
    namespace: str
    replicas: int
    ports: tuple[str, ...]


@message
class NamesFound:
    """The answer. ``next`` goes into the next question; -1: there are no more."""

    rows: tuple[NamedJob, ...]
    next: int


@message
class FindNamespace:
    """Give the namespace of a job, ended or not, as a text; it is empty if there is no such job."""

    job_id: str
