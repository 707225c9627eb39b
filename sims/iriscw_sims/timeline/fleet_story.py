"""What the fleet's messages and records say, told to a recorder.

Theory of operation. Reports of the fleet's actors are complete and conflated: each says how a slice, a pod's place or
a group stands, and why. They are what the lanes show: the controller's belief, which lags behind the world, and begins
anew with each controller. What is on the disk stands beside it as events: a slice was asked for, is doomed, is gone.
"""

from __future__ import annotations

from typing import Any

from iriscw.fleet.messages import WorkerLost, WorkerReady
from iriscw.fleet.model import Availability, PodState, SliceState, Trouble, slice_of
from iriscw.fleet.records import SliceDeleted, SliceDoomed, SlicePoolCreated, SliceRequested
from iriscw.fleet.signals import GroupReported, PodReported, SliceReported
from iriscw_sims.timeline.model import Level, Point, Tone
from iriscw_sims.timeline.recorder import Recorder

_OPEN = (Availability.AVAILABLE, Availability.COOLDOWN)
_REASONS = {
    SliceState.READY: "all of its workers are registered",
    PodState.REGISTERED: "its worker dialled, and has what its group promises",
}
"""Why something is in a state, where its actor has nothing to say about that."""

_TROUBLED = (PodState.ENDING, SliceState.FAILED)


class FleetStory:
    """The fleet's part of a timeline."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._said: dict[str, tuple[object, ...]] = {}
        """What each subject reported last, so that what is repeated is told once; as many as live at a time."""
        self.delivered = {
            GroupReported: self._group,
            SliceReported: self._slice,
            PodReported: self._pod,
            WorkerReady: self._ready,
            WorkerLost: self._lost,
        }
        """By the class of a message: what takes it, with the time."""
        self.durable = {
            SliceRequested: self._requested,
            SlicePoolCreated: self._created,
            SliceDoomed: self._doomed,
            SliceDeleted: self._deleted,
        }
        """By the class of a record: what takes it, with the time and the path it was written under."""

    def new_controller(self) -> None:
        """Forget what was said: a new controller says it all anew."""
        self._said.clear()

    # What actors report

    def _group(self, at: int, message: Any) -> None:
        row = message.row
        subject = f"group/{row.group}"
        self._recorder.lane(subject)
        self._recorder.point(subject, Point(at, row.slices, row.ready, row.wanted))
        takes = row.availability in _OPEN
        state, why = ("open", "it takes demand") if takes else (str(row.availability.value), row.reason)
        if self._recorder.enter(at, subject, state, why):
            tone = Tone.PLAIN if takes or row.availability is Availability.AT_MAX else Tone.BAD
            self._recorder.event(at, subject, state, why, tone=tone)

    def _slice(self, at: int, message: Any) -> None:
        row = message.row
        subject = f"slice/{row.slice_id}"
        said = (row.state, row.trouble, row.reason)
        if self._said.get(subject) == said:
            return
        if row.state is SliceState.GONE:
            self._gone(at, row.slice_id, row.reason if row.reason != "gone" else "nothing of it is left")
            return
        before = self._said.get(subject, (None, Trouble.NONE))
        self._said[subject] = said
        if row.state is SliceState.REQUESTED and self._recorder.state(subject) not in ("", row.state.value):
            self._recorder.event(at, subject, "taken up again", "its actor is new", level=Level.DETAIL)
            return
        self._recorder.lane(subject, f"group/{row.group}")
        troubled = row.trouble is not Trouble.NONE
        what = f"{row.state.value}, {row.trouble.value}" if troubled else row.state.value
        why = row.reason or _REASONS.get(row.state, "")
        entered = self._recorder.enter(at, subject, row.state.value, why)
        tone = Tone.BAD if row.state in _TROUBLED or troubled else Tone.PLAIN
        self._recorder.event(
            at,
            subject,
            what,
            why,
            level=Level.CHANGE if entered or before[1] is not row.trouble else Level.DETAIL,
            tone=Tone.GOOD if row.state is SliceState.READY else tone,
        )

    def _pod(self, at: int, message: Any) -> None:
        subject = f"worker/{message.worker_id}"
        said = (message.state, message.reason)
        if self._said.get(subject) == said:
            return
        self._said[subject] = said
        above = f"slice/{slice_of(message.worker_id)}"
        why = message.reason or _REASONS.get(message.state, "")
        self._recorder.lane(subject, above)
        if message.state in (PodState.VACANT, PodState.REMOVED):
            self._said.pop(subject)
            entered = self._recorder.leave(at, subject, why or f"its place is {message.state.value}")
        else:
            entered = self._recorder.enter(at, subject, message.state.value, why)
        tone = Tone.BAD if message.state in _TROUBLED or message.failures else Tone.PLAIN
        self._recorder.event(
            at,
            subject,
            f"pod {message.state.value}",
            why,
            level=Level.CHANGE if entered else Level.DETAIL,
            tone=Tone.GOOD if message.state is PodState.REGISTERED else tone,
            about=(above,),
        )

    def _ready(self, at: int, message: Any) -> None:
        info = message.info
        about = (f"slice/{info.slice_id}",)
        why = "its slice is complete"
        self._recorder.event(at, f"worker/{info.worker_id}", "takes work", why, level=Level.DETAIL, about=about)

    def _lost(self, at: int, message: Any) -> None:
        what = "lost, its processes are gone" if message.fenced else "lost, its processes may still run"
        about = (f"slice/{slice_of(message.worker_id)}",)
        subject = f"worker/{message.worker_id}"
        self._recorder.event(at, subject, what, message.reason, level=Level.DETAIL, tone=Tone.BAD, about=about)

    # What is on the disk

    def _requested(self, at: int, path: str, record: Any) -> None:
        group, subject = f"group/{path.rpartition('/')[2]}", f"slice/{record.slice_id}"
        self._recorder.lane(group)
        self._recorder.lane(subject, group)
        self._recorder.event(at, subject, "promised on the disk", "its group wants one more slice", about=(group,))
        if not self._recorder.state(subject):
            self._recorder.enter(at, subject, SliceState.REQUESTED.value, "its group wants one more slice")

    def _created(self, at: int, path: str, record: Any) -> None:
        subject = f"slice/{record.slice_id}"
        self._recorder.event(at, subject, "its pool exists", f"seen as {record.pool_uid}", level=Level.DETAIL)

    def _doomed(self, at: int, path: str, record: Any) -> None:
        subject = f"slice/{record.slice_id}"
        self._recorder.event(at, subject, "written down as going", record.reason or "its group decided so")

    def _deleted(self, at: int, path: str, record: Any) -> None:
        self._gone(at, record.slice_id, "nothing of it is left, and the disk says so")

    def _gone(self, at: int, slice_id: str, why: str) -> None:
        subject = f"slice/{slice_id}"
        self._said.pop(subject, None)
        if self._recorder.leave(at, subject, why, outcome="gone"):
            self._recorder.event(at, subject, "gone", why)
        for lane in self._recorder.below(subject):
            self._said.pop(lane, None)
            self._recorder.leave(at, lane, "its slice is gone")
