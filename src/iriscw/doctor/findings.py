"""What was looked for and what was found: one line each, with what is wrong and what to do."""

from __future__ import annotations

import enum

import attrs

from iriscw.cloud.model import CloudError, Forbidden


class Health(enum.Enum):
    """How it stands with one thing."""

    OK = "ok"
    WARNING = "warning"
    """It works, or was not looked at; people should know."""
    WRONG = "wrong"
    """Something will not work."""


@attrs.frozen
class Finding:
    """One check.

    Attributes:
        check: What was looked at, in a word or two; several findings may share it.
        verdict: How it stands.
        found: What is there.
        advice: What to do about it; empty if it is well.
    """

    check: str
    verdict: Health
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    """Return a finding of something that is well."""
    return Finding(check, Health.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """Return a finding of something that people should know."""
    return Finding(check, Health.WARNING, found, advice)


def wrong(check: str, found: str, advice: str) -> Finding:
    """Return a finding of something that will not work."""
    return Finding(check, Health.WRONG, found, advice)


def unseen(check: str, error: CloudError) -> Finding:
    """Return the finding of a check that the cluster did not let us make: who may not look has found nothing wrong."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Forbidden):
        return warning(check, f"not looked at: {text}", "ask somebody who may, such as the cluster's administrator")
    return wrong(check, f"not looked at: {text}", "try again; if it stays so, look at the API server")
