"""Log lines for machines: one JSON object each, from the standard library's logging.

Every line has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``; what a call names in ``extra`` under
``actor``, ``job``, ``attempt``, ``worker`` or ``operation`` becomes a key of its own, and an exception its class and
traceback. Values that could be secrets are never passed in: tokens travel as :class:`iriscw.rpc.tokens.Secret`, which
prints as ``<secret>``.

The library itself configures nothing; :func:`configure` is for the process that serves.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from iriscw.fleet.messages import PolicyFailed, RoutingFailed
from iriscw.jobs.keeping.messages import CheckpointMissed, GoesBack, PassedOver
from iriscw.jobs.suspension.messages import CheckpointLeft
from iriscw.runtime.tree import FailureReport

log = logging.getLogger("iriscw.controller")

FIELDS = ("actor", "job", "attempt", "worker", "operation", "verdict")
"""What may be named in ``extra``."""

MAX_TEXT_CHARS = 16 << 10
"""Of one message or traceback; Docker cuts lines at 16 KiB."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its line feed."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT_CHARS],
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = str(value)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = type(record.exc_info[1]).__name__
            line["traceback"] = self.formatException(record.exc_info)[-MAX_TEXT_CHARS:]
        return json.dumps(line, ensure_ascii=False)


def configure(level: int = logging.INFO) -> None:
    """Send all log lines of this process to standard error as JSON."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)


def report(event: Any) -> None:
    """Write to the log that an actor or a policy failed, that something stays that should not, or what
    became of checkpoints of tasks that run on.

    Other events are no news here. For the runtime's ``on_event``.
    """
    if isinstance(event, PolicyFailed):
        log.error("the policy failed, and the default one decides for the scale group %r: %s", event.group, event.error)
    if isinstance(event, RoutingFailed):
        log.error("the routing policy failed, and the default one decides: %s", event.error)
    if isinstance(event, CheckpointLeft):
        what = event.checkpoint or f"what the suspension {event.key} made"
        where = f" on {event.node}" if event.node else ""
        log.warning("%s%s, of %s, is needed no more and stays: %s", what, where, event.job_id, event.reason)
    match event:
        case CheckpointMissed(again=False):
            task = f"task {event.index} of {event.job_id}"
            log.warning("no checkpoint of %s was made; it runs on, and that is tried again: %s", task, event.reason)
        case PassedOver():
            task = f"task {event.index} of {event.job_id}"
            log.warning("%s cannot go on from %s, which goes: %s", task, event.checkpoint, event.reason)
        case GoesBack():
            log.info("task %d of %s goes back to %s: %s", event.index, event.job_id, event.checkpoint, event.reason)
    if isinstance(event, FailureReport):
        # The message that failed is named by its class only: its content may be private to a job.
        log.error(
            "an actor failed while it decided on %s: %s",
            type(event.cause).__name__,
            event.verdict,
            exc_info=(type(event.error), event.error, event.error.__traceback__),
            extra={"actor": event.path, "operation": event.incarnation, "verdict": event.verdict},
        )
