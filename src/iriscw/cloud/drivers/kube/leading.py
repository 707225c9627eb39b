"""Leads, while the block lasts: asks for the Lease, waits for it, renews it, and ends the block when it is lost.

What is decided is decided in :mod:`iriscw.cloud.kube.leadership`. Requests here stand in no line: a renewal that waited
behind a thousand calls would come too late, and there is one in two seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from iriscw._errors import OperationError
from iriscw.cloud.kube.leadership import Candidate, CandidateStanding
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from iriscw.cloud.kube.ports import KubeApi
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)

REQUEST_S = 4.0
"""Seconds until a request counts as not answered: two of them fit in the time that a lease leaves."""


PATIENCE_S = 120.0
"""For how long somebody who wants to lead is told nothing of the Lease before giving up; who restarts it shows why."""


class CannotLead(OperationError):
    """There is no getting at the Lease: refused, no answer, or no place for it."""

    retryable = True


class LeadershipLost(OperationError):
    """Another controller may lead from now on: this one must not act any more."""


def check_leads(candidate: Candidate) -> None:
    """Let nobody act whose time is over, whether it was noticed or not: a process that stood still notices late.

    Raises:
        LeadershipLost: it is.
    """
    if time.monotonic_ns() >= candidate.acts_until:
        raise LeadershipLost(f"this controller may not act any more: {candidate.reason or 'its lease was not renewed'}")


@asynccontextmanager
async def leading(api: KubeApi, candidate: Candidate) -> AsyncIterator[None]:
    """Wait until this process leads, and lead while the block lasts.

    Args:
        api: The API server.
        candidate: Who wants to lead; it leads once in its life.

    Raises:
        CannotLead: there is no namespace for the Lease, or nothing was told of it for :data:`PATIENCE_S`.
        LeadershipLost: out of the block, which is cancelled: the Lease is another one's, or could not be renewed.
    """
    await _until_leading(api, candidate)
    log.info("%s leads", candidate.identity)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_keep, api, candidate)
            yield
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):  # bounded by REQUEST_S
            await _release(api, candidate)


async def _until_leading(api: KubeApi, candidate: Candidate) -> None:
    told, begun = "", time.monotonic_ns()
    while candidate.standing is CandidateStanding.WAITING:
        while await _ask(api, candidate):
            pass
        if candidate.standing is CandidateStanding.WAITING:
            since = candidate.understood_at if candidate.understood_at is not None else begun
            if candidate.homeless or time.monotonic_ns() - since > PATIENCE_S * SECOND:
                raise CannotLead(f"the Lease of the controller cannot be had: {candidate.reason}")
            if candidate.reason != told:
                told = candidate.reason
                log.info("waiting to lead: %s", told)
            await anyio.sleep(candidate.terms.renewal / SECOND)
    if candidate.standing is CandidateStanding.OVER:
        raise LeadershipLost(candidate.reason)


async def _keep(api: KubeApi, candidate: Candidate) -> None:
    """Renew the Lease; raise when it is lost."""
    while True:
        await _sleep(candidate)
        while await _ask(api, candidate):
            pass
        candidate.look(time.monotonic_ns())
        if candidate.standing is CandidateStanding.OVER:
            raise LeadershipLost(f"this controller leads no more: {candidate.reason}")


async def _sleep(candidate: Candidate) -> None:
    left = candidate.acts_until - time.monotonic_ns()
    await anyio.sleep(max(0, min(candidate.terms.renewal, left)) / SECOND)


async def _ask(api: KubeApi, candidate: Candidate) -> bool:
    """Make the next request, if there is one. Give whether the one after it follows at once: a write after a look."""
    sent = time.monotonic_ns()
    request = candidate.next(sent, time.time_ns())
    if request is None:
        return False
    left = (candidate.acts_until - sent) / SECOND if candidate.standing is CandidateStanding.LEADING else REQUEST_S
    answer = await _answer(api, request, min(REQUEST_S, left))
    candidate.heard(request, answer, sent, time.monotonic_ns())
    if request.method != "GET" or answer is None or answer.code not in (200, 404):
        return False
    following = candidate.next(time.monotonic_ns(), 0)
    return following is not None and following.method != "GET"


async def _answer(api: KubeApi, request: ApiRequest, patience_s: float) -> ApiResponse | None:
    with anyio.move_on_after(max(0.0, patience_s)):
        try:
            return await api.request(request)
        except ApiUnreachable as silence:
            log.warning("the Lease: %s", silence)
    return None


async def _release(api: KubeApi, candidate: Candidate) -> None:
    request = candidate.release()
    if request is not None:
        await _answer(api, request, REQUEST_S)
