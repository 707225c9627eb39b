"""Writes Events about pools, one after the other, and never in the way of anything else.

What is decided is decided in :mod:`iriscw.cloud.kube.notices`. One call is under way at a time, so what is told takes
at most one turn from the drivers of pools and pods, whose rate it shares.
"""

from __future__ import annotations

import logging
import time

import anyio

from iriscw._errors import OperationError
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.kube.notices import Notice, NoticeDue, NoticeLimits, Notices, NoticeStatistics, write
from iriscw.cloud.model import Forbidden
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)


class Noticing:
    """See the module.

    Args:
        caller: Carries the calls out.
        limits: How much may wait and leave.
    """

    def __init__(self, caller: Caller, limits: NoticeLimits | None = None) -> None:
        self._caller = caller
        self._notices = Notices(limits)
        self._bell = anyio.Event()
        self._forbidden_told = False

    def statistics(self) -> NoticeStatistics:
        """Return figures of now."""
        return self._notices.statistics()

    def tell(self, notice: Notice) -> None:
        """Have something told by and by, or drop it if too much waits. Neither waits nor raises."""
        self._notices.add(notice)
        self._bell.set()

    async def run(self) -> None:
        """Write what is told, for ever."""
        while True:
            span = self._notices.wait(time.monotonic_ns())
            if span == 0:
                await self._write(self._notices.take(time.monotonic_ns()))
                continue
            with anyio.move_on_after(None if span is None else span / SECOND):
                await self._bell.wait()
            self._bell = anyio.Event()

    async def _write(self, due: NoticeDue) -> None:
        try:
            count = await self._caller.carry_out(write(self._caller.settings, due, self._caller.rng))
        except OperationError as error:  # also the fence's: such a controller ends by itself
            self._missed(due, error)
        else:
            self._notices.wrote(due, count, time.monotonic_ns())

    def _missed(self, due: NoticeDue, error: OperationError) -> None:
        news = self._notices.failed(due, error, time.monotonic_ns(), self._caller.rng)
        if isinstance(error, Forbidden):
            if not self._forbidden_told:
                self._forbidden_told = True
                text = "Events about node pools are not written: %s: `iriscw manifests CONFIG --apply` writes the role"
                log.warning(text, error)
        elif news:
            log.info("the Event %s of %s was not written: %s", due.notice.reason, due.notice.pool, error)
