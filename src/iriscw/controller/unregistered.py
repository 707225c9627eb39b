"""Workers whose pods run and that do not register: what a look into their pods finds becomes their slices' reason.

While a slice waits for its workers, their pods are listed now and then. One that has run for two minutes (or a quarter
of the time that the slice has) without its worker having a stream is looked into by the platform's connection
(:mod:`iriscw.processes.unregistered`), and again after as long. What is found is told to the worker's place, which says
it to the slice; a worker that dialled and was refused has a better reason, which stays. Nothing is decided by it: how
long a slice waits is the configuration's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

from iriscw._errors import MailboxFull, NoSuchActor, SystemClosed
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.model import (
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_SLICE,
    LABEL_WORKER,
    CloudError,
    Pod,
    PodPhase,
)
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.streams import Switchboard
from iriscw.fleet.messages import WorkerExamined
from iriscw.fleet.model import FleetDescription, SliceState, worker_path
from iriscw.processes import unregistered
from iriscw.runtime.vocabulary import ROOT

log = logging.getLogger(__name__)

ROUND_S = 15.0
"""Between two looks at which slices wait; their pods are listed if some do."""

QUIET_S = 120.0
"""How long a pod has run before its worker is missed: a worker registers in seconds."""

QUIET_PART = 0.25
"""At most this part of how long a slice waits for its workers: who is told at its end is told too late."""

LOOK_S = 30.0
"""Of one look into a pod; what it does takes 5 s at most."""

MAX_LOOKS = 8
"""In one round, one after the other: what is wrong with many workers is mostly the same."""

MAX_FINDING_CHARS = 500

SOURCE = Path(unregistered.__file__).read_text(encoding="utf-8")


class Unregistered:
    """See the module.

    Args:
        access: reaches the fleet's actors.
        switchboard: the workers that have a stream.
        drivers: the platform's.
        fleet: gives what was last known of the fleet.
        init_timeout_s: how long slices wait for their workers, at least.
    """

    def __init__(
        self,
        access: Access,
        switchboard: Switchboard,
        drivers: CloudDrivers,
        fleet: Callable[[], FleetDescription | None],
        init_timeout_s: float,
    ) -> None:
        self._quiet_s = min(QUIET_S, QUIET_PART * init_timeout_s)
        self._access = access
        self._switchboard = switchboard
        self._drivers = drivers
        self._fleet = fleet
        self._since: dict[str, float] = {}
        """Since when a pod, by uid, runs without its worker, or was looked into."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await anyio.sleep(min(ROUND_S, self._quiet_s / 2))
            try:
                await self.round(time.monotonic())
            except CloudError as error:
                log.warning("workers that do not register are not looked at: %s: %s", type(error).__name__, error)

    async def round(self, now: float) -> None:
        """Look once, at this time.

        Raises:
            CloudError: the pods cannot be listed.
        """
        fleet = self._fleet()
        waiting = [] if fleet is None else [row for row in fleet.slices if row.state is SliceState.INITIALIZING]
        if not waiting:
            self._since.clear()
            return
        slices = {row.slice_id: None for row in waiting}
        pods = {pod.uid: pod for pod in await self._drivers.pods.list({}) if self._missed(pod, slices)}
        self._since = {uid: self._since.get(uid, now) for uid in pods}
        due = [pod for uid, pod in pods.items() if now - self._since[uid] >= self._quiet_s]
        for pod in due[:MAX_LOOKS]:
            self._since[pod.uid] = now
            self._tell(pod, await self._finding(pod))

    def _missed(self, pod: Pod, slices: Mapping[str, None]) -> bool:
        worker = self._switchboard.find(pod.labels.get(LABEL_WORKER, ""))
        there = worker is not None and worker.info.incarnation == pod.labels.get(LABEL_INCARNATION)
        runs = pod.phase is PodPhase.RUNNING and not pod.deleting
        return runs and pod.labels.get(LABEL_SLICE) in slices and not there

    async def _finding(self, pod: Pod) -> str:
        try:
            connection = self._drivers.connection(pod.name, pod.uid)
            words = [*connection.interpreter, "-I", "-S", "-c", SOURCE, pod.labels[LABEL_INCARNATION]]
            result = await connection.run(words, LOOK_S)
        except Exception as error:  # noqa: BLE001 - a platform may be somebody else's, and a look is worth no controller
            return f"its pod cannot be looked into: {type(error).__name__}: {error}"
        said = result.stdout.decode(errors="replace").strip()
        return said if result.exit_code == 0 and said else f"the look into its pod ended with {result.exit_code}"

    def _tell(self, pod: Pod, finding: str) -> None:
        finding = " ".join(finding.split())[:MAX_FINDING_CHARS]
        worker_id, incarnation = pod.labels[LABEL_WORKER], pod.labels[LABEL_INCARNATION]
        log.warning("the pod %s runs, and its worker has not registered: %s", pod.name, finding)
        assert self._access.system is not None
        try:
            place = self._access.system.ref(worker_path(ROOT / "fleet", pod.labels[LABEL_GROUP], worker_id))
            place.tell(WorkerExamined(worker_id, incarnation, finding))
        except (MailboxFull, NoSuchActor, SystemClosed) as error:
            log.debug("the fleet was not told of %s: %s", worker_id, error)
