"""``iriscw.v1.InspectionService``: the actors of a process. Controllers, workers and node agents have this door."""

from __future__ import annotations

from collections.abc import Callable

from iriscw._errors import SystemClosed
from iriscw.proto.iriscw import v1
from iriscw.rpc.rules import MethodRule, MethodRules
from iriscw.rpc.tokens import Role
from iriscw.runtime import ROOT, ActorSystem, ActorView
from iriscw.runtime.inspection import MAX_ROWS
from iriscw.runtime.vocabulary import MILLISECOND


class InspectionDoor(v1.InspectionServiceBase):
    """InspectionService.

    Args:
        system: gives the actors, None before they start; asked with each call, because a door may open earlier.
        roles: who may ask: paths have the names of jobs, and failures what a program said.
        gpus: gives those that the process hands out; only workers do.
    """

    def __init__(
        self,
        system: Callable[[], ActorSystem | None],
        *roles: Role,
        gpus: Callable[[], v1.ListGpusResponse] = v1.ListGpusResponse,
    ) -> None:
        self._system = system
        self._gpus = gpus
        self.method_rules: MethodRules = {
            "ListActors": MethodRule(roles=roles, does="look at actors"),
            "ListGpus": MethodRule(roles=roles, does="look at GPUs"),
        }

    async def list_actors(self, message: v1.ListActorsRequest) -> v1.ListActorsResponse:
        """List a page of actors."""
        system = self._system()
        if system is None:
            raise SystemClosed("this process has not started its actors yet")
        page = system.inspect(
            message.under or ROOT,
            after=message.page_token,
            depth=message.depth,
            troubled=message.troubled,
            limit=message.page_size or MAX_ROWS,
        )
        rows = [_actor_status(each) for each in page.actors]
        return v1.ListActorsResponse(system=page.system, actors=rows, next_page_token=page.next)

    async def list_gpus(self, message: v1.ListGpusRequest) -> v1.ListGpusResponse:
        """List the GPUs that the process hands out."""
        return self._gpus()


def _actor_status(actor: ActorView) -> v1.ActorStatus:
    return v1.ActorStatus(
        path=actor.path,
        name=actor.name,
        state=v1.ActorState[actor.state.upper()],
        restarts=actor.restarts,
        up_ms=actor.up_ns // MILLISECOND,
        queued=actor.queued,
        capacity=actor.capacity,
        operations=actor.operations,
        children=actor.children,
        failure=actor.failure,
        failed_ms=actor.failed_ns // MILLISECOND,
    )
