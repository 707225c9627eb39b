"""Where the replicas of a job are reached: kept up with while a stream of it lasts, and after one that broke."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs

from iriscw.client.calls import MethodCalls
from iriscw.client.errors import PeerOver
from iriscw.client.model import Endpoint, PeerAddress
from iriscw.proto.iriscw.v1 import Endpoint as WireEndpoint, EndpointsUpdate, JobRef, WatchEndpointsRequest
from iriscw.task.context import NoSuchPort


@attrs.define(eq=False)
class Reached:
    """What is known of a job's replicas at one moment."""

    num_tasks: int = 0
    endpoints: dict[int, Endpoint] = attrs.field(factory=dict)
    over: dict[int, None] = attrs.field(factory=dict)

    def take(self, update: EndpointsUpdate) -> None:
        """Take what is new."""
        self.num_tasks = update.num_tasks
        for index in (*update.gone, *update.over):
            self.endpoints.pop(index, None)
        self.over.update(dict.fromkeys(update.over))
        self.endpoints.update({each.task_index: _endpoint(each) for each in update.endpoints})


def _endpoint(sent: WireEndpoint) -> Endpoint:
    return Endpoint(sent.task_index, sent.attempt_uid, sent.host, dict(sent.ports))


async def watch(
    calls: MethodCalls, job: JobRef, *, follow: bool, capability: str = ""
) -> AsyncGenerator[Reached, None]:
    """Iterate over what is known of a job's replicas: now, and with ``follow`` after each change until its end."""
    known = Reached()

    def request() -> WatchEndpointsRequest:
        nonlocal known
        known = Reached()  # a stream begins with all there is
        return WatchEndpointsRequest(job=job, follow=follow, capability=capability)

    async with aclosing(calls.stream("WatchEndpoints", request, EndpointsUpdate)) as updates:
        async for update in updates:
            known.take(update)
            if not update.more:
                yield known


async def addresses(calls: MethodCalls, job: JobRef, port: str, capability: str = "") -> tuple[PeerAddress, ...]:
    """Wait until all replicas of a job run at once, and give where each listens to ``port``, by index.

    Raises:
        NoSuchPort: the job did not ask for one of that name.
        PeerOver: a replica is over.
        OperationError: the controller cannot be reached for minutes.
    """
    async with aclosing(watch(calls, job, follow=True, capability=capability)) as changes:
        async for known in changes:
            for endpoint in known.endpoints.values():
                if port not in endpoint.ports:
                    names = ", ".join(sorted(endpoint.ports)) or "none"
                    raise NoSuchPort(f"the job has no port {port!r}; it has: {names}")
            if known.over:
                raise PeerOver(f"replica {min(known.over)} of {job.job_id} is over: it has no address any more")
            if len(known.endpoints) == known.num_tasks:
                found = (known.endpoints[index] for index in range(known.num_tasks))
                return tuple(PeerAddress(each.host, each.ports[port]) for each in found)
    raise PeerOver(f"{job.job_id} is over")
