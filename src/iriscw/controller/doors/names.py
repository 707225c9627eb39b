"""Where hosted actors are found by name: a part of ControllerService.

A name is that of the actor's job, so nothing is registered and nothing is kept beside the jobs: a controller that was
restarted finds the same names. What is handed out is a capability for one job, by its uid; where the attempt of that is
now, and no earlier one, is told by :mod:`iriscw.controller.doors.hosted`.

A job's token finds what is in its own namespace: the tree that it belongs to. Whoever may see all jobs finds all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from iriscw.controller.doors.access import Access
from iriscw.controller.doors.hosted import HostedStatistics
from iriscw.controller.doors.lookup import JOB_ID, Place, place_of
from iriscw.controller.doors.rules import NAMES_RULES
from iriscw.controller.events import EventHub
from iriscw.controller.tokens import ControllerTokens
from iriscw.hosted.errors import NoSuchName, NotHosted
from iriscw.hosted.model import ACTOR_PORT
from iriscw.jobs.errors import NoSuchJob
from iriscw.jobs.messages import MAX_PAGE
from iriscw.jobs.model import job_uid
from iriscw.jobs.naming.messages import NamedJob
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.tokens import Principal, Role


class NamesDoor(ServicePart, v1.ControllerServiceBase):
    """Finds hosted actors.

    Args:
        access: asks on behalf of callers.
        hub: rings when a job has a name.
        tokens: signs capabilities.
        figures: are kept here.
    """

    method_rules = NAMES_RULES

    def __init__(self, access: Access, hub: EventHub, tokens: ControllerTokens, figures: HostedStatistics) -> None:
        self._access = access
        self._hub = hub
        self._tokens = tokens
        self._figures = figures

    async def resolve_actors(self, message: v1.ResolveActorsRequest) -> AsyncIterator[v1.ResolvedActor]:
        """Yield the actor of a name, once there is one if that is waited for; or all of a namespace."""
        principal = await self._access.client()
        own = await self._access.names.namespace(principal.job_id) if principal.role is Role.JOB else ""
        namespace = await self._namespace(message.job, own, principal)
        if message.name:
            place = place_of(message.name, namespace)
            found = await self._holder(place, own, principal, wait=message.wait)
            if not message.any_job and not _hosts(found):
                raise NotHosted(f"{found.job_id} is called {found.name!r}, and hosts no actor")
            self._figures.resolved += 1
            yield self._resolved(found)
            return
        after = -1
        while True:
            page = await self._access.names.page(namespace, after, MAX_PAGE)
            for row in page.rows:
                if message.any_job or _hosts(row):
                    yield self._resolved(row)
            after = page.next
            if after < 0:
                return

    async def _namespace(self, ref: v1.JobRef | None, own: str, principal: Principal) -> str:
        """Return where the caller looks; for a job that is its own, whatever it says."""
        if ref is None or not ref.job_id:
            return own
        job_id = ref.job_id if JOB_ID.fullmatch(ref.job_id) else await self._access.names.named(ref.job_id, own)
        if ref.job_uid and ref.job_uid != job_uid(job_id):
            raise NoSuchJob(f"there is no job {ref.job_id!r} with the uid {ref.job_uid}")
        namespace = await self._access.names.namespace(job_id)
        self._require(namespace, own, principal)
        return namespace

    def _require(self, namespace: str, own: str, principal: Principal) -> None:
        if principal.role is Role.JOB and namespace != own:
            self._figures.refused += 1
            raise PermissionDenied(f"{principal} finds names of its own namespace, {own}, and no others")

    async def _holder(self, place: Place, own: str, principal: Principal, *, wait: bool) -> NamedJob:
        keys: tuple[str, ...] = ()
        while True:
            with self._hub.subscribed(*keys) as news:
                found = await self._access.names.find(place)
                # Also where nobody is: a task does not learn which names there are elsewhere, nor when there are.
                self._require(found.namespace if found.job is None else found.job.namespace, own, principal)
                if found.job is not None:
                    break
                if not wait:
                    self._figures.unknown += 1
                    raise NoSuchName(f"there is no actor {_written(place)!r:.600}: none was created, or it is over")
                if found.keys == keys:  # else there may have been news that were not listened for
                    self._figures.waiting += 1
                    try:
                        await news.wait()
                    finally:
                        self._figures.waiting -= 1
                keys = found.keys
        await self._access.client()  # the caller's attempt may have ended meanwhile
        return found.job

    def _resolved(self, row: NamedJob) -> v1.ResolvedActor:
        return v1.ResolvedActor(
            job_id=row.job_id,
            job_uid=row.uid,
            name=row.name,
            namespace=row.namespace,
            capability=self._tokens.call_capability(row.uid).reveal(),
        )


def _hosts(row: NamedJob) -> bool:
    return row.replicas == 1 and ACTOR_PORT in row.ports


def _written(place: Place) -> str:
    """Return a place as a path."""
    return "/".join(("", *filter(None, (place.top or place.namespace, place.name))))
