"""Log lines: JSON with the ids, and nothing else of an attempt."""

import json
import logging
import sys

import pytest

from iriscw.dialling.messages import Disconnected
from iriscw.jobs.model import AttemptEnd, Ending, Observation, TaskState
from iriscw.jobs.traits import Fault
from iriscw.worker.lines import JsonLines, note
from iriscw.worker.messages import AttemptChanged, LeaseExpired
from iriscw.worker.model import AttemptPhase


def test_a_line_is_json_with_ids_and_extras() -> None:
    """The message, the fixed fields, what the caller gave, and the traceback of an error."""
    try:
        int("oh")
    except ValueError:
        failure = sys.exc_info()
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "it %s", ("broke",), failure)
    record.attempt = "a1"
    told = json.loads(JsonLines(worker="w").format(record))
    assert (told["level"], told["message"], told["worker"], told["attempt"]) == ("warning", "it broke", "w", "a1")
    assert told["time"].endswith("Z")
    assert "ValueError: invalid literal" in told["error"]


def test_events_are_noted_with_their_level(caplog: pytest.LogCaptureFixture) -> None:
    """A change is information, a broken stream a warning, an ended lease an error; a fault's text stays out."""
    caplog.set_level(logging.INFO)
    ended = Observation(
        "a1", TaskState.RUNNING, AttemptEnd(Ending.FAILED, fault=Fault("ValueError", "what the user printed"))
    )
    note(AttemptChanged("job-a/0", AttemptPhase.ENDED, ended))
    note(Disconnected("gone", 5))
    note(LeaseExpired(3))
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING, logging.ERROR]
    first = vars(caplog.records[0])
    assert (first["task"], first["attempt"], first["ending"], first["fault"]) == (
        "job-a/0",
        "a1",
        "FAILED",
        "ValueError",
    )
    assert "what the user printed" not in caplog.text
