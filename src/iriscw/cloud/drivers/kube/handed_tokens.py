"""The tokens of worker pods: each is handed over in a Secret that goes when its pod does.

A token is derived when its pod is asked for, so it is in no effect, no journal and no log. When the pod is gone its
Secret is removed, one at a time, so that this never takes more than one turn from other calls; those that are missed
go with their slice's pool (:mod:`iriscw.cloud.kube.handing`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import anyio

from iriscw._errors import OperationError
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.kube.handing import drop_token
from iriscw.cloud.model import LABEL_WORKER, PodSpec, Removed, WatchEvent
from iriscw.rpc.tokens import Secret

log = logging.getLogger(__name__)

MAX_DROPPED = 10_000
"""Pods that are gone and whose Secrets wait to be removed. Those beyond go with their slice's pool."""


class HandedTokens:
    """Knows which pods have a Secret, and removes those of pods that are gone.

    A worker's next pod is asked for only when the one before is gone or given up: then its Secret goes, too, whether a
    pod ever came of it or not.

    Args:
        caller: carries the calls out.
        token: gives the token of the worker in a pod.
    """

    def __init__(self, caller: Caller, token: Callable[[PodSpec], Secret]) -> None:
        self._caller, self._token = caller, token
        self._asked: dict[str, str] = {}
        """The pod that was asked for last, by worker."""
        self._send, self._receive = anyio.create_memory_object_stream[str](MAX_DROPPED)

    def hand(self, spec: PodSpec) -> str:
        """Return the token for a pod that is asked for now."""
        worker_id = spec.labels.get(LABEL_WORKER, "")
        before = self._asked.get(worker_id, spec.name)
        if before != spec.name:
            self.drop(before)
        self._asked[worker_id] = spec.name
        return self._token(spec).reveal()

    async def watched(self, events: AsyncIterator[WatchEvent]) -> AsyncGenerator[WatchEvent, None]:
        """Pass events on; what is gone needs its token no more."""
        async with aclosing(events):  # type: ignore[type-var]  # streams are generators, typed as iterators
            async for event in events:
                if isinstance(event, Removed):
                    self.drop(event.object.name)
                    worker_id = event.object.labels.get(LABEL_WORKER, "")
                    if self._asked.get(worker_id) == event.object.name:
                        del self._asked[worker_id]
                yield event

    def drop(self, pod: str) -> None:
        """Have the Secret of this pod removed by and by."""
        try:
            self._send.send_nowait(pod)
        except (anyio.WouldBlock, anyio.ClosedResourceError):
            log.debug("the Secret of %s is left to go with its pool", pod)

    async def run(self) -> None:
        """Remove them, for ever. One call at a time: it never takes more than one turn from others."""
        with self._send, self._receive:
            async for pod in self._receive:
                await self._remove(pod)

    async def _remove(self, pod: str) -> None:
        try:
            await self._caller.carry_out(drop_token(self._caller.settings, pod, self._caller.rng))
        except OperationError as error:  # also the fence's: such a controller ends by itself
            log.warning("the Secret of %s goes with its pool: %s: %s", pod, type(error).__name__, error)
