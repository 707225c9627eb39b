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
    from iriscw.client.client import (
        Client as Client,
        connect as connect,
    )
    from iriscw.client.errors import (
        InvalidJob as InvalidJob,
        JobFailed as JobFailed,
        NoController as NoController,
        WaitTimeout as WaitTimeout,
    )
    from iriscw.client.job import (
        Job as Job,
    )
    from iriscw.client.model import (
        ClusterStatus as ClusterStatus,
        JobStatus as JobStatus,
        LogLine as LogLine,
        PoolStatus as PoolStatus,
        SliceStatus as SliceStatus,
        TaskStatus as TaskStatus,
    )
    from iriscw.client.submission import (
        Command as Command,
    )
    from iriscw.cluster import (
        Cluster as Cluster,
        ClusterNotRunning as ClusterNotRunning,
    )
    from iriscw.config.load import (
        load_config as load_config,
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
        SystemClosed as SystemClosed,
        TellInsideDecision as TellInsideDecision,
        UnhandledMessage as UnhandledMessage,
        UsageError as UsageError,
    )
    from iriscw.jobs.errors import (
        JobExists as JobExists,
        NoSuchJob as NoSuchJob,
    )
    from iriscw.resources import (
        Resources as Resources,
    )
    from iriscw.task.context import (
        context as context,
    )

__all__ = [
    "ActorRestarted",
    "ActorStopped",
    "AskInsideDecision",
    "AskTimeout",
    "Client",
    "Cluster",
    "ClusterNotRunning",
    "ClusterStatus",
    "Command",
    "DispatcherBug",
    "InternalError",
    "InvalidArgument",
    "InvalidDecision",
    "InvalidJob",
    "IriscwError",
    "Job",
    "JobExists",
    "JobFailed",
    "JobStatus",
    "JournalCorrupt",
    "JournalFull",
    "JournalLocked",
    "JournalLost",
    "JournalUnavailable",
    "LogLine",
    "MailboxFull",
    "NoController",
    "NoSuchActor",
    "NoSuchJob",
    "OperationError",
    "OutcomePending",
    "OutcomeUnknown",
    "PoolStatus",
    "Resources",
    "RestartsExhausted",
    "SliceStatus",
    "SystemClosed",
    "TaskStatus",
    "TellInsideDecision",
    "UnhandledMessage",
    "UsageError",
    "WaitTimeout",
    "blocking",
    "connect",
    "context",
    "load_config",
    "runtime",
    "testing",
]

_MODULE_OF: Final[dict[str, str]] = {
    "ActorRestarted": "iriscw.errors",
    "ActorStopped": "iriscw.errors",
    "AskInsideDecision": "iriscw.errors",
    "AskTimeout": "iriscw.errors",
    "Client": "iriscw.client.client",
    "Cluster": "iriscw.cluster",
    "ClusterNotRunning": "iriscw.cluster",
    "ClusterStatus": "iriscw.client.model",
    "Command": "iriscw.client.submission",
    "DispatcherBug": "iriscw.errors",
    "InternalError": "iriscw.errors",
    "InvalidArgument": "iriscw.errors",
    "InvalidDecision": "iriscw.errors",
    "InvalidJob": "iriscw.client.errors",
    "IriscwError": "iriscw.errors",
    "Job": "iriscw.client.job",
    "JobExists": "iriscw.jobs.errors",
    "JobFailed": "iriscw.client.errors",
    "JobStatus": "iriscw.client.model",
    "JournalCorrupt": "iriscw.errors",
    "JournalFull": "iriscw.errors",
    "JournalLocked": "iriscw.errors",
    "JournalLost": "iriscw.errors",
    "JournalUnavailable": "iriscw.errors",
    "LogLine": "iriscw.client.model",
    "MailboxFull": "iriscw.errors",
    "NoController": "iriscw.client.errors",
    "NoSuchActor": "iriscw.errors",
    "NoSuchJob": "iriscw.jobs.errors",
    "OperationError": "iriscw.errors",
    "OutcomePending": "iriscw.errors",
    "OutcomeUnknown": "iriscw.errors",
    "PoolStatus": "iriscw.client.model",
    "Resources": "iriscw.resources",
    "RestartsExhausted": "iriscw.errors",
    "SliceStatus": "iriscw.client.model",
    "SystemClosed": "iriscw.errors",
    "TaskStatus": "iriscw.client.model",
    "TellInsideDecision": "iriscw.errors",
    "UnhandledMessage": "iriscw.errors",
    "UsageError": "iriscw.errors",
    "WaitTimeout": "iriscw.client.errors",
    "blocking": "iriscw.blocking",
    "connect": "iriscw.client.client",
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
