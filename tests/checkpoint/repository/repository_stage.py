"""Folders of images, and a repository in memory, for tests of what lies in one."""

import random
import struct
from pathlib import Path

from artifacts import FROZEN

from iriscw.checkpoint.drivers.digests import Reading, listed, open_folder
from iriscw.checkpoint.drivers.repository.protection import PLAIN
from iriscw.checkpoint.drivers.repository.repository import ObjectRepository
from iriscw.checkpoint.manifest import seal
from iriscw.freeze.criu_images import PAGEMAP_MAGIC
from iriscw.freeze.page_cuts import page_cuts
from iriscw.objects.drivers.fake import FakeObjectStore

PAGE = 4096


def varint(number):
    """Return a number as protobuf writes it."""
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def pagemap(pages, ranges):
    """Return a pagemap of ranges of (address, number of pages)."""
    entries = [b"\x08" + varint(pages)]
    entries += [b"\x08" + varint(at) + b"\x10" + varint(count) + b"\x20\x04" for at, count in ranges]
    return PAGEMAP_MAGIC + b"".join(struct.pack("<I", len(each)) + each for each in entries)


def images(folder: Path, memory, *, number=1):
    """Write images whose memory is a mapping from address to bytes (whole pages), and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inventory.img").write_bytes(b"inventory")
    (folder / "pstree.img").write_bytes(b"tree")
    ranges = [(at, len(data) // PAGE) for at, data in sorted(memory.items())]
    (folder / f"pagemap-{number}.img").write_bytes(pagemap(number, ranges))
    (folder / f"pages-{number}.img").write_bytes(b"".join(data for _, data in sorted(memory.items())))
    return folder


def sealed(folder: Path, artifact, algorithm="sha256-8m"):
    """Return the manifest of a folder of images."""
    descriptor = open_folder(folder)
    files = tuple(Reading(algorithm, 1, lambda count: None).digests(descriptor, listed(descriptor)))
    return seal(artifact, frozen=FROZEN, files=files, algorithm=algorithm)[0]


def cuts(pagemaps, window):
    """Return where to cut files of pages, on a machine with pages of 4 KiB."""
    return page_cuts(pagemaps, page_size=PAGE, window_bytes=window)


def repository(store=None, protection=PLAIN):
    """Return a repository in memory."""
    return ObjectRepository(store or FakeObjectStore(), "memory://", cuts, protection=protection)


def noise(seed, pages):
    """Return so many pages that nothing compresses."""
    return random.Random(seed).randbytes(pages * PAGE)


def unseen(progress):
    """Take progress."""


def contents_of(folder: Path):
    """Return the files of a folder."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}
