"""Artifacts in folders: one tier on a memory file system or on a disk, within its budget.

::

    <root>/                      0700, ours
      lock                       held while room is reserved
      reserved/<operation>       how many bytes it may write; removing it returns them, once
      staging/<operation>/       images/ as CRIU writes them, then manifest.jsonl
      artifacts/<id>/            the same, renamed: visible as a whole or not at all
        returned                 who came back from it
        copied                   of a copy: the move that made it, and in which boot
      pins/<id>/<operation>      keeps an artifact from being removed
      work/<operation>/          logs and sockets of CRIU; no part of the artifact
      trash/                     renamed away before it is removed
      dropped/                   likewise, of which there is another copy

CRIU's own files are the artifact: nothing is copied, and a thaw reads them where they lie. What is charged to the
budget is what is reserved and what artifacts take, whichever process asks: it is read off the folders, so it survives
everything that processes do. All functions here block; ``tiers.py`` calls them from threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from iriscw._version import __version__
from iriscw.checkpoint.drivers.digests import (
    Reading,
    best_algorithm,
    digest_of,
    digest_of_pieces,
    listed,
    open_folder,
)
from iriscw.checkpoint.drivers.images import check_images, compare, make_durable, room_of
from iriscw.checkpoint.manifest import (
    ARTIFACT_ID,
    MAX_MANIFEST_BYTES,
    PIECE_BYTES,
    PIECES_OF,
    open_manifest,
    seal,
)
from iriscw.checkpoint.model import ListedArtifact, Manifest, TierUse
from iriscw.checkpoint.ports import ImageReader
from iriscw.files import (
    TEMPORARY_PREFIX,
    is_part_of,
    make_private_folder,
    read_bounded,
    remove_tree,
    sync_folder,
    temporary_name,
    write_atomic,
)
from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactRefused,
    ArtifactUnknown,
    FrozenTree,
    Kept,
    LazyPages,
    NoRoom,
    PageFile,
    Room,
    Sealed,
    TaskIdentity,
    UnsafeRequest,
)
from iriscw.processes.memory import free_bytes

MANIFEST = "manifest.jsonl"
RETURNED = "returned"
COPIED = "copied"
MAX_RETURNED_BYTES = 4 << 20
"""Of the list of who came back: a thousand processes of forty clones."""
IMAGES = "images"

_SMALL_BYTES = 4096


def _nothing_else(images: Path, work: Path) -> None:
    """Know of nothing that images hold elsewhere."""


@attrs.frozen
class Folders:
    """A :class:`~iriscw.checkpoint.ports.Tier` that is a folder of a mounted file system.

    ``volatile`` says that it is memory: nothing in it outlives the boot that ``boot_id`` names.
    """

    name: str
    root: Path
    budget_bytes: int
    volatile: bool = False
    boot_id: str = ""
    free_memory: Callable[[], int] = free_bytes
    """Gives the memory that can still be had, where the tier is memory."""
    forget: Callable[[Path, Path], None] = _nothing_else
    """Told of images that are being removed, and of where CRIU's logs are: what they hold elsewhere is to go, too."""

    def check(self) -> None:
        """Refuse a folder that somebody else made, or may write to or read: images are run, and hold secrets.

        Raises:
            UnsafeRequest: it is such a one.
            OSError: it cannot be looked at.
        """
        try:
            found = os.lstat(self.root)
        except FileNotFoundError:
            return
        mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not mine:
            raise UnsafeRequest(f"{self.root} is not a folder of mode 0700 that belongs to user {os.geteuid()}")

    def _place(self, kind: str, name: str) -> Path:
        self.check()
        if not ARTIFACT_ID.fullmatch(name):
            raise UnsafeRequest(f"{name[:80]!r} is not a valid id: small letters, digits and '-'")
        return self.root / kind / name

    def _made(self, kind: str, name: str) -> Path:
        path = self._place(kind, name)
        make_private_folder(path)
        return path

    # Room

    def reserve(self, operation: str, size_bytes: int) -> Room:
        """Take room, once for each operation.

        Raises:
            NoRoom: the budget, the file system or, where the tier is memory, the machine has less.
        """
        self.check()
        make_private_folder(self.root / "reserved")
        with room_of(self.root), self._locked():
            place = self._place("reserved", operation)
            if not place.exists():
                use = self.use()
                left = use.budget_bytes - use.artifacts_bytes - use.reserved_bytes
                if size_bytes > left:
                    raise NoRoom(
                        f"tier {self.name} has {max(0, left) >> 20} MiB of its budget left, "
                        f"and {size_bytes >> 20} MiB are needed: remove a checkpoint, or raise the budget"
                    )
                free = use.free_bytes
                if self.volatile:  # a memory file system promises more than the machine has
                    free = min(free, self.free_memory())
                free -= self.promised_bytes()  # what others have reserved and not written yet is not theirs alone
                if size_bytes > free:
                    raise NoRoom(
                        f"{self.root} has {max(0, free) >> 20} MiB free, and {size_bytes >> 20} MiB are needed"
                    )
                write_atomic(place, json.dumps(size_bytes).encode())
            return Room(
                str(self._made("staging", operation) / self._images(operation)), str(self._made("work", operation))
            )

    def _images(self, operation: str) -> str:
        make_private_folder(self.root / "staging" / operation / IMAGES)
        return IMAGES

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.check()
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def use(self) -> TierUse:
        """Say how full it is."""
        self.check()
        reserved = sum(self._reserved(name) for name in _written(self.root / "reserved"))
        kept = sum(_bytes_below(self.root / "artifacts" / name) for name in _names(self.root / "artifacts"))
        for gone in (self.root / "trash", self.root / "dropped"):
            kept += sum(_bytes_below(gone / name) for name in _names(gone))
        found = os.statvfs(next(each for each in (self.root, *self.root.parents) if each.exists()))
        return TierUse(self.name, str(self.root), self.budget_bytes, kept, reserved, found.f_bavail * found.f_frsize)

    def empty(self) -> bool:
        """Whether nothing in it is an artifact, or becomes one.

        Raises:
            UnsafeRequest: the folder is somebody else's.
            OSError: it cannot be looked at.
        """
        self.check()
        return not any(_written(self.root / kind) for kind in ("artifacts", "staging", "reserved"))

    def promised_bytes(self) -> int:
        """Return what running operations have reserved and not written yet.

        Raises:
            UnsafeRequest: the folder is somebody else's.
        """
        self.check()
        names = _written(self.root / "reserved")
        return sum(max(0, self._reserved(name) - _bytes_below(self.root / "staging" / name)) for name in names)

    def _reserved(self, name: str) -> int:
        try:
            return int(read_bounded(self.root / "reserved" / name, _SMALL_BYTES))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise UnsafeRequest(f"{self.root / 'reserved' / name} says nothing of what is reserved: {error}") from error

    # Sealing and publishing

    def seal(
        self,
        operation: str,
        frozen: FrozenTree,
        labels: tuple[tuple[str, str], ...],
        reading: ImageReader,
        begin: Callable[[int], None],
    ) -> Sealed:
        """Return every byte a digest, put all on the disk, and write the manifest last.

        Raises:
            NoRoom: the file system is full.
            ArtifactRefused: what CRIU left is not an image.
        """
        staging = self._place("staging", operation)
        with room_of(self.root):
            folder = open_folder(staging / IMAGES)
            try:
                found = listed(folder)
                check_images(operation, found)
                begin(sum(size for _, size in found))
                files = tuple(reading.digests(folder, found))
                for name, _ in found:
                    make_durable(folder, name)
                os.fsync(folder)
            finally:
                os.close(folder)
            text, sealed = seal(
                operation,
                frozen=frozen,
                files=files,
                algorithm=reading.algorithm,
                labels=labels,
                software=__version__,
                wall_ns=time.time_ns(),
            )
            write_atomic(staging / MANIFEST, text)
        return sealed

    def publish(self, operation: str) -> None:
        """Make it visible, pinned by its own operation, and return what was reserved.

        Raises:
            NoRoom: the file system is full.
            ArtifactUnknown: it was never sealed.
        """
        staging, place = self._place("staging", operation), self._place("artifacts", operation)
        with room_of(self.root):
            _make_folder_durably(place.parent)
            if not place.exists():
                if not (staging / MANIFEST).exists():
                    raise ArtifactUnknown(f"artifact {operation} was never sealed")
                _remove_parts(staging, MANIFEST)
                self._write_pin(operation, operation)
                staging.rename(place)
                sync_folder(place.parent)
                sync_folder(staging.parent)
        self._give_back(operation)

    def _give_back(self, operation: str) -> None:
        place = self._place("reserved", operation)
        _unlink_durably(place)
        _remove_parts(place.parent, operation)

    def discard(self, operation: str) -> None:
        """Remove all that an operation wrote, published or not.

        Raises:
            ArtifactInUse: a thaw has it.
            OSError: something cannot be removed yet.
        """
        if self._place("artifacts", operation).exists():
            self.remove(operation, by=operation)
        with self._locked():
            self._let_go(operation, operation)
        staging, work = self._place("staging", operation), self._place("work", operation)
        if staging.exists():
            self.forget(staging / IMAGES, work)
        _unlink_durably(staging / MANIFEST)  # before its files go: a power cut leaves no half of it that looks whole
        remove_tree(staging)
        self._give_back(operation)
        remove_tree(work)

    def tidy(self, operation: str) -> None:
        """Remove logs and sockets of an operation that owes nothing any more."""
        remove_tree(self._place("work", operation))

    # Copies

    def adopt(
        self,
        operation: str,
        artifact: str,
        manifest: bytes,
        returned: Sequence[TaskIdentity],
        reader: Callable[[str, int], ImageReader],
    ) -> Sealed:
        """Compare what was copied with its manifest, put all on the disk, and write the manifest last.

        Raises:
            ArtifactUnknown: the move has no room here.
            ArtifactRefused: the manifest is none of ours, or a file is not what it says.
            NoRoom: the file system is full.
        """
        staging = self._place("staging", operation)
        self._place("artifacts", artifact)
        found = open_manifest(manifest, artifact)
        with room_of(self.root):
            try:
                folder = open_folder(staging / IMAGES)
            except FileNotFoundError as error:
                raise ArtifactUnknown(f"operation {operation} has no room in tier {self.name}") from error
            try:
                compare(found, folder, reader)
                for file in found.files:
                    make_durable(folder, file.name)
                os.fsync(folder)
            finally:
                os.close(folder)
            write_atomic(staging / COPIED, json.dumps({"operation": operation, "boot_id": self.boot_id}).encode())
            if returned:
                write_atomic(staging / RETURNED, _returned_text(artifact, returned))
            write_atomic(staging / MANIFEST, manifest)
        return found.sealed

    def install(self, operation: str, artifact: str) -> None:
        """Make an adopted copy visible, pinned by its move; or use the one that is there by now.

        Raises:
            ArtifactUnknown: it was never adopted.
            ArtifactRefused: the one that is there cannot be used.
            NoRoom: the file system is full.
        """
        staging, place = self._place("staging", operation), self._place("artifacts", artifact)
        if not (place.exists() or (staging / MANIFEST).exists()):
            raise ArtifactUnknown(f"operation {operation} has no whole copy of artifact {artifact} in tier {self.name}")
        with room_of(self.root):
            _make_folder_durably(place.parent)
            with self._locked():
                self._write_pin(artifact, operation)
                if not place.exists():
                    for part in (MANIFEST, COPIED, RETURNED):
                        _remove_parts(staging, part)
                    staging.rename(place)
            self.manifest(artifact)
            for each in (place.parent, staging.parent):  # also if it was renamed before: what it lay in goes next
                make_private_folder(each)
                sync_folder(each)
        remove_tree(staging)
        self._give_back(operation)

    def abandon(self, operation: str, artifact: str) -> None:
        """Remove what a move wrote, installed or not, and its pin.

        Raises:
            ArtifactInUse: somebody else uses the copy.
            OSError: something cannot be removed yet.
        """
        staging = self._place("staging", operation)
        if self.has(artifact) and self._copied(artifact)[0] == operation:
            self.drop(artifact, operation)
        with self._locked():
            self._let_go(artifact, operation)
        _unlink_durably(staging / MANIFEST)
        remove_tree(staging)
        self._give_back(operation)
        remove_tree(self._place("work", operation))

    def drop(self, artifact: str, operation: str) -> None:
        """Remove an artifact of which there is another copy, and its pin of a move.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: somebody else uses it.
            OSError: some of it cannot be removed yet.
        """
        self._place("pins", operation)
        try:
            self._take_away(artifact, "dropped", operation)
        finally:  # whether this life has taken it from sight or one before
            for name in _names(self.root / "dropped"):
                remove_tree(self.root / "dropped" / name)
        self.unpin(artifact, operation)

    # Reading

    def has(self, artifact: str) -> bool:
        """Whether there is a visible artifact with this id."""
        return self._place("artifacts", artifact).is_dir()

    def images(self, artifact: str) -> Path:
        """Return the folder with the images of an artifact."""
        return self._place("artifacts", artifact) / IMAGES

    def has_room(self, operation: str) -> bool:
        """Whether an operation writes here."""
        return self._place("staging", operation).is_dir()

    def has_of(self, operation: str) -> bool:
        """Whether anything of an operation is here, published or not, or a part of it."""
        kinds = ("reserved", "staging", "artifacts", "work", "pins")
        if any(os.path.lexists(self._place(kind, operation)) for kind in kinds):
            return True
        return any(is_part_of(name, operation) for name in _names(self.root / "reserved"))

    def has_pin(self, artifact: str, operation: str) -> bool:
        """Whether an operation uses an artifact here, or has left its folder."""
        place = self._place("pins", artifact)
        return place.is_dir() or os.path.lexists(self._place("work", operation))

    def manifest(self, artifact: str) -> Manifest:
        """Read what an artifact says of itself.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: it is none of ours, or was written in another boot and has lain in memory.
        """
        return self._read(artifact)[0]

    def text(self, artifact: str) -> bytes:
        """Return the manifest of an artifact as it was sealed.

        Raises:
            ArtifactUnknown, ArtifactRefused: as :meth:`manifest`.
        """
        return self._read(artifact)[1]

    def _read(self, artifact: str) -> tuple[Manifest, bytes]:
        place = self._place("artifacts", artifact)
        try:
            data = read_bounded(place / MANIFEST, MAX_MANIFEST_BYTES)
        except FileNotFoundError as error:
            if place.is_dir():
                raise ArtifactRefused(f"artifact {artifact} has no manifest") from error
            raise ArtifactUnknown(f"there is no artifact {artifact} in tier {self.name}") from error
        except (OSError, ValueError) as error:
            raise ArtifactRefused(f"artifact {artifact}: {error}") from error
        manifest = open_manifest(data, artifact)
        if self.volatile and (self._copied(artifact)[1] or manifest.frozen.host.boot_id) != self.boot_id:
            raise ArtifactRefused(f"artifact {artifact} lay in memory, and this is another boot of the machine")
        return manifest, data

    def _copied(self, artifact: str) -> tuple[str, str]:
        """Return the move that made a copy and the boot in which it did; nothing where a freeze wrote it.

        Raises:
            ArtifactRefused: what says so is damaged.
        """
        try:
            found = json.loads(read_bounded(self._place("artifacts", artifact) / COPIED, _SMALL_BYTES))
            return str(found["operation"]), str(found["boot_id"])
        except FileNotFoundError:
            return "", ""
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ArtifactRefused(f"artifact {artifact}: who copied it cannot be read: {error}") from error

    def pin(self, artifact: str, operation: str) -> Kept:
        """Keep it from being removed, and read its manifest."""
        with room_of(self.root):
            with self._locked():
                if not self.has(artifact):
                    raise ArtifactUnknown(f"there is no artifact {artifact} in tier {self.name}")
                self._write_pin(artifact, operation)
            manifest = self.manifest(artifact)
            images = self.images(artifact)
            room = Room(str(images), str(self._made("work", operation)))
            by_pieces = all(file.pieces for file in manifest.files if PIECES_OF.fullmatch(file.name))
            return Kept(manifest.frozen, room, manifest.sealed, by_pieces, self.returned(artifact))

    def returned(self, artifact: str) -> tuple[TaskIdentity, ...]:
        """Return who came back from an artifact so far.

        Raises:
            ArtifactRefused: what says so is damaged, so a second tree could be made of one.
        """
        place = self._place("artifacts", artifact) / RETURNED
        try:
            found = json.loads(read_bounded(place, MAX_RETURNED_BYTES))
            return tuple(TaskIdentity(int(pid), int(start), str(boot)) for pid, start, boot in found)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactRefused(f"artifact {artifact}: who came back from it cannot be read: {error}") from error

    def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """Write down who came back from an artifact, in place of what is there.

        Raises:
            ArtifactUnknown: there is none.
            NoRoom: the file system is full, or there are too many.
        """
        place = self._place("artifacts", artifact)
        text = _returned_text(artifact, tasks)
        with room_of(self.root):
            if not place.is_dir():
                raise ArtifactUnknown(f"there is no artifact {artifact} in tier {self.name}")
            write_atomic(place / RETURNED, text)

    def _write_pin(self, artifact: str, operation: str) -> None:
        place = self._place("pins", artifact)
        _make_folder_durably(place)
        write_atomic(place / operation, b"")

    def unpin(self, artifact: str, operation: str) -> None:
        """Let it be removed again."""
        with self._locked():  # whoever pins it makes the folder first, and then writes into it
            self._let_go(artifact, operation)
        remove_tree(self._place("work", operation))

    def _let_go(self, artifact: str, operation: str) -> None:
        place = self._place("pins", artifact)
        _unlink_durably(place / operation)
        _remove_parts(place, operation)
        try:
            place.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):  # somebody else has pinned it, too
                raise

    def verify(self, artifact: str, reader: Callable[[str, int], ImageReader], *, but_pages: bool = False) -> LazyPages:
        """Read every byte and compare; ``but_pages``: not those of files whose every piece has a digest; return these.

        Raises:
            ArtifactUnknown, ArtifactRefused: as :meth:`manifest`, or a byte differs.
        """
        manifest = self.manifest(artifact)
        later = tuple(file for file in manifest.files if but_pages and file.pieces)
        made = digest_of(manifest.algorithm)
        for file in later:
            if digest_of_pieces(made, file.pieces) != file.digest:
                raise ArtifactRefused(f"artifact {artifact}: the digests of pieces of {file.name} are not those of it")
        try:
            folder = open_folder(self._place("artifacts", artifact) / IMAGES)
        except OSError as error:
            raise ArtifactRefused(f"artifact {artifact} has no images: {error.strerror}") from error
        try:
            compare(manifest, folder, reader, later)
        finally:
            os.close(folder)
        files = tuple(PageFile(file.name, file.size_bytes, file.pieces) for file in later)
        return LazyPages(manifest.algorithm, PIECE_BYTES, files)

    def remove(self, artifact: str, *, by: str = "") -> None:
        """Remove an artifact: first from sight, then from the disk. The pin of the operation ``by`` does not count.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: a thaw has it, or the freeze that made it has not ended.
            OSError: some of it cannot be removed yet; it counts against the budget until it is.
        """
        self._take_away(artifact, "trash", by)
        for name in _names(self.root / "trash"):
            self.forget(self.root / "trash" / name / IMAGES, self.root / "trash" / name)
            remove_tree(self.root / "trash" / name)

    def _take_away(self, artifact: str, to: str, by: str) -> None:
        self.check()
        make_private_folder(self.root / to)
        with self._locked():
            place = self._place("artifacts", artifact)
            if not place.exists():
                raise ArtifactUnknown(f"there is no artifact {artifact} in tier {self.name}")
            pins = [pin for pin in _written(self.root / "pins" / artifact) if pin != by]
            if pins:
                raise ArtifactInUse(
                    f"artifact {artifact} is used by operation {pins[0]}; if nothing is left of that anywhere, "
                    f"`iriscw checkpoints --release {artifact}` lets it go"
                )
            place.rename(self.root / to / temporary_name(artifact))
            sync_folder(place.parent)  # before its files go: a power cut brings back all of it or nothing

    def listing(self) -> list[ListedArtifact]:
        """Return all artifacts, the trouble with those that are none of ours included.

        Raises:
            UnsafeRequest: the folder is somebody else's.
        """
        self.check()
        names = (name for name in _names(self.root / "artifacts") if ARTIFACT_ID.fullmatch(name))
        return [found for found in map(self.look_at, names) if found is not None]

    def look_at(self, artifact: str) -> ListedArtifact | None:
        """Return one artifact as :meth:`listing` does; None if it was removed meanwhile."""
        size = _bytes_below(self._place("artifacts", artifact))
        pins: tuple[str, ...] = ()
        try:
            pins = tuple(_written(self.root / "pins" / artifact))
            return ListedArtifact(artifact, self.name, size, self.manifest(artifact), pinned_by=pins)
        except ArtifactUnknown:
            return None
        except (ArtifactRefused, OSError) as error:  # the trouble with one hides none of the others
            return ListedArtifact(artifact, self.name, size, trouble=str(error), pinned_by=pins)


def _returned_text(artifact: str, tasks: Sequence[TaskIdentity]) -> bytes:
    text = json.dumps([[task.pid, task.start_ticks, task.boot_id] for task in tasks])
    if len(text) > MAX_RETURNED_BYTES:
        raise NoRoom(f"too many processes came back from {artifact} and live: end some of its clones")
    return text.encode()


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _written(folder: Path) -> list[str]:
    """Return the names of files that are whole: who was killed while it wrote one leaves a part under another name."""
    return [name for name in _names(folder) if not name.startswith(TEMPORARY_PREFIX)]


def _make_folder_durably(path: Path) -> None:
    """Make a folder whose name is there after a power cut, if what is written into it is."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    make_private_folder(path)
    for each in reversed(missing):
        sync_folder(each.parent)


def _unlink_durably(path: Path) -> None:
    """Remove a file for good: its operation is over, so if a power cut gave it back nobody would remove it again."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def _remove_parts(folder: Path, name: str) -> None:
    """Remove what is left of writings of a file that were cut off; nobody writes it now."""
    for each in _names(folder):
        if is_part_of(each, name):
            (folder / each).unlink(missing_ok=True)


def _bytes_below(folder: Path) -> int:
    """Return what the plain files of an artifact take."""
    total = 0
    for place in (folder, folder / IMAGES):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries if not entry.is_dir())
    return total


def default_reading(report: Callable[[int], None]) -> Reading:
    """Return a reading for sealing: the fastest digest there is, a thread for each processor."""
    return Reading(best_algorithm(), max(1, os.cpu_count() or 1), report)
