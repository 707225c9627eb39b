"""iriscw: the control plane for GPU fleets, as a tree of supervised actors.

What users import stands here, and only here. A name is loaded when it is first used, so that importing the
package costs next to nothing and loads no client library; the errors alone are there from the start, because
tracebacks show them.

To publish a name, add one line to each of the three tables below and one to ``docs/reference/``;
``tests/test_exports.py`` says what is missing. Whatever module defines it, users see it as ``iriscw.<name>``.
"""

import importlib
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Final

from iriscw._version import __version__ as __version__

if TYPE_CHECKING:
    import iriscw.blocking as blocking
    import iriscw.runtime as runtime
    import iriscw.testing as testing
    from iriscw.bundles.pack import (
        BundleTooLarge as BundleTooLarge,
        InvalidBundleFolder as InvalidBundleFolder,
    )
    from iriscw.client.client import (
        Client as Client,
        connect as connect,
    )
    from iriscw.client.errors import (
        InvalidContextFile as InvalidContextFile,
        InvalidJob as InvalidJob,
        JobFailed as JobFailed,
        NoController as NoController,
        NotConnected as NotConnected,
        OrderFailed as OrderFailed,
        PeerOver as PeerOver,
        ResultDamaged as ResultDamaged,
        ValuesUnreadable as ValuesUnreadable,
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
        JobStatus as JobStatus,
        LogLine as LogLine,
        NodeStatus as NodeStatus,
        OrderStatus as OrderStatus,
        PeerAddress as PeerAddress,
        PoolStatus as PoolStatus,
        SliceStatus as SliceStatus,
        TaskStatus as TaskStatus,
        TaskSuspension as TaskSuspension,
        TierStatus as TierStatus,
        WorkerStatus as WorkerStatus,
    )
    from iriscw.client.nodes import (
        Checkpoint as Checkpoint,
    )
    from iriscw.client.submission import (
        Command as Command,
    )
    from iriscw.cloud.drivers.local.folder import (
        WorkdirLocked as WorkdirLocked,
    )
    from iriscw.cluster import (
        Cluster as Cluster,
        ClusterNotRunning as ClusterNotRunning,
        MachinesLeft as MachinesLeft,
    )
    from iriscw.config.errors import (
        ConfigError as ConfigError,
        ConfigSyntaxError as ConfigSyntaxError,
        ConfigTooLarge as ConfigTooLarge,
        ConfigUnreadable as ConfigUnreadable,
    )
    from iriscw.config.load import (
        load_config as load_config,
    )
    from iriscw.deploy.errors import (
        ClusterRightsMissing as ClusterRightsMissing,
        ControllerNotReady as ControllerNotReady,
        NoInstallation as NoInstallation,
        SeveralInstallations as SeveralInstallations,
    )
    from iriscw.errors import (
        ActorRestarted as ActorRestarted,
        ActorStopped as ActorStopped,
        AskInsideDecision as AskInsideDecision,
        AskTimeout as AskTimeout,
        DispatcherBug as DispatcherBug,
        InternalError as InternalError,
        InvalidArgument as InvalidArgument,
        InvalidDecision as InvalidDecision,
        IriscwError as IriscwError,
        JournalCorrupt as JournalCorrupt,
        JournalFull as JournalFull,
        JournalLocked as JournalLocked,
        JournalLost as JournalLost,
        JournalUnavailable as JournalUnavailable,
        MailboxFull as MailboxFull,
        NoSuchActor as NoSuchActor,
        OperationError as OperationError,
        OutcomePending as OutcomePending,
        OutcomeUnknown as OutcomeUnknown,
        RestartsExhausted as RestartsExhausted,
        StrayExit as StrayExit,
        SystemClosed as SystemClosed,
        TellInsideDecision as TellInsideDecision,
        UnhandledMessage as UnhandledMessage,
        UsageError as UsageError,
        WrongTask as WrongTask,
    )
    from iriscw.fleet.model import NoSuchGroup as NoSuchGroup
    from iriscw.jobs.errors import (
        CommandKilled as CommandKilled,
        CommandNotStarted as CommandNotStarted,
        GangNotSuspendable as GangNotSuspendable,
        ImageNotSupported as ImageNotSupported,
        JobExists as JobExists,
        KeyReused as KeyReused,
        NoSuchJob as NoSuchJob,
        ParentOver as ParentOver,
        PythonNotSupported as PythonNotSupported,
        SuspensionRefused as SuspensionRefused,
        TaskEnded as TaskEnded,
        TaskNotRunning as TaskNotRunning,
        TooManyCommands as TooManyCommands,
        TooManyJobs as TooManyJobs,
        TooManyTasks as TooManyTasks,
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
    from iriscw.nodes.errors import (
        AgentAway as AgentAway,
        CheckpointAmbiguous as CheckpointAmbiguous,
        CheckpointNeeded as CheckpointNeeded,
        CheckpointUnknown as CheckpointUnknown,
        NodeConnected as NodeConnected,
        NoSuchNode as NoSuchNode,
        NoSuchOrder as NoSuchOrder,
        OrderKeyReused as OrderKeyReused,
        TaskOutOfReach as TaskOutOfReach,
        TooManyOrders as TooManyOrders,
    )
    from iriscw.resources import (
        InvalidResources as InvalidResources,
        Resources as Resources,
    )
    from iriscw.rpc.errors import (
        AddressInUse as AddressInUse,
        ClientClosed as ClientClosed,
        InsecureDoor as InsecureDoor,
        InvalidAddress as InvalidAddress,
        MessageTooLarge as MessageTooLarge,
        NeedsAsyncio as NeedsAsyncio,
        PeerNotTrusted as PeerNotTrusted,
        PermissionDenied as PermissionDenied,
        RpcDeadline as RpcDeadline,
        RpcUnavailable as RpcUnavailable,
        TooManyUnfinishedBytes as TooManyUnfinishedBytes,
        Unauthenticated as Unauthenticated,
        VersionMismatch as VersionMismatch,
        WrongLoop as WrongLoop,
    )
    from iriscw.task.context import (
        InsideLoop as InsideLoop,
        NoSuchPort as NoSuchPort,
        NotInTask as NotInTask,
        TaskContext as TaskContext,
        context as context,
    )
    from iriscw.task.environment import (
        InvalidPortName as InvalidPortName,
    )
    from iriscw.task.framing import (
        PythonMismatch as PythonMismatch,
    )
    from iriscw.task.payload import (
        NotPicklable as NotPicklable,
        PayloadTooLarge as PayloadTooLarge,
    )

__all__ = [
    "ActorRestarted",
    "ActorStatus",
    "ActorStopped",
    "AddressInUse",
    "AgentAway",
    "AskInsideDecision",
    "AskTimeout",
    "AttemptStatus",
    "BundleTooLarge",
    "Checkpoint",
    "CheckpointAmbiguous",
    "CheckpointNeeded",
    "CheckpointUnknown",
    "Client",
    "ClientClosed",
    "Cluster",
    "ClusterNotRunning",
    "ClusterRightsMissing",
    "ClusterStatus",
    "Command",
    "CommandKilled",
    "CommandNotStarted",
    "ConfigError",
    "ConfigSyntaxError",
    "ConfigTooLarge",
    "ConfigUnreadable",
    "ControllerNotReady",
    "DispatcherBug",
    "Ending",
    "Endpoint",
    "ExecOutput",
    "ExecResult",
    "GangNotSuspendable",
    "ImageNotSupported",
    "InsecureDoor",
    "InsideLoop",
    "InternalError",
    "InvalidAddress",
    "InvalidArgument",
    "InvalidBundleFolder",
    "InvalidContextFile",
    "InvalidDecision",
    "InvalidJob",
    "InvalidPortName",
    "InvalidResources",
    "IriscwError",
    "Job",
    "JobExists",
    "JobFailed",
    "JobState",
    "JobStatus",
    "JournalCorrupt",
    "JournalFull",
    "JournalLocked",
    "JournalLost",
    "JournalUnavailable",
    "KeyReused",
    "LogLine",
    "MachinesLeft",
    "MailboxFull",
    "MessageTooLarge",
    "NeedsAsyncio",
    "NoController",
    "NoInstallation",
    "NoSuchActor",
    "NoSuchGroup",
    "NoSuchJob",
    "NoSuchNode",
    "NoSuchOrder",
    "NoSuchPort",
    "NodeConnected",
    "NodeStatus",
    "NotConnected",
    "NotInTask",
    "NotPicklable",
    "OperationError",
    "OrderFailed",
    "OrderKeyReused",
    "OrderStatus",
    "OutcomePending",
    "OutcomeUnknown",
    "ParentOver",
    "PayloadTooLarge",
    "PeerAddress",
    "PeerNotTrusted",
    "PeerOver",
    "PermissionDenied",
    "PoolStatus",
    "PythonMismatch",
    "PythonNotSupported",
    "Resources",
    "RestartsExhausted",
    "ResultDamaged",
    "RpcDeadline",
    "RpcUnavailable",
    "SeveralInstallations",
    "SliceStatus",
    "StrayExit",
    "Suspension",
    "SuspensionRefused",
    "SystemClosed",
    "TaskContext",
    "TaskEnded",
    "TaskNotRunning",
    "TaskOutOfReach",
    "TaskState",
    "TaskStatus",
    "TaskSuspension",
    "TellInsideDecision",
    "TierStatus",
    "TooManyCommands",
    "TooManyJobs",
    "TooManyOrders",
    "TooManyTasks",
    "TooManyUnfinishedBytes",
    "Unauthenticated",
    "UnhandledMessage",
    "UsageError",
    "ValuesUnreadable",
    "VersionMismatch",
    "WaitTimeout",
    "WorkdirLocked",
    "WorkerStatus",
    "WrongLoop",
    "WrongTask",
    "blocking",
    "connect",
    "connect_kubernetes",
    "context",
    "load_config",
    "runtime",
    "testing",
]

_MODULE_OF: Final[dict[str, str]] = {
    "ActorRestarted": "iriscw.errors",
    "ActorStatus": "iriscw.client.model",
    "ActorStopped": "iriscw.errors",
    "AddressInUse": "iriscw.rpc.errors",
    "AgentAway": "iriscw.nodes.errors",
    "AskInsideDecision": "iriscw.errors",
    "AskTimeout": "iriscw.errors",
    "AttemptStatus": "iriscw.client.model",
    "BundleTooLarge": "iriscw.bundles.pack",
    "Checkpoint": "iriscw.client.nodes",
    "CheckpointAmbiguous": "iriscw.nodes.errors",
    "CheckpointNeeded": "iriscw.nodes.errors",
    "CheckpointUnknown": "iriscw.nodes.errors",
    "Client": "iriscw.client.client",
    "ClientClosed": "iriscw.rpc.errors",
    "Cluster": "iriscw.cluster",
    "ClusterNotRunning": "iriscw.cluster",
    "ClusterStatus": "iriscw.client.model",
    "Command": "iriscw.client.submission",
    "CommandKilled": "iriscw.jobs.errors",
    "CommandNotStarted": "iriscw.jobs.errors",
    "ConfigError": "iriscw.config.errors",
    "ConfigSyntaxError": "iriscw.config.errors",
    "ConfigTooLarge": "iriscw.config.errors",
    "ConfigUnreadable": "iriscw.config.errors",
    "ControllerNotReady": "iriscw.deploy.errors",
    "DispatcherBug": "iriscw.errors",
    "Ending": "iriscw.jobs.model",
    "Endpoint": "iriscw.client.model",
    "ExecOutput": "iriscw.client.model",
    "ExecResult": "iriscw.client.model",
    "GangNotSuspendable": "iriscw.jobs.errors",
    "ImageNotSupported": "iriscw.jobs.errors",
    "InsecureDoor": "iriscw.rpc.errors",
    "InsideLoop": "iriscw.task.context",
    "InternalError": "iriscw.errors",
    "InvalidAddress": "iriscw.rpc.errors",
    "InvalidArgument": "iriscw.errors",
    "InvalidBundleFolder": "iriscw.bundles.pack",
    "InvalidContextFile": "iriscw.client.errors",
    "InvalidDecision": "iriscw.errors",
    "InvalidJob": "iriscw.client.errors",
    "InvalidPortName": "iriscw.task.environment",
    "InvalidResources": "iriscw.resources",
    "IriscwError": "iriscw.errors",
    "Job": "iriscw.client.job",
    "JobExists": "iriscw.jobs.errors",
    "JobFailed": "iriscw.client.errors",
    "JobState": "iriscw.jobs.model",
    "JobStatus": "iriscw.client.model",
    "JournalCorrupt": "iriscw.errors",
    "JournalFull": "iriscw.errors",
    "JournalLocked": "iriscw.errors",
    "JournalLost": "iriscw.errors",
    "JournalUnavailable": "iriscw.errors",
    "KeyReused": "iriscw.jobs.errors",
    "LogLine": "iriscw.client.model",
    "MachinesLeft": "iriscw.cluster",
    "MailboxFull": "iriscw.errors",
    "MessageTooLarge": "iriscw.rpc.errors",
    "NeedsAsyncio": "iriscw.rpc.errors",
    "NoController": "iriscw.client.errors",
    "NoInstallation": "iriscw.deploy.errors",
    "NoSuchActor": "iriscw.errors",
    "NoSuchGroup": "iriscw.fleet.model",
    "NoSuchJob": "iriscw.jobs.errors",
    "NoSuchNode": "iriscw.nodes.errors",
    "NoSuchOrder": "iriscw.nodes.errors",
    "NoSuchPort": "iriscw.task.context",
    "NodeConnected": "iriscw.nodes.errors",
    "NodeStatus": "iriscw.client.model",
    "NotConnected": "iriscw.client.errors",
    "NotInTask": "iriscw.task.context",
    "NotPicklable": "iriscw.task.payload",
    "OperationError": "iriscw.errors",
    "OrderFailed": "iriscw.client.errors",
    "OrderKeyReused": "iriscw.nodes.errors",
    "OrderStatus": "iriscw.client.model",
    "OutcomePending": "iriscw.errors",
    "OutcomeUnknown": "iriscw.errors",
    "ParentOver": "iriscw.jobs.errors",
    "PayloadTooLarge": "iriscw.task.payload",
    "PeerAddress": "iriscw.client.model",
    "PeerNotTrusted": "iriscw.rpc.errors",
    "PeerOver": "iriscw.client.errors",
    "PermissionDenied": "iriscw.rpc.errors",
    "PoolStatus": "iriscw.client.model",
    "PythonMismatch": "iriscw.task.framing",
    "PythonNotSupported": "iriscw.jobs.errors",
    "Resources": "iriscw.resources",
    "RestartsExhausted": "iriscw.errors",
    "ResultDamaged": "iriscw.client.errors",
    "ClusterRightsMissing": "iriscw.deploy.errors",
    "RpcDeadline": "iriscw.rpc.errors",
    "RpcUnavailable": "iriscw.rpc.errors",
    "SeveralInstallations": "iriscw.deploy.errors",
    "SliceStatus": "iriscw.client.model",
    "StrayExit": "iriscw.errors",
    "Suspension": "iriscw.jobs.model",
    "SuspensionRefused": "iriscw.jobs.errors",
    "SystemClosed": "iriscw.errors",
    "TaskContext": "iriscw.task.context",
    "TaskEnded": "iriscw.jobs.errors",
    "TaskNotRunning": "iriscw.jobs.errors",
    "TaskOutOfReach": "iriscw.nodes.errors",
    "TaskState": "iriscw.jobs.model",
    "TaskStatus": "iriscw.client.model",
    "TaskSuspension": "iriscw.client.model",
    "TellInsideDecision": "iriscw.errors",
    "TierStatus": "iriscw.client.model",
    "TooManyCommands": "iriscw.jobs.errors",
    "TooManyJobs": "iriscw.jobs.errors",
    "TooManyOrders": "iriscw.nodes.errors",
    "TooManyTasks": "iriscw.jobs.errors",
    "TooManyUnfinishedBytes": "iriscw.rpc.errors",
    "Unauthenticated": "iriscw.rpc.errors",
    "UnhandledMessage": "iriscw.errors",
    "UsageError": "iriscw.errors",
    "ValuesUnreadable": "iriscw.client.errors",
    "VersionMismatch": "iriscw.rpc.errors",
    "WaitTimeout": "iriscw.client.errors",
    "WorkerStatus": "iriscw.client.model",
    "WrongLoop": "iriscw.rpc.errors",
    "WrongTask": "iriscw.errors",
    "WorkdirLocked": "iriscw.cloud.drivers.local.folder",
    "blocking": "iriscw.blocking",
    "connect": "iriscw.client.client",
    "connect_kubernetes": "iriscw.kubernetes",
    "context": "iriscw.task.context",
    "load_config": "iriscw.config.load",
    "runtime": "iriscw.runtime",
    "testing": "iriscw.testing",
}
"""Where each public name is defined. A module by its own name stands as ``"testing": "iriscw.testing"``."""


def _publish_loaded() -> None:
    """Bind the public names of all modules loaded by now, and let them call themselves ``iriscw.<name>``.

    All, not only the one asked for: ``connect`` returns a ``Client`` whose class nobody may have named yet.
    """
    for name, module in _MODULE_OF.items():
        loaded = sys.modules.get(module)
        if loaded is None or name in globals() or module == f"{__name__}.{name}":
            continue
        value = getattr(loaded, name, None)
        if value is None:
            continue  # the module is still being imported
        if isinstance(value, type | FunctionType):
            value.__module__ = __name__
        globals()[name] = value


if not TYPE_CHECKING:  # a type checker that saw this would accept every misspelt name

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used (PEP 562)."""
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        loaded = importlib.import_module(module)
        _publish_loaded()
        return loaded if module == f"{__name__}.{name}" else getattr(loaded, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


importlib.import_module("iriscw.errors")
_publish_loaded()
