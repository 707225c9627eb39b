"""What can go wrong with a record, beside the journal's own errors in :mod:`iriscw.errors`."""

from __future__ import annotations

from iriscw._errors import OperationError, UsageError


class InvalidRecord(UsageError, ValueError):
    """A value that cannot be journaled: of an undeclared type, with a field of the wrong type, or too large.

    Nothing of the call that raised it was accepted.
    """


class UnreadableRecord(OperationError):
    """A record on disk that this version of iriscw cannot decode. The error names its sequence and type.

    The journal is whole; the program is too old for it, or lost an upcaster. Start the version that wrote it.
    """


class UnsupportedJournal(OperationError):
    """The file's layout is of another version of iriscw, or it is no journal at all."""


class JournalClosed(UsageError):
    """The journal was closed, or its process crashed in a simulation, before this call."""
