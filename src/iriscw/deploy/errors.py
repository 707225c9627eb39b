"""What can go wrong with an installation."""

from __future__ import annotations

from iriscw.errors import OperationError, UsageError


class NotInstallable(UsageError):
    """The configuration is good, but not for a controller on Kubernetes; the text says which key, and why."""


class NotApplied(OperationError):
    """The cluster refused an object. What came before it was applied; applying again goes on from there."""

    retryable = True


class NotAvailable(OperationError):
    """Everything was applied, but the controller was not there in time; the text says what was seen last."""

    retryable = True


class NotRemoved(OperationError):
    """Something could not be deleted, or has not gone in time; doing it again goes on from there."""

    retryable = True


class NoSecretMaterial(OperationError):
    """Keys and certificates cannot be made, written or read here; the text says why."""
