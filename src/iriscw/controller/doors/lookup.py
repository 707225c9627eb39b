"""Finds jobs by their names, as the registry has them: in a namespace, and by paths.

A path is absolute: ``/NAME`` is a job without a parent, ``/TOP/NAME`` a job in the namespace of one, which is written
as its name, or as its id: that works after its end, too, since what is detached goes on there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.controller.events import name_key
from iriscw.jobs.errors import NameAmbiguous, NoSuchJob
from iriscw.jobs.messages import MAX_PAGE, JobPage, JobRow, ListJobs
from iriscw.jobs.model import JOB_TERMINAL, MAX_NAME_LENGTH, JobState
from iriscw.jobs.naming.messages import FindNames, FindNamespace, NamedJob, NamesFound

JOB_ID = re.compile(r"job-[a-z2-7]{12}")
"""As the registry gives them."""

MAX_TOLD = 5
"""Jobs of one name that an error lists."""

LIVE = tuple(state for state in JobState if state not in JOB_TERMINAL)

Ask = Callable[[str, Any], Awaitable[Any]]


@attrs.frozen
class Place:
    """Where a name is looked for: ``top`` is the first part of a path, or empty; ``namespace`` the id of one."""

    top: str
    namespace: str
    name: str


@attrs.frozen
class Found:
    """What a look at a place gives.

    Args:
        job: who is there; None: nobody.
        namespace: which it is; empty: the top, or nobody knows yet.
        keys: by which news of it are waited for.
    """

    job: NamedJob | None
    namespace: str
    keys: tuple[str, ...]


def place_of(name: str, namespace: str) -> Place:
    """Read a name that is one of a namespace, or a path.

    Raises:
        InvalidArgument: it is neither, or no job can have it.
    """
    parts = name.split("/")
    if not name.isprintable() or any(len(part) > MAX_NAME_LENGTH for part in parts):  # it would be waited for in vain
        raise InvalidArgument(f"{name!r:.200} is a name that no job can have")
    if len(parts) == 1 and name:
        return Place("", namespace, name)
    if not name.startswith("/") or len(parts) > 3 or not all(parts[1:]):
        raise InvalidArgument(f"{name!r:.200} is neither a name nor a path such as /NAME or /TOP/NAME")
    if len(parts) == 2:
        return Place("", "", parts[1])
    if JOB_ID.fullmatch(parts[1]):
        return Place("", parts[1], parts[2])
    return Place(parts[1], "", parts[2])


class Lookup:
    """Asks the registry.

    Args:
        ask: asks an actor, by its path.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def page(self, namespace: str, after: int, limit: int) -> NamesFound:
        """Return a page of all names of a namespace."""
        found: NamesFound = await self._ask("/jobs", FindNames(namespace, "", after, limit))
        return found

    async def holder(self, namespace: str, name: str) -> NamedJob | None:
        """Return the job that has not ended and has this name there."""
        found: NamesFound = await self._ask("/jobs", FindNames(namespace, name))
        return found.rows[0] if found.rows else None

    async def find(self, place: Place) -> Found:
        """Look at a place."""
        if not place.top:
            found = await self.holder(place.namespace, place.name)
            return Found(found, place.namespace, (name_key(place.namespace, place.name),))
        top = await self.holder("", place.top)
        if top is None:
            return Found(None, "", (name_key("", place.top),))
        found = await self.holder(top.job_id, place.name)
        return Found(found, top.job_id, (name_key("", place.top), top.job_id, name_key(top.job_id, place.name)))

    async def namespace(self, job_id: str) -> str:
        """Return the namespace of a job.

        Raises:
            NoSuchJob: there is no such job.
        """
        found: str = await self._ask("/jobs", FindNamespace(job_id))
        if not found:
            raise NoSuchJob(f"there is no job {job_id!r}")
        return found

    async def named(self, name: str, namespace: str = "") -> str:
        """Return the id of the job that somebody names: the one that has not ended, or the latest of the name.

        Args:
            name: one, or a path.
            namespace: where a name is looked for; empty: in all of them.

        Raises:
            InvalidArgument: it begins like a path and is none.
            NoSuchJob: there is none of this name.
            NameAmbiguous: several that have not ended have it, in different namespaces.
        """
        place = place_of(name, namespace) if name.startswith("/") else Place("", namespace, name)
        if name.startswith("/") and (place.namespace or place.top):
            place = Place("", place.namespace or (await self.find(place)).namespace, place.name)
            if not place.namespace:
                raise NoSuchJob(f"there is no job {name!r}")
        only_top = name.startswith("/") and not place.namespace
        rows = await self._rows(place, LIVE, only_top=only_top)
        places = dict.fromkeys(map(_path, rows))  # of two that follow each other under one name the latest is meant
        if len(places) > 1:
            paths = ", ".join([*places][:MAX_TOLD])
            raise NameAmbiguous(f"{len(places)} jobs are called {name!r}: give an id, or one of the paths {paths}")
        rows = rows or await self._rows(place, (), only_top=only_top)
        if not rows:
            raise NoSuchJob(f"there is no job {name!r}")
        return rows[0].job_id

    async def _rows(self, place: Place, states: tuple[JobState, ...], *, only_top: bool) -> list[JobRow]:
        """Return all jobs that have, or had, a name in a namespace, or in all of them, latest first."""
        rows: list[JobRow] = []
        after = ""
        while True:
            page: JobPage = await self._ask("/jobs", ListJobs(after, MAX_PAGE, states, place.name, place.namespace))
            rows += [row for row in page.rows if row.namespace == row.job_id or not only_top]
            after = page.next
            if not after:
                return rows


def _path(row: JobRow) -> str:
    return f"/{row.name}" if row.namespace == row.job_id else f"/{row.namespace}/{row.name}"
