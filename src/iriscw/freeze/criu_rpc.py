"""What is asked of CRIU and what it answers, as bytes: the protocol of ``criu swrk``, and its statistics.

One request goes over a socket of packets; CRIU answers with notifications, each of which waits for a reply, and with
one answer at the end. The numbers are those of CRIU's ``rpc.proto`` and ``stats.proto``, which it keeps.

Two notifications carry the weight (see :mod:`iriscw.freeze.drivers.criu.driver`):

* ``post-dump`` comes when the images are complete and the tree is still held. The reply decides: yes, and CRIU kills
  the tree; no, or a socket that was closed, and it lets the tree run as before.
* ``post-restore`` comes when every task of a restore exists and none has run. The reply lets CRIU go on.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from iriscw.freeze.criu_protobuf import NotProtobuf, decode, encode, message, replaced, signed, text, unsigned
from iriscw.freeze.model import CriuOptions, DumpReport, RestoreReport

MAX_MESSAGE_BYTES: Final = 1 << 20
"""Of one answer: the longest holds a message of error."""

LOG_LEVEL: Final = 4
"""Everything CRIU has to say: what a failure was is told by its log alone."""

POST_DUMP: Final = "post-dump"
POST_RESTORE: Final = "post-restore"

STATISTICS_MAGIC: Final = bytes.fromhex("4059105506330957")
"""How ``stats-dump`` and ``stats-restore`` begin: a service file of CRIU, with statistics."""


class CriuMessageKind(enum.IntEnum):
    """What is asked, and what an answer is about."""

    DUMP = 1
    RESTORE = 2
    CHECK = 3
    NOTIFY = 6
    VERSION = 10


class NetworkLock(enum.IntEnum):
    """How CRIU keeps the peers of connections silent between freezing and thawing."""

    IPTABLES = 1
    NFTABLES = 2
    SKIP = 3


class NotUnderstood(ValueError):
    """What CRIU said is nothing it says."""


@attrs.frozen
class CriuAnswer:
    """One message of CRIU: a notification that waits for a reply, or how it ended.

    Attributes:
        kind: What it answers, or ``NOTIFY``.
        success: Whether it did what was asked.
        script: The name of the notification.
        pid: The root of a restored tree, in the namespace of that CRIU; of a notification, the process it is about.
        number: Its ``cr_errno``: the kernel's number of the error, or 0.
        text: Its ``cr_errmsg``: the first errors of its log.
        version: Of an answer to ``VERSION``.
        git_id: Likewise.
    """

    kind: CriuMessageKind
    success: bool
    script: str = ""
    pid: int = 0
    number: int = 0
    text: str = ""
    version: str = ""
    git_id: str = ""


def ask_dump(pid: int, options: CriuOptions, *, images: str, timeout_s: int) -> bytes:
    """Ask for a dump of the tree below ``pid`` that waits with its result (``post-dump``).

    ``timeout_s`` bounds the freezing alone.
    """
    return encode([(1, CriuMessageKind.DUMP), (2, [(2, pid), *_common(options, images, "dump.log"), (45, timeout_s)])])


def ask_restore(options: CriuOptions, *, images: str, lazy: bool = False) -> bytes:
    """Ask for a tree from its images: it is left stopped, and is a child of that CRIU as long as that lives.

    With ``lazy`` it hands over the memory of each task on a socket in its folder, and reads only a little of it. A tree
    with a terminal is a child of whoever started that CRIU instead (``rst_sibling``): it stays one when CRIU ends.
    """
    more: list[tuple[int, int | str]] = [(26, True)] if options.shell_job else []
    return encode(
        [(1, CriuMessageKind.RESTORE), (2, [*_common(options, images, "restore.log"), *more, (48, lazy), (69, True)])]
    )


OTHERS_FIELDS: Final = (3, 11, 14, 15, 16, 17, 48, 49, 51)
"""What somebody else's request may say and ours never does: that the tree runs on, a page server, an earlier dump,
descriptors of folders, lazy pages, a file with options.
"""


def kind_of(request: bytes) -> CriuMessageKind | None:
    """Say what a request of somebody else asks for; None for what iriscw never asks.

    Raises:
        NotUnderstood: it is none.
    """
    try:
        number = unsigned(decode(request).get(1))
    except NotProtobuf as error:
        raise NotUnderstood(f"{error}") from error
    return next((kind for kind in CriuMessageKind if kind == number), None)


def taken_over(request: bytes, options: CriuOptions, *, images: str, timeout_s: int = 0) -> bytes:
    """Return a container runtime's request for a dump or a restore as we want it: our folders, our options.

    What only the runtime knows stays: its mounts, namespaces, control groups and descriptors.

    Args:
        request: what the runtime asks.
        options: those that iriscw was asked for.
        images: the folder of the images.
        timeout_s: of a dump, bounds the freezing.

    Raises:
        NotUnderstood: it is none.
    """
    try:
        fields = decode(request)
        restores = CriuMessageKind(unsigned(fields.get(1))) is CriuMessageKind.RESTORE
        ours = _common(options, images, "restore.log" if restores else "dump.log")
        ours += [(69, True)] if restores else [(45, timeout_s)]
        more: list[tuple[int, int | str | bytes | None]] = [*ours, *((number, None) for number in OTHERS_FIELDS)]
        return replaced(request, [(2, replaced(_whole(fields.get(2)), more))])
    except (NotProtobuf, ValueError) as error:
        raise NotUnderstood(f"{error}") from error


def _whole(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("a request without options")
    return value


def _common(options: CriuOptions, images: str, log_file: str) -> list[tuple[int, int | str]]:
    return [
        (1, -1),  # no descriptor: the folder is named
        (4, options.external_unix_sockets),
        (5, options.tcp_established),
        (7, options.shell_job),
        (8, options.file_locks),
        (9, LOG_LEVEL),
        (10, log_file),
        (12, True),  # notify_scripts
        (18, options.link_remap),
        (35, options.ghost_limit_bytes),
        (52, options.tcp_close),
        (64, NetworkLock.NFTABLES if options.tcp_established else NetworkLock.SKIP),
        (68, images),
    ]


def reply(*, success: bool) -> bytes:
    """Answer a notification."""
    return encode([(1, CriuMessageKind.NOTIFY), (3, success)])


def read_answer(data: bytes) -> CriuAnswer:
    """Read one message of CRIU.

    Raises:
        NotUnderstood: it is none, or of a kind that nobody asked for.
    """
    try:
        fields = decode(data)
        kind = CriuMessageKind(unsigned(fields.get(1)))
        version = message(fields.get(10))
        return CriuAnswer(
            kind=kind,
            success=bool(unsigned(fields.get(2))),
            script=text(message(fields.get(5)).get(1)),
            pid=signed(message(fields.get(4)).get(1)) or signed(message(fields.get(5)).get(2)),
            number=abs(signed(fields.get(7))),
            text=text(fields.get(9)),
            version=_version(version) if kind is CriuMessageKind.VERSION else "",
            git_id=text(version.get(3)),
        )
    except (NotProtobuf, ValueError) as error:
        raise NotUnderstood(f"{error}") from error


def _version(fields: dict[int, int | bytes]) -> str:
    numbers = [unsigned(fields.get(1)), unsigned(fields.get(2)), *([unsigned(fields[4])] if 4 in fields else [])]
    return ".".join(map(str, numbers))


def read_dump_statistics(data: bytes) -> DumpReport:
    """Read ``stats-dump``; a file that is none, or has none of a dump, gives zeros: nothing rests on them."""
    found = _statistics(data, 1)
    return DumpReport(
        freezing_us=unsigned(found.get(1)),
        frozen_us=unsigned(found.get(2)),
        memory_dump_us=unsigned(found.get(3)),
        memory_write_us=unsigned(found.get(4)),
        pages_scanned=unsigned(found.get(5)) + unsigned(found.get(12)),
        pages_written=unsigned(found.get(7)) + unsigned(found.get(14)),
    )


def read_restore_statistics(data: bytes) -> RestoreReport:
    """Read ``stats-restore`` into a report without tasks; likewise."""
    found = _statistics(data, 2)
    return RestoreReport(
        tasks=(),
        forking_us=unsigned(found.get(3)),
        restore_us=unsigned(found.get(4)),
        pages_restored=unsigned(found.get(5)),
    )


def _statistics(data: bytes, field: int) -> dict[int, int | bytes]:
    """Read an image with one entry: two magic numbers, the entry's length, the entry."""
    if not data.startswith(STATISTICS_MAGIC):
        return {}
    length = int.from_bytes(data[8:12], "little")
    try:
        return message(decode(data[12 : 12 + length]).get(field))
    except NotProtobuf:
        return {}
