"""The folder of an attempt as a part of its checkpoint: what stands in the manifest of it, and the format of its file.

The file ``folder.pack`` among the images is a text line, then one entry after the other, then a line that ends it::

    iriscw-folder 1
    {"changed_ns":…,"extents":[[0,4096]],"group":0,"kind":"file","mode":384,"path":"work/a",…}
    <4096 bytes>
    …
    {"end":17}

Each entry is one line of JSON, and after that of a file come the bytes of its extents, one after the other; what lies
between these is a hole. Folders stand before what is in them. Names that are no text are kept as Python keeps them
(``surrogateescape``).

What is read here was sealed by somebody who could write into the tier, and may have been made up: a name leads nowhere
but below the folder, and nothing that was not an entry of this file before is written through.

*Grants* (:mod:`iriscw.processes.grants`) do not travel. One that is on offer is left out, and one that was taken is
carried as spent: so a copy of the folder lets nothing run until somebody grants that on the machine where it is.
"""

from __future__ import annotations

import enum
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final

import attrs

from iriscw._errors import OperationError

PACK: Final = "folder.pack"
"""The file among the images. CRIU does not look at files that it does not know."""

MAGIC: Final = b"iriscw-folder 1\n"

MAX_ENTRIES: Final = 200_000
"""Names in a folder: the largest installations of Python packages have half as many."""

MAX_FOLDER_BYTES: Final = 1 << 40
MAX_FILE_BYTES: Final = 1 << 44
"""Of one file, holes included."""

MAX_DEPTH: Final = 100
"""Folders in each other; as many descriptors are open while one is read."""

MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4096
"""The kernel's limits."""

MAX_EXTENTS: Final = 4096
"""Pieces of a file between holes; holes beyond them are written as zeros."""

MAX_ATTRIBUTES_BYTES: Final = 64 << 10
"""Of the extended attributes of one file."""

MAX_HEADER_BYTES: Final = 512 << 10
"""Of the line of one entry: a name and a target whose every byte is escaped, the attributes and the extents."""

ROW_BYTES: Final = 1 << 10
"""About what the line of an entry takes."""

MARK: Final = "carried.json"
"""The file in a folder that says which checkpoint it was packed into, and which thaw has put it there."""

OFFERED, TAKEN, SPENT = "grant.json", "grant.json.taken", "grant.json.spent"
"""As :mod:`iriscw.processes.grants` has them."""

LEFT_OUT: Final = (OFFERED, MARK)
"""What is never carried."""

_NO_GRANTS: Final = (OFFERED, TAKEN, MARK)
_MAX_ID: Final = (1 << 32) - 2
_MAX_NS: Final = 1 << 63


class FolderUnfit(OperationError):
    """The folder of an attempt cannot be a part of its checkpoint; the text says why. Nothing was touched."""


class FolderDamaged(OperationError):
    """The folder that a checkpoint carries is not in a form that this version writes. Nothing of it is in its place."""


class FolderInTheWay(OperationError):
    """The folder that a checkpoint carries cannot be put in its place; the text says why. What was there is there."""


class PackedKind(enum.Enum):
    """What an entry is."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    """A symbolic one, to ``target``."""
    SAME = "same"
    """One more name of the file ``target``, which stands before it."""
    FIFO = "fifo"
    SOCKET = "socket"
    """The name of a Unix socket. CRIU makes those anew that the tree has; the others have nobody behind them."""


@attrs.frozen
class PackedEntry:
    """One entry. ``path`` is below the folder; the folder itself has none."""

    path: str
    kind: PackedKind
    mode: int
    user: int
    group: int
    changed_ns: int
    """When its content was changed last: CRIU does not compare it, and programs may."""
    size_bytes: int = 0
    extents: tuple[tuple[int, int], ...] = ()
    """Where its data begins, and how much it is."""
    target: str = ""
    attributes: tuple[tuple[str, bytes], ...] = ()

    @property
    def data_bytes(self) -> int:
        """Return how many bytes come after its line."""
        return sum(length for _, length in self.extents)

    @property
    def parent(self) -> str:
        """Return the path of the folder that it is in."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Return its name there."""
        return self.path.rpartition("/")[2]


def encode(entry: PackedEntry) -> bytes:
    """Return the line of an entry.

    Raises:
        FolderUnfit: it is longer than a line may be.
    """
    fields = {
        "path": entry.path,
        "kind": entry.kind.value,
        "mode": entry.mode,
        "user": entry.user,
        "group": entry.group,
        "changed_ns": entry.changed_ns,
        "size_bytes": entry.size_bytes,
        "extents": entry.extents,
        "target": entry.target,
        "attributes": [[name, b64encode(value).decode()] for name, value in entry.attributes],
    }
    line = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_HEADER_BYTES:
        raise FolderUnfit(f"what is to be said of {entry.path[:200]!a} takes {len(line)} bytes")
    return line


def encode_end(entries: int) -> bytes:
    """Return the last line."""
    return json.dumps({"end": entries}).encode() + b"\n"


def decode(line: bytes) -> PackedEntry | int:
    """Read a line: an entry, or how many there were.

    Raises:
        FolderDamaged: it is none of ours, or leads out of the folder.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FolderDamaged(f"a line of {PACK} is none: {line[:80]!a}") from error
    match found:
        case {"end": int(entries), **rest} if not rest:
            return entries
        case {
            "path": str(path),
            "kind": str(kind),
            "mode": int(mode),
            "user": int(user),
            "group": int(group),
            "changed_ns": int(changed_ns),
            "size_bytes": int(size_bytes),
            "extents": list(extents),
            "target": str(target),
            "attributes": list(attributes),
            **rest,
        } if not rest:
            pass
        case _:
            raise FolderDamaged(f"a line of {PACK} has other fields: {line[:80]!a}")
    try:
        entry = PackedEntry(
            path=path,
            kind=PackedKind(kind),
            mode=mode,
            user=user,
            group=group,
            changed_ns=changed_ns,
            size_bytes=size_bytes,
            extents=tuple((int(offset), int(length)) for offset, length in extents),
            target=target,
            attributes=tuple((str(name), b64decode(value, validate=True)) for name, value in attributes),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise FolderDamaged(f"a line of {PACK} has something else in a field: {line[:80]!a}") from error
    if trouble := _trouble(entry):
        raise FolderDamaged(f"{PACK}: {path[:200]!a}: {trouble}")
    return entry


def name_trouble(path: str) -> str:
    """Say why a path cannot be that of an entry; empty if it can."""
    if path == "":
        return ""
    try:
        whole = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "its name is none"
    if len(whole) > MAX_PATH_BYTES or b"\0" in whole:
        return "its path is too long, or has a zero in it"
    parts = whole.split(b"/")
    if len(parts) > MAX_DEPTH:
        return f"it is more than {MAX_DEPTH} folders deep"
    if any(part in (b"", b".", b"..") or len(part) > MAX_NAME_BYTES for part in parts):
        return "its path does not lead straight down"
    return ""


def _is_text(name: str) -> bool:
    """Whether a file system can be told this."""
    try:
        return len(name.encode("utf-8", "surrogateescape")) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False


def _trouble(entry: PackedEntry) -> str:
    if trouble := name_trouble(entry.path):
        return trouble
    if not (0 <= entry.mode <= 0o7777 and 0 <= entry.user <= _MAX_ID and 0 <= entry.group <= _MAX_ID):
        return "its mode or its owner is none"
    if not (-_MAX_NS < entry.changed_ns < _MAX_NS and 0 <= entry.size_bytes <= MAX_FILE_BYTES):
        return "its time or its size is none"
    if entry.kind is not PackedKind.FILE and (entry.size_bytes or entry.extents):
        return "only a file has a size"
    if bool(entry.target) != (entry.kind in (PackedKind.LINK, PackedKind.SAME)) or "\0" in entry.target:
        return "it leads somewhere, or nowhere, and should not"
    if not all(_is_text(each) for each in (entry.target, *(name for name, _ in entry.attributes))):
        return "where it leads, or the name of an attribute, is none"
    if entry.kind is PackedKind.SAME and (name_trouble(entry.target) or entry.attributes):
        return "the file that it is another name of has no such name"
    if entry.attributes and entry.kind not in (PackedKind.FILE, PackedKind.FOLDER):
        return "it has attributes, and can have none"
    if any(not name.startswith("user.") or "\0" in name for name, _ in entry.attributes):
        return "it has attributes that are not its owner's"
    end = 0
    for offset, length in entry.extents:
        if offset < end or length <= 0:
            return "its pieces overlap"
        end = offset + length
    return "it has more data than it is long" if end > entry.size_bytes else ""


@attrs.define
class PackReading:
    """What was read of a file so far: an entry has to fit those before it."""

    kinds: dict[str, PackedKind] = attrs.field(factory=dict)
    size_bytes: int = 0
    ended: bool = False

    def take(self, entry: PackedEntry) -> None:
        """Take note of the next entry.

        Raises:
            FolderDamaged: it does not fit.
        """
        if trouble := self._misfit(entry):
            raise FolderDamaged(f"{PACK}: {entry.path[:200]!a}: {trouble}")
        self.kinds[entry.path] = entry.kind
        self.size_bytes += entry.data_bytes

    def end(self, entries: int) -> None:
        """Take note of the last line.

        Raises:
            FolderDamaged: there were not so many entries, or none.
        """
        if entries != len(self.kinds) or not entries:
            raise FolderDamaged(f"{PACK} has {len(self.kinds)} entries, and {entries} were written")
        self.ended = True

    def _misfit(self, entry: PackedEntry) -> str:
        if not self.kinds:
            return "" if entry.path == "" and entry.kind is PackedKind.FOLDER else "the folder itself has to be first"
        if entry.path in self.kinds:
            return "it is there twice"
        if self.kinds.get(entry.parent) is not PackedKind.FOLDER:
            return "the folder that it is in is not before it"
        if entry.kind is PackedKind.SAME and self.kinds.get(entry.target) is not PackedKind.FILE:
            return "the file that it is another name of is not before it"
        if entry.path in _NO_GRANTS:
            return "a grant, or a mark, is never carried"
        if len(self.kinds) >= MAX_ENTRIES or self.size_bytes + entry.data_bytes > MAX_FOLDER_BYTES:
            return f"there are more than {MAX_ENTRIES} entries, or {MAX_FOLDER_BYTES >> 30} GiB"
        return ""


def carried_as(path: str, names: Iterable[str]) -> str:
    """Return the name that something is carried under; empty if it is left out.

    Args:
        path: below the folder.
        names: of all that is in the folder itself.
    """
    if path in LEFT_OUT or (path == SPENT and TAKEN in names):
        return ""
    return SPENT if path == TAKEN else path
