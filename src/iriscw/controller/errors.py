"""The named errors of the controller: what its doors and its assembly can tell."""

from __future__ import annotations

from iriscw._errors import OperationError, UsageError
from iriscw.rpc.errors import Unauthenticated


class SecretsMissing(UsageError):
    """The folder with the controller's secrets is there, and lacks some of them: the text names which."""


class NoSuchNamespace(UsageError, LookupError):
    """The Kubernetes cluster has no namespace of the configured name."""


class InvalidPageToken(UsageError, ValueError):
    """A page token that no listing of this kind ever gave."""


class SubmissionTooLarge(UsageError):
    """The entrypoint of a submission takes more bytes than a specification may; put data into a bundle."""


class BundleMismatch(UsageError):
    """The bytes that were sent are not those that the bundle's header announced; nothing was stored."""


class NoSuchBundle(UsageError, LookupError):
    """The object store has no bundle of this id."""


class JobUnavailable(OperationError):
    """The job's actor was put aside after repeated failures; the controller's log says why."""


class OwnershipUnclear(OperationError):
    """Whether this controller is still the one that writes the journal cannot be told just now. It deletes nothing."""

    retryable = True


class AgentUnproven(Unauthenticated):
    """On Kubernetes: a token that says it is a node agent's is not, or not any more, or of no node that is known."""


class ReviewUnavailable(OperationError):
    """The Kubernetes API did not say whose an agent's token is: it is away, or does not let the controller ask."""

    retryable = True


class TooManyReviews(OperationError):
    """As many agents as the controller has room for wait until the Kubernetes API says whose their tokens are."""

    retryable = True


class CheckpointKept(OperationError):
    """A checkpoint that no attempt needs any more was not removed: it takes room on its node until somebody does."""
