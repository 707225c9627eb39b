"""iriscw: the control plane for GPU fleets, as a tree of supervised actors.

What users import stands here, and errors in :mod:`iriscw.errors`. A name is loaded when it is first used, so that
importing the package costs next to nothing and loads no client library.

To publish a name, add one line to each of the three tables below and one to ``docs/reference/``;
``tests/test_exports.py`` says what is missing. Whatever module defines it, users see it as ``iriscw.<name>``.
"""

import importlib
from typing import TYPE_CHECKING, Final

from iriscw._publishing import Shelf
from iriscw._version import __version__ as __version__

if TYPE_CHECKING:
    import iriscw.blocking as blocking
    import iriscw.errors as errors
    import iriscw.fray as fray
    import iriscw.runtime as runtime
    import iriscw.testing as testing
    from iriscw._errors import (
        IriscwError as IriscwError,
    )
    from iriscw.client.actors import (
        ActorFuture as ActorFuture,
        ActorGroup as ActorGroup,
        ActorHandle as ActorHandle,
        ActorMethod as ActorMethod,
        KeyedMethod as KeyedMethod,
    )
    from iriscw.client.client import (
        Client as Client,
        connect as connect,
    )
    from iriscw.client.errors import (
        JobFailed as JobFailed,
        TaskFailed as TaskFailed,
        WaitTimeout as WaitTimeout,
    )
    from iriscw.client.job import (
        Job as Job,
    )
    from iriscw.client.model import (
        ActorStatus as ActorStatus,
        AttemptStatus as AttemptStatus,
        ClusterStatus as ClusterStatus,
        Endpoint as Endpoint,
        ExecOutput as ExecOutput,
        ExecResult as ExecResult,
        GpuStatus as GpuStatus,
        JobStatus as JobStatus,
        LogLine as LogLine,
        NodeStatus as NodeStatus,
        OrderStatus as OrderStatus,
        PeerAddress as PeerAddress,
        PoolDemand as PoolDemand,
        PoolPassed as PoolPassed,
        PoolStatus as PoolStatus,
        ProgressStatus as ProgressStatus,
        SliceStatus as SliceStatus,
        TaskCheckpoint as TaskCheckpoint,
        TaskCheckpoints as TaskCheckpoints,
        TaskStatus as TaskStatus,
        TaskSuspension as TaskSuspension,
        TierStatus as TierStatus,
        WorkerStatus as WorkerStatus,
    )
    from iriscw.client.nodes import (
        Checkpoint as Checkpoint,
        CheckpointCopy as CheckpointCopy,
    )
    from iriscw.client.pools import (
        ActorPool as ActorPool,
    )
    from iriscw.client.resolving import (
        NamespacedResolver as NamespacedResolver,
    )
    from iriscw.client.submission import (
        Command as Command,
    )
    from iriscw.cluster import (
        Cluster as Cluster,
    )
    from iriscw.config.load import (
        load_config as load_config,
    )
    from iriscw.jobs.model import (
        Ending as Ending,
        JobState as JobState,
        Suspension as Suspension,
        TaskState as TaskState,
    )
    from iriscw.kubernetes import (
        connect_kubernetes as connect_kubernetes,
    )
    from iriscw.resources import (
        Resources as Resources,
    )
    from iriscw.task.context import (
        TaskContext as TaskContext,
        context as context,
    )
    from iriscw.task.progress import (
        progress as progress,
    )

__all__ = [
    "ActorFuture",
    "ActorGroup",
    "ActorHandle",
    "ActorMethod",
    "ActorPool",
    "ActorStatus",
    "AttemptStatus",
    "Checkpoint",
    "CheckpointCopy",
    "Client",
    "Cluster",
    "ClusterStatus",
    "Command",
    "Ending",
    "Endpoint",
    "ExecOutput",
    "ExecResult",
    "GpuStatus",
    "IriscwError",
    "Job",
    "JobFailed",
    "JobState",
    "JobStatus",
    "KeyedMethod",
    "LogLine",
    "NamespacedResolver",
    "NodeStatus",
    "OrderStatus",
    "PeerAddress",
    "PoolDemand",
    "PoolPassed",
    "PoolStatus",
    "ProgressStatus",
    "Resources",
    "SliceStatus",
    "Suspension",
    "TaskCheckpoint",
    "TaskCheckpoints",
    "TaskContext",
    "TaskFailed",
    "TaskState",
    "TaskStatus",
    "TaskSuspension",
    "TierStatus",
    "WaitTimeout",
    "WorkerStatus",
    "blocking",
    "connect",
    "connect_kubernetes",
    "context",
    "errors",
    "fray",
    "load_config",
    "progress",
    "runtime",
    "testing",
]

_MODULE_OF: Final[dict[str, str]] = {
    "ActorFuture": "iriscw.client.actors",
    "ActorGroup": "iriscw.client.actors",
    "ActorHandle": "iriscw.client.actors",
    "ActorMethod": "iriscw.client.actors",
    "ActorPool": "iriscw.client.pools",
    "ActorStatus": "iriscw.client.model",
    "AttemptStatus": "iriscw.client.model",
    "Checkpoint": "iriscw.client.nodes",
    "CheckpointCopy": "iriscw.client.nodes",
    "Client": "iriscw.client.client",
    "Cluster": "iriscw.cluster",
    "ClusterStatus": "iriscw.client.model",
    "Command": "iriscw.client.submission",
    "Ending": "iriscw.jobs.model",
    "Endpoint": "iriscw.client.model",
    "ExecOutput": "iriscw.client.model",
    "ExecResult": "iriscw.client.model",
    "GpuStatus": "iriscw.client.model",
    "IriscwError": "iriscw._errors",
    "Job": "iriscw.client.job",
    "JobFailed": "iriscw.client.errors",
    "JobState": "iriscw.jobs.model",
    "JobStatus": "iriscw.client.model",
    "KeyedMethod": "iriscw.client.actors",
    "LogLine": "iriscw.client.model",
    "NamespacedResolver": "iriscw.client.resolving",
    "NodeStatus": "iriscw.client.model",
    "OrderStatus": "iriscw.client.model",
    "PeerAddress": "iriscw.client.model",
    "PoolDemand": "iriscw.client.model",
    "PoolPassed": "iriscw.client.model",
    "PoolStatus": "iriscw.client.model",
    "ProgressStatus": "iriscw.client.model",
    "Resources": "iriscw.resources",
    "SliceStatus": "iriscw.client.model",
    "Suspension": "iriscw.jobs.model",
    "TaskFailed": "iriscw.client.errors",
    "TaskContext": "iriscw.task.context",
    "TaskState": "iriscw.jobs.model",
    "TaskCheckpoint": "iriscw.client.model",
    "TaskCheckpoints": "iriscw.client.model",
    "TaskStatus": "iriscw.client.model",
    "TaskSuspension": "iriscw.client.model",
    "TierStatus": "iriscw.client.model",
    "WaitTimeout": "iriscw.client.errors",
    "WorkerStatus": "iriscw.client.model",
    "blocking": "iriscw.blocking",
    "connect": "iriscw.client.client",
    "connect_kubernetes": "iriscw.kubernetes",
    "context": "iriscw.task.context",
    "progress": "iriscw.task.progress",
    "load_config": "iriscw.config.load",
    "errors": "iriscw.errors",
    "fray": "iriscw.fray",
    "runtime": "iriscw.runtime",
    "testing": "iriscw.testing",
}
"""Where each public name is defined. A module by its own name stands as ``"testing": "iriscw.testing"``."""


_shelf = Shelf(__name__, globals(), _MODULE_OF)

if not TYPE_CHECKING:  # a type checker that saw this would accept every misspelt name

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used (PEP 562)."""
        return _shelf.load(name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


importlib.import_module("iriscw.errors")  # tracebacks show errors by their public names
