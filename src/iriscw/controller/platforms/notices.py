"""What of the fleet's events is told on the slices' pools, and in which words.

``docs/failures.md`` has the same reasons with what to do about each. The text is the slice's own, which is the cloud's
where the cloud said something; nothing of jobs or tasks is in it, for whoever may read Events in ``default`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from iriscw.cloud.drivers.kube.noticing import Noticing
from iriscw.cloud.kube.notices import Notice, NoticeStatistics
from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import SliceState, Trouble

READY: Final = "SliceReady"
NOT_READY: Final = "SliceNotReady"
DRAINING: Final = "Draining"

TROUBLES: Final[Mapping[Trouble, str]] = {
    Trouble.QUOTA: "QuotaExceeded",
    Trouble.CAPACITY: "NoCapacity",
    Trouble.INVALID: "InvalidSpecification",
    Trouble.SLOW_BOOT: "SlowBoot",
    Trouble.API: "CloudNotAnswering",
    Trouble.FORBIDDEN: "CredentialsRefused",
    Trouble.NAME_TAKEN: "NameTaken",
    Trouble.WORKERS: "WorkersFailing",
    Trouble.STUCK_DELETION: "DeletionStuck",
}
"""The reason of each trouble."""

_LEAVING = (SliceState.DRAINING, SliceState.DELETING)
_INCOMPLETE = (SliceState.BOOTING, SliceState.INITIALIZING)


def notices_of(event: SliceChanged) -> Iterator[Notice]:
    """Yield what is told of a slice that changed: each trouble and each turn of its life once, when it begins."""
    row = event.row

    def notice(reason: str, text: str, *, warning: bool) -> Notice:
        return Notice(row.slice_id, event.pool_uid, reason, text or row.state.value, warning, event.at)

    if row.trouble not in (Trouble.NONE, event.trouble_was):
        slow = row.trouble is Trouble.SLOW_BOOT and row.state is not SliceState.FAILED
        text = f"it takes longer than usual: {row.reason}" if slow else row.reason
        yield notice(TROUBLES[row.trouble], text, warning=True)
    elif event.was is SliceState.READY and row.state in _INCOMPLETE:
        yield notice(NOT_READY, row.reason, warning=True)
    if row.state is SliceState.READY and event.was is not SliceState.READY:
        workers = "its worker is" if row.num_vms == 1 else f"all {row.num_vms} workers are"
        yield notice(READY, f"{workers} registered: work may be placed", warning=False)
    if row.state in _LEAVING and event.was not in _LEAVING:
        yield notice(DRAINING, f"the slice is being removed: {row.reason}", warning=False)


class PoolNotices:
    """Tells on pools what the fleet publishes.

    Args:
        noticing: Writes it down.
    """

    def __init__(self, noticing: Noticing) -> None:
        self._noticing = noticing

    def notice(self, event: Any) -> None:
        """Take note of an event of any kind. Neither waits nor raises."""
        if isinstance(event, SliceChanged):
            for each in notices_of(event):
                self._noticing.tell(each)

    def statistics(self) -> NoticeStatistics:
        """Return figures of now."""
        return self._noticing.statistics()
