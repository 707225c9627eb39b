"""What a move asks of the world, as values: put them into ``Run``.

Each is carried out by :class:`~iriscw.checkpoint.drivers.carrier.Carrier`. All may be cancelled, and all may be
repeated by whoever takes a move up.

============ ========================================================================== =====================
value        what is done                                                               ``Completed.value``
============ ========================================================================== =====================
OpenSource   finds the checkpoint, pins it where it lies, looks whether the target has  SourceOpened
             it
CopyOver     takes room at the target, copies, compares every byte with the manifest;   None
             or compares what the target has already; reads back what a repository has
             stored, unless the source is kept
PublishCopy  makes the copy visible, pinned                                             None
DropSource   removes what the copy was made of, unless it is kept or used; unpins both  why it stays: a text
UndoCopy     removes what was written at the target, unpins                             None
============ ========================================================================== =====================
"""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class OpenSource:
    """Find a checkpoint and pin it. Nothing is changed."""

    operation: str
    artifact: str
    target: str
    source: str = ""
    """Where it is to be; empty: anywhere."""


@message
class SourceOpened:
    """What :class:`OpenSource` found."""

    source: str
    """The tier that it lies in beside the target, or the repository; empty if it is in the target alone."""
    size_bytes: int
    digest: str
    """That of the manifest."""
    there: bool = False
    """Whether the target has it."""


@message
class CopyOver:
    """Have the target hold a verified copy that nobody sees yet. A repository shows it at once."""

    operation: str
    artifact: str
    source: str
    target: str
    size_bytes: int
    keep: bool
    """Whether the source stays: then a repository need not read back what it has stored."""


@message
class PublishCopy:
    """Make the copy visible."""

    operation: str
    artifact: str
    target: str


@message
class DropSource:
    """Remove what the copy was made of, and let both go."""

    operation: str
    artifact: str
    source: str
    target: str
    digest: str
    """That of the manifest which the target must have."""
    keep: bool
    stays: str = ""
    """Why it is not removed although it was to be: then both are only let go."""
    tries: int = 0


@message
class UndoCopy:
    """Remove what was written at the target, and let the source go."""

    operation: str
    artifact: str
    source: str
    """Empty if it is not known."""
    target: str
    tries: int = 0
