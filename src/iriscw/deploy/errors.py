"""What can go wrong with an installation."""

from __future__ import annotations

from iriscw._errors import OperationError, UsageError


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


class NoInstallation(OperationError):
    """There is no controller where one was looked for; the text says where that was."""


class SeveralInstallations(UsageError):
    """There are controllers in several namespaces; the text lists them: say which one is meant."""


class ControllerNotReady(OperationError):
    """The controller is installed and does not serve now; the text says what it waits for."""

    retryable = True


class ClusterRightsMissing(OperationError):
    """The credentials may not do what it takes to reach the controller; the text names the right."""


class NoSecretMaterial(OperationError):
    """Keys and certificates cannot be made, written or read here; the text says why."""
