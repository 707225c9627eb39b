"""Log lines are JSON, name actors, and hold no secrets."""

import json
import logging

import pytest

from iriscw.controller.logging import JsonFormatter, report
from iriscw.fleet.messages import PolicyFailed, RoutingFailed
from iriscw.jobs.messages import SubmitJob
from iriscw.jobs.suspension.messages import CheckpointLeft
from iriscw.rpc.tokens import Secret
from iriscw.runtime.tree import FailureReport
from iriscw.runtime.vocabulary import ActorPath


def line(record: logging.LogRecord) -> dict:
    """A record as it is written."""
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_line(caplog: pytest.LogCaptureFixture) -> None:
    """A line has its fields, those named in extra, and a secret shows as one."""
    logging.getLogger("x").warning("token %s\nnext", Secret("hidden"), extra={"job": "job-x", "other": 1})
    found = line(caplog.records[-1])
    assert found["message"] == "token <secret>\nnext"
    assert (found["level"], found["logger"], found["job"]) == ("warning", "x", "job-x")
    assert "other" not in found
    assert found["time"].endswith("+00:00")


def test_failure_report(caplog: pytest.LogCaptureFixture) -> None:
    """A failed decision is logged with its actor, error and verdict; the message's content is not."""
    cause = SubmitJob(spec="private", key="k")  # type: ignore[arg-type]
    report(FailureReport("test", ActorPath("/jobs"), 2, cause, ZeroDivisionError("boom"), "restarted"))
    found = line(caplog.records[-1])
    assert (found["actor"], found["verdict"], found["error"]) == ("/jobs", "restarted", "ZeroDivisionError")
    assert "SubmitJob" in found["message"]
    assert "private" not in json.dumps(found)


def test_a_failed_policy(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its group and what it raised; one of routing with the demand."""
    report(PolicyFailed("gpu", "ZeroDivisionError: boom"))
    message = line(caplog.records[-1])["message"]
    assert "policy" in message
    assert "'gpu'" in message
    assert "ZeroDivisionError: boom" in message
    report(RoutingFailed("demand-1: ZeroDivisionError: boom"))
    assert "demand-1: ZeroDivisionError: boom" in line(caplog.records[-1])["message"]


def test_a_checkpoint_that_stays(caplog: pytest.LogCaptureFixture) -> None:
    """It is named with its node, so that somebody can remove it; or by the suspension that may have made it."""
    report(CheckpointLeft("job-a", "suspend-u-1", "ck-1", "n1", "NoAgent: it is away", 0))
    known = line(caplog.records[-1])["message"]
    assert known == "ck-1 on n1, of job-a, is needed no more and stays: NoAgent: it is away"
    report(CheckpointLeft("job-a", "suspend-u-1", "", "", "NoAgent: it is away", 0))
    assert line(caplog.records[-1])["message"].startswith("what the suspension suspend-u-1 made, of job-a, ")


def test_other_events_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Only failures are logged."""
    report("anything")
    assert not caplog.records
