"""The rules with which CRIU keeps the peers of a frozen tree silent, and how they go when CRIU cannot remove them.

For the connections of a tree CRIU makes a table ``inet CRIU-<id>`` of nftables, in the network namespace of the tree,
where ``<id>`` is the beginning of an id that it drew for this run and wrote to its log. When CRIU is killed by SIGKILL
nobody removes it. Only a table whose name is the beginning of the id in the log of our own run is touched: the id is
random, and long enough that nobody else has one like it.

The table of a tree that is frozen stays: its peers are to be silent until it is thawed, and CRIU removes it then. When
its checkpoint is removed nobody will, so that is done here (:func:`forget`). The images say which run made them.

It is spoken to the kernel itself (netlink, the messages of ``nf_tables``): ``nft`` need not be installed. A connection
of the tree does not outlive the death of its CRIU, because the kernel had been told to hold it; its peer hears so now.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from iriscw.files import read_bounded
from iriscw.freeze.criu_protobuf import NotProtobuf, decode
from iriscw.freeze.drivers.identities import lives
from iriscw.freeze.drivers.namespace.entering import CLONE_NEWNET, within
from iriscw.freeze.model import TaskIdentity

log = logging.getLogger(__name__)

_RUN_ID: Final = re.compile(r"CRIU run id = ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_ID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PREFIX: Final = "CRIU-"
MIN_ID_CHARS: Final = 16
"""Of the id in a table's name. CRIU's names have room for 21 of its 36."""

DUMP_LOG: Final = "dump.log"
MAX_BEGINNING_BYTES: Final = 64 << 10
"""Of a log, in which the id of its run stands: it is among the first lines."""

INVENTORY: Final = "inventory.img"
INVENTORY_MAGIC: Final = bytes.fromhex("16313158")
NONE: Final = "none"
"""In place of the id of a run that made no rules: there is nothing to look for."""

_LOCK_METHOD, _DUMP_RUN = 11, 13
"""Fields of CRIU's ``inventory.proto``."""

_LOCK_SKIPPED: Final = 2
"""``NETWORK_LOCK_SKIP``: what we ask for where no connection is kept."""

ANSWER_S: Final = 5.0
"""For an answer of the kernel, which comes before the call that asked returns."""

_NETLINK_NETFILTER: Final = 12
_NF_TABLES: Final = 10
_INET: Final = 1
_GET_TABLE: Final = _NF_TABLES << 8 | 1
_DELETE_TABLE: Final = _NF_TABLES << 8 | 2
_BATCH_BEGIN: Final = 16
_BATCH_END: Final = 17
_ERROR: Final = 2
_DONE: Final = 3
_REQUEST: Final = 0x1
_ACK: Final = 0x4
_DUMP: Final = 0x300
_NAME: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")


def run_id(log: str) -> str:
    """Find the id of a run in its log: the last one, which is the one it works with; empty if there is none."""
    found = _RUN_ID.findall(log)
    return str(found[-1]) if found else ""


def _beginning(log_file: Path) -> str:
    try:
        with log_file.open("rb") as file:
            return file.read(MAX_BEGINNING_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def is_table_of(name: str, run: str) -> bool:
    """Whether a table is that of the run with this id."""
    rest = name.removeprefix(_PREFIX)
    return rest != name and len(rest) >= MIN_ID_CHARS and run.startswith(rest)


async def unlock_network(work: Path, root: TaskIdentity) -> None:
    """Have the peers of a tree that runs again heard again, if its CRIU was killed and could not do it.

    That it fails changes nothing about the tree: it is logged.
    """
    try:
        for name in await anyio.to_thread.run_sync(unlock, work / DUMP_LOG, root):
            log.info("removed the nftables table %s, which a CRIU that was killed had left", name)
    except OSError as error:
        log.warning("a CRIU that was killed may have left rules in the nftables of process %d: %s", root.pid, error)


def unlock(log_file: Path, root: TaskIdentity) -> tuple[str, ...]:
    """Remove the table that a killed CRIU left for the tree below ``root``; give its name, if there was one.

    Nothing is done for a root that has ended: its tree may be frozen, and then its peers are to stay silent.

    Raises:
        OSError: the kernel does not let us look or remove.
    """
    run = run_id(_beginning(log_file))
    if not run or not lives(root):
        return ()
    there = Path(f"/proc/{root.pid}/ns/net")
    ours = Path("/proc/self/ns/net")
    try:
        if there.readlink() == ours.readlink():
            return _remove(run)
        with there.open("rb") as namespace:
            if not lives(root):
                return ()
            return within(((namespace.fileno(), CLONE_NEWNET),), lambda: _remove(run))
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return ()


def forget(images: Path, work: Path) -> None:
    """Remove the rules for a tree that will not be thawed, because its images are being removed.

    Which run made them stands in the images, or, where it never came to their end, in its log. Only our own network
    namespace is looked at: the tree of another one took that along, or runs again, and has been let go by then. That
    it fails keeps nobody from removing images: it is logged.

    Args:
        images: the folder of the images; it need not be there.
        work: that of CRIU's log, likewise.
    """
    try:
        run = run_of(images / INVENTORY) or run_id(_beginning(work / DUMP_LOG))
        for name in _remove(run) if run and run != NONE else ():
            log.info("removed the nftables table %s, whose tree is thawed no more", name)
    except OSError as error:
        log.warning("rules for connections of a removed checkpoint may be left in nftables: %s", error)


def run_of(inventory: Path) -> str:
    """Read the id of the run that made images; empty if they do not say, :data:`NONE` if it made no rules."""
    try:
        data = read_bounded(inventory, MAX_BEGINNING_BYTES)
    except (FileNotFoundError, ValueError):
        return ""
    size = int.from_bytes(data[4:8], "little")
    if not data.startswith(INVENTORY_MAGIC) or len(data) < 8 + size:
        return ""
    try:
        fields = decode(data[8 : 8 + size])
    except NotProtobuf:
        return ""
    if fields.get(_LOCK_METHOD) == _LOCK_SKIPPED:
        return NONE
    match fields.get(_DUMP_RUN):
        case bytes(text) if _ID.fullmatch(text):
            return text.decode()
    return ""


def _remove(run: str) -> tuple[str, ...]:
    with contextlib.closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)) as channel:
        channel.settimeout(ANSWER_S)
        channel.bind((0, 0))
        found = tuple(name for name in _tables(channel) if is_table_of(name, run))
        for name in found:
            _delete(channel, name)
    return found


def _message(kind: int, flags: int, *, family: int = 0, resource: int = 0, body: bytes = b"") -> bytes:
    content = struct.pack(">BBH", family, 0, resource) + body
    return _HEADER.pack(_HEADER.size + len(content), kind, _REQUEST | flags, 0, 0) + content


def _tables(channel: socket.socket) -> Iterator[str]:
    """List the tables of the family ``inet``."""
    channel.send(_message(_GET_TABLE, _DUMP, family=_INET))
    while True:
        for kind, content in _answers(channel):
            if kind == _DONE:
                return
            yield from _names(content[4:])


def _delete(channel: socket.socket, name: str) -> None:
    value = name.encode() + b"\0"
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), _NAME) + value + b"\0" * (-len(value) % 4)
    begin = _message(_BATCH_BEGIN, 0, resource=_NF_TABLES)
    channel.send(
        begin
        + _message(_DELETE_TABLE, _ACK, family=_INET, body=attribute)
        + _message(_BATCH_END, 0, resource=_NF_TABLES)
    )
    for _ in _answers(channel, gone=errno.ENOENT):
        return


def _answers(channel: socket.socket, gone: int = 0) -> list[tuple[int, bytes]]:
    """Read one packet of answers.

    Raises:
        OSError: the kernel says no; ``gone`` is the number of an error that is none.
    """
    data, found = channel.recv(1 << 16), []
    while len(data) >= _HEADER.size:
        size, kind, *_ = _HEADER.unpack_from(data)
        content = data[_HEADER.size : size]
        number = -int.from_bytes(content[:4], sys.byteorder, signed=True) if kind == _ERROR else 0
        if number not in (0, gone):
            raise OSError(number, f"nftables: {os.strerror(number)}")
        found.append((kind, content))
        data = data[(size + 3) & ~3 or len(data) :]
    return found


def _names(data: bytes) -> Iterator[str]:
    """Read the names among the attributes of a table."""
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if kind == _NAME:
            yield data[_ATTRIBUTE.size : size].rstrip(b"\0").decode(errors="replace")
        data = data[(size + 3) & ~3 or len(data) :]
