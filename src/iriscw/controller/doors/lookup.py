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
from iriscw.jobs.model import JOB_TERMINAL
from iriscw.jobs.naming.messages import FindNames, FindNamespace, NamedJob, NamesFound

JOB_ID = re.compile(r"job-[a-z2-7]{12}")
"""As the registry gives them."""

MAX_TOLD = 5
"""Jobs of one name that an error lists."""

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
        InvalidArgument: it is neither.
    """
    parts = name.split("/")
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
        if name.startswith("/"):
            rows = await self._at(place_of(name, namespace))
        else:
            rows = await self._rows(name, namespace)
        live = {row.namespace: row for row in reversed(rows) if row.state not in JOB_TERMINAL}
        if len(live) > 1:
            paths = ", ".join(f"/{each.namespace}/{name}" for each in [*live.values()][:MAX_TOLD])
            raise NameAmbiguous(f"{len(live)} jobs are called {name!r}: give an id, or one of the paths {paths}")
        if not rows:
            raise NoSuchJob(f"there is no job {name!r}")
        return next(iter(live.values()), rows[0]).job_id

    async def _at(self, place: Place) -> tuple[JobRow, ...]:
        """Return the jobs that have, or had, a place, latest first."""
        if not place.namespace and not place.top:
            return tuple(row for row in await self._rows(place.name, "") if row.namespace == row.job_id)
        namespace = place.namespace or (await self.find(place)).namespace
        return await self._rows(place.name, namespace) if namespace else ()

    async def _rows(self, name: str, namespace: str) -> tuple[JobRow, ...]:
        page: JobPage = await self._ask("/jobs", ListJobs(limit=MAX_PAGE, name=name, namespace=namespace))
        return page.rows
