"""What workers of the local platform leave on the disk when nobody of them can remove it: found and removed.

A worker removes its attempts' folders when the controller is done with them. It cannot remove that of an attempt which
it let go, suspended, and which ended before anybody took it over; nor its own folder, when it is gone. Such a folder
must stay for as long as an attempt that began there may go on (:mod:`iriscw.cloud.drivers.local.attempts`), and jobs
know until when. So they are asked, whenever something has ended that may have been the last reason to keep one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from iriscw._errors import ActorStopped, NoSuchActor, OperationError
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.drivers.local.attempts import lives, remove, remove_life, unowned
from iriscw.cloud.model import LABEL_INCARNATION, Pod
from iriscw.controller.doors.access import Access
from iriscw.controller.events import CheckpointDropped, Subscription
from iriscw.controller.stores.logs import LogStore
from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import SliceState
from iriscw.jobs.messages import JobChanged, ListTasks, TaskPage
from iriscw.jobs.model import JOB_TERMINAL

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""Before a round that could not be finished is made again."""


def workers_of(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """Yield the worker's id and incarnation of each pod."""
    for pod in pods:
        incarnation = pod.labels.get(LABEL_INCARNATION, "")
        yield pod.name.removesuffix(f"-{incarnation}"), incarnation


class Lives:
    """See the module.

    Args:
        cache: where the workers keep what they have.
        drivers: say which pods there are.
        access: asks jobs.
        logs: knows which attempts there were.
    """

    def __init__(self, cache: Path, drivers: CloudDrivers, access: Access, logs: LogStore) -> None:
        self._cache = cache
        self._drivers = drivers
        self._access = access
        self._logs = logs
        self._bell = Subscription()
        self._bell.ring()  # for what an earlier controller left

    def notice(self, event: Any) -> None:
        """Take note of an event."""
        ended = isinstance(event, CheckpointDropped) or (isinstance(event, JobChanged) and event.state in JOB_TERMINAL)
        if ended or (isinstance(event, SliceChanged) and event.row.state is SliceState.GONE):
            self.ring()

    def ring(self) -> None:
        """Something has ended: look."""
        self._bell.ring()

    async def run(self) -> None:
        """Look whenever there may be something to remove, until cancelled."""
        while True:
            await self._bell.wait()
            try:
                await self._round()
            except (OperationError, NoSuchActor, OSError) as error:
                log.info("what workers left is looked at again: %s: %s", type(error).__name__, error)
                await anyio.sleep(AGAIN_S)
                self._bell.ring()

    async def _round(self) -> None:
        found = await anyio.to_thread.run_sync(lives, self._cache)
        # Afterwards: a life has a pod before it has a folder.
        owners = [f"{worker}/{life}" for worker, life in workers_of(await self._drivers.pods.list({}))]
        for life in found:
            over = life.owner not in owners
            left = await anyio.to_thread.run_sync(partial(unowned, life, over=over))
            gone = [path for path in left if not await self._lives(path.name)]
            await anyio.to_thread.run_sync(remove, gone)
            if over and await anyio.to_thread.run_sync(remove_life, life):
                log.info("removed what worker %s left", life.owner)

    async def _lives(self, uid: str) -> bool:
        """Whether an attempt has not ended, as its job says; one of which nothing is known has.

        Raises:
            NoSuchActor, OperationError: nobody can say now.
        """
        known = self._logs.attempt(uid)
        if known is None:
            return False
        try:
            page: TaskPage = await self._access.ask(f"/jobs/{known.job_id}", ListTasks(known.index, 1))
        except NoSuchActor:
            if await self._access.forgotten(known.job_id):
                return False
            raise
        except ActorStopped:  # it was put aside: nobody can say
            return True
        return any(row.uid == uid and row.ending is None for row in page.rows)
