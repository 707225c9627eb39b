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
        JournalLocked as JournalLocked,
        JournalLost as JournalLost,
        JournalUnavailable as JournalUnavailable,
        MailboxFull as MailboxFull,
        NoSuchActor as NoSuchActor,
        OperationError as OperationError,
        OutcomeUnknown as OutcomeUnknown,
        RestartsExhausted as RestartsExhausted,
        SystemClosed as SystemClosed,
        TellInsideDecision as TellInsideDecision,
        UnhandledMessage as UnhandledMessage,
        UsageError as UsageError,
    )

__all__ = [
    "ActorRestarted",
    "ActorStopped",
    "AskInsideDecision",
    "AskTimeout",
    "DispatcherBug",
    "InternalError",
    "InvalidArgument",
    "InvalidDecision",
    "IriscwError",
    "JournalCorrupt",
    "JournalLocked",
    "JournalLost",
    "JournalUnavailable",
    "MailboxFull",
    "NoSuchActor",
    "OperationError",
    "OutcomeUnknown",
    "RestartsExhausted",
    "SystemClosed",
    "TellInsideDecision",
    "UnhandledMessage",
    "UsageError",
]

_MODULE_OF: Final[dict[str, str]] = {
    "ActorRestarted": "iriscw.errors",
    "ActorStopped": "iriscw.errors",
    "AskInsideDecision": "iriscw.errors",
    "AskTimeout": "iriscw.errors",
    "DispatcherBug": "iriscw.errors",
    "InternalError": "iriscw.errors",
    "InvalidArgument": "iriscw.errors",
    "InvalidDecision": "iriscw.errors",
    "IriscwError": "iriscw.errors",
    "JournalCorrupt": "iriscw.errors",
    "JournalLocked": "iriscw.errors",
    "JournalLost": "iriscw.errors",
    "JournalUnavailable": "iriscw.errors",
    "MailboxFull": "iriscw.errors",
    "NoSuchActor": "iriscw.errors",
    "OperationError": "iriscw.errors",
    "OutcomeUnknown": "iriscw.errors",
    "RestartsExhausted": "iriscw.errors",
    "SystemClosed": "iriscw.errors",
    "TellInsideDecision": "iriscw.errors",
    "UnhandledMessage": "iriscw.errors",
    "UsageError": "iriscw.errors",
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
