"""What the node agent says no with, beside the errors of the operations themselves (:mod:`iriscw.freeze.model`)."""

from __future__ import annotations

from iriscw._errors import OperationError, UsageError


class AgentRunning(OperationError):
    """Another agent serves this state folder: there is one journal, and one who writes it."""

    retryable = True


class AgentStopping(OperationError):
    """The agent ends, and begins nothing any more."""

    retryable = True


class TooManyOperations(OperationError):
    """As many operations run as the agent runs at once. Nothing was begun."""

    retryable = True


class OperationUnknown(OperationError, LookupError):
    """The agent runs no such operation, and remembers none among those that ended last."""


class OperationPutAside(OperationError):
    """An operation failed again and again: a fault of ours. Its target may stand still. The next agent takes it up."""


class UnsafeSocketFolder(UsageError):
    """The folder of the socket belongs to somebody else, or others may enter it."""


class UnsafeStateFolder(UsageError):
    """Somebody else could write to the state folder, or to the agent's part of it: what stands there is run."""


class PathNotAllowed(UsageError):
    """A path is none that the agent may use: below no configured root, or a link or a stranger's folder is in it."""


class ContainerUnknown(OperationError, LookupError):
    """No runtime's state has such a container, or its process has ended. Nothing was touched."""


class ContainerAmbiguous(UsageError):
    """Several namespaces of the runtime have a container with this id. Nothing was touched."""


class ContainerRefused(OperationError):
    """The runtime's state of a container cannot be believed; the text says why. Nothing was touched."""


class TooManyPlaces(OperationError):
    """Checkpoints lie in as many folders of callers as the agent remembers. Remove some of them."""

    retryable = True


class ArtifactAmbiguous(UsageError):
    """Another folder holds a checkpoint with the same id, a copy perhaps: which one is meant is not guessed at."""


class ProcessOutOfReach(UsageError):
    """The process is in another PID namespace than the agent: its number is another one's here. Nothing was touched."""


class GuardUnknown(OperationError):
    """The process is not the supervisor of the folder that an order names. Nothing was touched."""


class AgentUnreachable(OperationError):
    """No agent answers on the socket, or it went away. The next one takes up what it ran."""

    retryable = True
