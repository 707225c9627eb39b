"""Where hosted actors are reached: a part of ControllerService.

A hosted actor is what a job of one task serves at its port ``actor``. Whoever may see the job may call it, and gets a
*capability* for that, which a handle carries along: a task that the job is no kin of shows it. Nothing is kept of
these: a capability is signed with the cluster's secret and names the job by its uid, so that one of an earlier job of
the same id opens nothing.

What proves to the actor that one may call it is a key of its attempt (:func:`iriscw.rpc.tokens.call_key`). So a caller
that was told of an earlier attempt cannot talk to whatever listens there now, and no token is shown to an actor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs

from iriscw.controller.doors.access import EVERYTHING, Access
from iriscw.controller.doors.rules import HOSTED_RULES
from iriscw.controller.events import EventHub
from iriscw.controller.tokens import ControllerTokens
from iriscw.hosted.errors import NotHosted
from iriscw.hosted.model import ACTOR_PORT
from iriscw.jobs import wire
from iriscw.jobs.meeting.messages import EndpointPage, ListEndpoints
from iriscw.jobs.messages import JobView
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.tokens import call_key


@attrs.define
class HostedStatistics:
    """Calls of WatchHostedActor and ResolveActors since the start; ``watching`` and ``waiting`` are of now."""

    watching: int = 0
    watches: int = 0
    refused: int = 0
    """Those who may not see the job and whose capability was not its, or who asked for names of another namespace."""
    resolved: int = 0
    """Names that were found."""
    unknown: int = 0
    """Names that nobody had, and were not waited for."""
    waiting: int = 0
    """Calls that wait for somebody to have a name."""


class HostedDoor(ServicePart, v1.ControllerServiceBase):
    """Tells callers of hosted actors where these are.

    Args:
        access: asks on behalf of callers.
        hub: rings when a job changes.
        tokens: signs capabilities, and derives the tokens of attempts.
    """

    method_rules = HOSTED_RULES

    def __init__(self, access: Access, hub: EventHub, tokens: ControllerTokens) -> None:
        self._access = access
        self._hub = hub
        self._tokens = tokens
        self.figures = HostedStatistics()

    def statistics(self) -> HostedStatistics:
        """Return figures of now."""
        return attrs.evolve(self.figures)

    async def watch_hosted_actor(self, message: v1.WatchHostedActorRequest) -> AsyncIterator[v1.HostedActorUpdate]:
        """Yield where the actor of a job is, and each change, to the end."""
        view = await self._view(message)
        if view.spec.replicas != 1 or ACTOR_PORT not in view.spec.ports:
            raise NotHosted(f"{view.job_id} hosts no actor: that takes one task with a port {ACTOR_PORT!r}")
        self.figures.watches += 1
        self.figures.watching += 1
        ref = v1.JobRef(job_id=view.job_id, job_uid=view.uid)
        last: v1.HostedActorUpdate | None = None
        try:
            with self._hub.subscribed(view.job_id) as events:
                while True:
                    update = await self._update(await self._access.view(ref, EVERYTHING))
                    if update != last:
                        last = update
                        yield update
                    if update.over or not message.follow:
                        return
                    await events.wait()
        finally:
            self.figures.watching -= 1

    async def _view(self, message: v1.WatchHostedActorRequest) -> JobView:
        principal = await self._access.client()
        try:
            return await self._access.view_with(message.capability, self._tokens, message.job, principal)
        except PermissionDenied:
            self.figures.refused += 1
            raise

    async def _update(self, view: JobView) -> v1.HostedActorUpdate:
        page: EndpointPage = await self._access.ask(f"/jobs/{view.job_id}", ListEndpoints(0, 1))
        status = wire.job_status(view, version=0, entrypoint="")
        update = v1.HostedActorUpdate(
            capability=self._tokens.call_capability(view.uid).reveal(),
            over=page.ended or bool(page.over),
            reason=status.fault.text if status.fault is not None else status.reason,
        )
        for row in page.rows:
            update.attempt_uid, update.host, update.port = row.uid, row.host, dict(row.ports).get(ACTOR_PORT, 0)
            update.call_key = call_key(self._tokens.job_token(view.job_id, row.uid))
        return update
