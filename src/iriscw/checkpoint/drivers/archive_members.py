"""The members of an exported checkpoint: a tar file that every ``tar`` unpacks, and of which little is believed.

::

    manifest.jsonl         as it was sealed
    images/<name>          each file that it names, as CRIU reads it, in its order

Members are plain files of mode 0600 that belong to nobody and have no time, so the same checkpoint gives the same bytes
on every machine. Names longer than 100 characters, and sizes from 8 GiB on, stand in a header of POSIX's (pax) before
the member's own; nothing else may stand there. Such a file may have been made by anybody. So headers are read one by
one and within a bound, here and not by :class:`tarfile.TarFile`, which reads as much as a header says, and knows links,
devices and sparse files.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable
from typing import Final, Literal

import attrs

from iriscw.checkpoint.manifest import FILE_NAME, MAX_FILE_BYTES
from iriscw.freeze.model import ArtifactRefused

MANIFEST_MEMBER: Final = "manifest.jsonl"
IMAGES_FOLDER: Final = "images/"

BLOCK: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * BLOCK)
MAX_PAX_BYTES: Final = 4096
"""Of a header before a member: a name of 207 characters and a size."""

_MODE: Final = 0o600
_PAX_RECORD: Final = re.compile(rb"([1-9][0-9]{0,3}) (path|size)=([^\n]*)\n")
_PAX_HEADER: Final = "pax"

Trouble = Literal["header", "name", "kind", "size", "short", "manifest", "changed", "missing", "taken"]


class ArchiveRefused(ArtifactRefused):
    """A file is no exported checkpoint, or not a whole one. Nothing of it was kept.

    Attributes:
        trouble: what is wrong: ``header`` (it is no tar file), ``name``, ``kind`` (a link, a folder, a device) or
            ``size`` of a member; ``short`` (it ends early); ``manifest``; a file was ``changed`` or is
            ``missing``; ``taken`` (there is another checkpoint of this id here).
    """

    def __init__(self, text: str, trouble: Trouble) -> None:
        super().__init__(text)
        self.trouble = trouble


@attrs.frozen
class Member:
    """A member's header: a plain file of a checkpoint."""

    name: str
    size_bytes: int

    @property
    def padding(self) -> int:
        """How many bytes follow those of the member, so that the next header begins with a block."""
        return -self.size_bytes % BLOCK


def header_of(member: Member) -> bytes:
    """Write a member's header."""
    info = tarfile.TarInfo(member.name)
    info.size, info.mode = member.size_bytes, _MODE
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write bytes into an open file."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def next_member(read: Callable[[int], bytes]) -> Member | None:
    """Read the next header; None at the end.

    Args:
        read: gives so many bytes, or fewer where the file ends.

    Raises:
        ArchiveRefused: it is none of an exported checkpoint.
    """
    info = _header(read)
    said: dict[str, str] = {}
    if info is not None and info.type == tarfile.XHDTYPE:
        said = _pax(info, read)
        info = _header(read)
        if info is None:
            raise ArchiveRefused("the last header has no member", "header")
    if info is None:
        return None
    name = said.get("path", info.name)
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise ArchiveRefused(f"{name[:80]!a} is not a plain file", "kind")
    image = name.removeprefix(IMAGES_FOLDER)
    if name != MANIFEST_MEMBER and (image == name or not FILE_NAME.fullmatch(image)):
        raise ArchiveRefused(f"{name[:80]!a} is not a file of a checkpoint", "name")
    size_bytes = int(said["size"]) if "size" in said else info.size
    if not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise ArchiveRefused(f"{name} has {size_bytes} bytes", "size")
    return Member(name, size_bytes)


def _header(read: Callable[[int], bytes]) -> tarfile.TarInfo | None:
    block = read(BLOCK)
    if len(block) == BLOCK and not any(block):
        return None
    if len(block) < BLOCK:
        raise ArchiveRefused("it ends where a header should be", "short")
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise ArchiveRefused("it has something else where a header of a tar file should be", "header") from error


def _pax(info: tarfile.TarInfo, read: Callable[[int], bytes]) -> dict[str, str]:
    """Read what stands before a member's header."""
    if not 0 < info.size <= MAX_PAX_BYTES:
        raise ArchiveRefused(f"a {_PAX_HEADER} header has {info.size} bytes: at most {MAX_PAX_BYTES}", "size")
    whole = info.size + -info.size % BLOCK
    data = read(whole)
    if len(data) < whole:
        raise ArchiveRefused("it ends within a header", "short")
    said, at = dict[str, str](), 0
    while at < info.size:
        found = _PAX_RECORD.match(data, at, info.size)
        if found is None or int(found[1]) != found.end() - at:
            raise ArchiveRefused(f"a {_PAX_HEADER} header says something else than a name and a size", "header")
        said[found[2].decode()] = os.fsdecode(found[3])
        at = found.end()
    if "size" in said and not re.fullmatch("[0-9]{1,19}", said["size"], re.ASCII):
        raise ArchiveRefused(f"a {_PAX_HEADER} header has a size that is not a number", "header")
    return said
