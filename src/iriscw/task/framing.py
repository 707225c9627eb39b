"""The frame around everything that is pickled: who wrote it, for which Python, and whether it is whole.

A pickle made by one version of Python can crash the interpreter of another one when it holds code, and a
damaged pickle can do anything. So a pickle travels in a frame that is checked before a byte of it is
unpickled::

    offset  size  what
    0       8     magic: b"IRISCALL" for a call, b"IRISDONE" for a result, b"IRISSNAP" for a snapshot
    8       2     version of this format, big-endian: 1
    10      2     Python that wrote it: major, minor
    12      4     length of the summary, big-endian
    16      8     length of the body, big-endian
    24      32    SHA-256 of bytes 0 to 23, the summary and the body
    56            summary: JSON, readable by anybody
                  body: the pickle, for whoever may run the job's code

The hash finds damage; it proves no origin. A frame is trusted because of where it came from: the job's own
submitter, through doors that check tokens.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from typing import Any

import attrs

from iriscw._errors import OperationError, UsageError

FORMAT_VERSION = 1
_HEAD = struct.Struct(">8sHBBIQ")
_DIGEST_BYTES = 32
HEADER_BYTES = _HEAD.size + _DIGEST_BYTES


class FrameCorrupt(OperationError):
    """The bytes are no frame of this kind, are cut short, or do not have the hash they were written with."""


class UnknownFormat(UsageError):
    """The frame was written by a later iriscw in a format that this one does not read."""


class PythonMismatch(UsageError):
    """The pickle was written by another Python (x.y); loading it could crash the interpreter."""


@attrs.frozen
class Frame:
    """A frame whose hash was checked; nothing of it was unpickled."""

    python: tuple[int, int]
    summary: dict[str, Any]
    body: bytes = attrs.field(repr=False)

    def check_python(self) -> None:
        """Refuse a frame that this interpreter must not unpickle.

        Raises:
            PythonMismatch: another Python wrote it.
        """
        if self.python != this_python():
            theirs, ours = python_name(self.python), python_name(this_python())
            raise PythonMismatch(f"it was written by Python {theirs} and cannot be loaded by Python {ours}")


def this_python() -> tuple[int, int]:
    """Return major and minor version of this interpreter."""
    return sys.version_info[:2]


def python_name(version: tuple[int, int]) -> str:
    """Write a version as the ``python`` attribute of workers does: ``3.11``."""
    return f"{version[0]}.{version[1]}"


def frame(magic: bytes, summary: dict[str, Any], body: bytes) -> bytes:
    """Put ``body`` into a frame."""
    encoded = json.dumps(summary).encode()
    head = _HEAD.pack(magic, FORMAT_VERSION, *this_python(), len(encoded), len(body))
    return head + _digest(head, encoded, body) + encoded + body


def unframe(magic: bytes, data: bytes) -> Frame:
    """Check a frame and take it apart.

    Raises:
        FrameCorrupt: it is none of this kind, or damaged.
        UnknownFormat: it is of a later version.
    """
    if len(data) < HEADER_BYTES:
        raise FrameCorrupt(f"{len(data)} bytes are less than a header")
    head = data[: _HEAD.size]
    found, version, major, minor, summary_bytes, body_bytes = _HEAD.unpack(head)
    if found != magic:
        raise FrameCorrupt(f"it begins with {found!r}, not {magic!r}")
    if version != FORMAT_VERSION:
        raise UnknownFormat(f"it has format {version}; this iriscw reads {FORMAT_VERSION}")
    end_of_summary = HEADER_BYTES + summary_bytes
    if len(data) != end_of_summary + body_bytes:
        raise FrameCorrupt(f"it has {len(data)} bytes instead of {end_of_summary + body_bytes}")
    summary, body = data[HEADER_BYTES:end_of_summary], data[end_of_summary:]
    if _digest(head, summary, body) != data[_HEAD.size : HEADER_BYTES]:
        raise FrameCorrupt("its SHA-256 does not fit: it was damaged on the way")
    return Frame((major, minor), _read_summary(summary), body)


def _read_summary(encoded: bytes) -> dict[str, Any]:
    """Read a summary. Its hash says that it arrived as it was written, not that it was written well: a task writes
    its result itself.
    """
    try:
        content = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise FrameCorrupt(f"its summary is not JSON ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise FrameCorrupt("its summary is not a JSON object")
    return content


def _digest(head: bytes, summary: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(summary)
    digest.update(body)
    return digest.digest()
