"""The worker's log lines: one JSON object each, with the ids of attempts, and never a secret.

Lines come from the events that the tree emits. An order, with its token and environment, is part of none of them.
"""

from __future__ import annotations

import json
import logging
import time

from iriscw.dialling.messages import Connected, Disconnected
from iriscw.runtime import FailureReport
from iriscw.runtime.vocabulary import SECOND
from iriscw.worker.messages import AttemptChanged, LeaseExpired, LeaseNotWritten, Orphaned

log = logging.getLogger(__name__)


def note(event: object) -> None:
    """Write an event to the log."""
    match event:
        case AttemptChanged(task_id=task_id, phase=phase, observation=seen):
            extra = {"task": task_id, "attempt": seen.uid, "phase": phase.value}
            if seen.end is not None:
                extra["ending"] = seen.end.ending.value
                if seen.end.fault is not None:
                    extra["fault"] = seen.end.fault.kind
            log.info("attempt %s is %s", seen.uid, phase.value, extra=extra)
        case Connected(session_id=session_id):
            log.info("connected to the controller", extra={"session": session_id})
        case Disconnected(error=error, again_after_ns=pause_ns):
            log.warning("no stream to the controller: %s", error, extra={"again_after_s": pause_ns / SECOND})
        case LeaseExpired(live=live):
            log.error("no contact with the controller for the lease: %d attempts are killed", live)
        case LeaseNotWritten(error=error):
            log.error("the lease of the attempts cannot be written: %s", error)
        case Orphaned(after_ns=after_ns):
            log.error("no contact with a controller for %g s: this worker ends itself", after_ns / SECOND)
        case FailureReport():
            log.error("an actor failed: %s", event)


class JsonLines(logging.Formatter):
    """One JSON object per line, with what the caller gave as ``extra``."""

    _OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def __init__(self, **always: str) -> None:
        """Put ``always`` into every line."""
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
            **{name: value for name, value in vars(record).items() if name not in self._OWN},
        }
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)
