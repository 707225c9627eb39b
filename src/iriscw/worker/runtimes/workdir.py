"""The folder of an attempt: what its program finds there, and what is found there after a restart.

::

    attempt.json             which attempt this is, and whether it is a callable: only those have results; written
                             last: a folder without it was never begun
    stdout.log, stderr.log
    identity.json, ...       see iriscw.processes.supervised
    work/                    the working folder: a copy of the bundle
    work/.iris/              context, token, payload, result: mode 0600

All functions block.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from pathlib import Path

import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import TEMPORARY_PREFIX, decode_json, make_private_folder, read_bounded, remove_tree, write_atomic
from iriscw.rpc.limits import MAX_RESULT_BYTES
from iriscw.runtime.vocabulary import SECOND
from iriscw.task import setup
from iriscw.task.environment import (
    CONTEXT_FILE,
    PAYLOAD_FILE,
    PRIVATE_FOLDER,
    RESULT_FILE,
    SETUP_FAILED_FILE,
    SETUP_ORDER_FILE,
    SETUP_PROGRAM,
    TOKEN_FILE,
    WORK_FOLDER,
    decode_facts,
    encode_facts,
)
from iriscw.worker.ports import AttemptSpec, Whereabouts

GOES_ON = "\niriscw: goes on from a checkpoint; what stands above was written since that, too\n"
"""What the log of an attempt says between what a life wrote that is over, and what the next one writes."""

SETUP_FAILURES = ("SetupFailed", "SetupTimeout", "ProgramMissing")
"""How steps can fail; the last of them: what comes after them is not there."""

UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RECORD = "attempt.json"
_CALLABLE = "callable"
_MAX_RECORD_BYTES = 1 << 20
_SETUP_SOURCE = Path(setup.__file__)


@attrs.frozen
class AttemptFolder:
    """The folder of one attempt. With ``one_log`` both outputs go to one file, in the order in which they were
    written.

    Raises:
        InvalidArgument: the uid cannot be the name of a folder.
    """

    root: Path
    uid: str = attrs.field()
    one_log: bool = False

    @uid.validator
    def _check(self, _: object, uid: str) -> None:
        if not UID.fullmatch(uid):
            raise InvalidArgument(f"{uid!r} is not an attempt uid")

    @property
    def path(self) -> Path:
        """The folder itself."""
        return self.root / self.uid

    @property
    def work(self) -> Path:
        """The working folder of the program."""
        return self.path / WORK_FOLDER

    @property
    def stdout(self) -> Path:
        """The file that takes standard output."""
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        """The file that takes standard error."""
        return self.stdout if self.one_log else self.path / "stderr.log"

    def prepare(self, spec: AttemptSpec, argv: tuple[str, ...] = ()) -> None:
        """Make the folder with all that the attempt finds in it. ``argv``: what is run after its steps.

        Raises:
            FileExistsError: there is one.
            OSError: as the file system says it.
        """
        make_private_folder(self.root)
        self.path.mkdir(mode=0o700)
        if spec.source is not None:
            shutil.copytree(spec.source, self.work, symlinks=True)
            self.work.chmod(0o700)
        private = self.work / PRIVATE_FOLDER
        make_private_folder(private)
        facts = encode_facts(spec.facts)
        write_atomic(private / CONTEXT_FILE, facts, durable=False)
        write_atomic(private / TOKEN_FILE, spec.token.encode(), durable=False)
        if spec.payload:
            write_atomic(private / PAYLOAD_FILE, spec.payload, durable=False)
        if spec.setup.steps:
            order = {"steps": spec.setup.steps, "timeout_s": spec.setup.timeout_ns / SECOND, "argv": argv}
            write_atomic(private / SETUP_ORDER_FILE, json.dumps(order).encode(), durable=False)
            write_atomic(private / SETUP_PROGRAM, _SETUP_SOURCE.read_bytes(), durable=False)
        for log in (self.stdout, self.stderr):
            write_atomic(log, b"", durable=False)
        record = {**json.loads(facts), _CALLABLE: bool(spec.payload)}
        write_atomic(self.path / _RECORD, json.dumps(record, indent=1).encode())

    def steps(self, python: str) -> tuple[str, ...]:
        """Return what is executed of an attempt that has steps: these, and after them its program."""
        return (python, "-I", "-S", str(self.work / PRIVATE_FOLDER / SETUP_PROGRAM))

    def moved(self, where: Whereabouts) -> None:
        """Have its context say where it is now.

        Raises:
            ValueError: the program has spoilt its context.
            OSError: it cannot be read or written.
        """
        path = self.work / PRIVATE_FOLDER / CONTEXT_FILE
        facts = decode_facts(read_bounded(path, _MAX_RECORD_BYTES, below=self.path))
        here = attrs.evolve(
            facts,
            worker_id=where.worker_id,
            controller_address=where.controller_address,
            advertise_host=where.advertise_host,
            gpus=where.gpus,
            gpu_indices=where.gpu_indices,
            moved=True,
        )
        if here != facts:
            write_atomic(path, encode_facts(here), durable=False)

    def log_goes_on(self, offset: int) -> None:
        """Have what its program writes next stand at ``offset`` of its log, at least, behind a line that says so.

        What is missing up to there its log store has: it was written by a life of the attempt that is over. May be
        repeated.

        Raises:
            OSError: the log cannot be written, or is none any more.
        """
        if _size(self.stdout) >= offset:
            return
        file = os.open(self.stdout, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(file, GOES_ON.encode(), offset)
        finally:
            os.close(file)

    def began(self) -> bool:
        """Whether the attempt was prepared as a whole, whatever its program has made of the record since."""
        return os.path.lexists(self.path / _RECORD)

    def result(self) -> bytes | None:
        """Read what the callable left; None for a program, which has no result.

        Raises:
            FileNotFoundError: it is a callable, and there is none.
            ValueError: it is larger than any result is.
            OSError: it cannot be read, or it or a folder above it is a link: what that leads to is not the
                program's to give, where the program runs in a container and this process does not.
        """
        if not self._is_callable():
            return None
        return read_bounded(self.work / PRIVATE_FOLDER / RESULT_FILE, MAX_RESULT_BYTES, below=self.path)

    def setup_failure(self) -> tuple[str, str] | None:
        """Read which of its steps failed: the kind of the failure, and what is said of it; None: none did.

        The program may have written it as well. It says how it failed, and that only if it did.
        """
        path = self.work / PRIVATE_FOLDER / SETUP_FAILED_FILE
        try:
            said = decode_json(read_bounded(path, _MAX_RECORD_BYTES, below=self.path))
        except (OSError, ValueError):
            return None
        if not isinstance(said, dict) or said.get("kind") not in SETUP_FAILURES:
            return None
        return str(said["kind"]), str(said.get("text", ""))

    def _is_callable(self) -> bool:
        """Whether it is a callable. Where the record does not say so (an earlier version wrote it, or the program has
        written over it), one has a payload; where there is no record any more, a result is missing, whoever ran.
        """
        try:
            said = decode_json(read_bounded(self.path / _RECORD, _MAX_RECORD_BYTES))
        except ValueError:
            said = None
        known = said.get(_CALLABLE) if isinstance(said, dict) else None
        return (self.work / PRIVATE_FOLDER / PAYLOAD_FILE).exists() if known is None else known is True

    def log_bytes(self) -> int:
        """Return the length of both logs together; one that the program removed, or made a link of, has none."""
        return _size(self.stdout) + (0 if self.one_log else _size(self.stderr))

    def remove(self) -> None:
        """Remove the folder, its record first: what is left by a crash is no attempt any more."""
        remove_tree(self.path, first=(_RECORD,))

    def discard(self) -> None:
        """Remove what a failed start left, as far as that goes: the start's own error is the one to tell
        (INV-C15), and ``adopt`` removes the rest.
        """
        with contextlib.suppress(OSError):
            remove_tree(self.path)


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def folders_below(root: Path) -> list[Path]:
    """List what is in the folder of the attempts, in the order of the names; nothing if there is none.

    What somebody is putting there, or has put aside, is left out.

    Raises:
        OSError: it cannot be read.
    """
    found = root.iterdir() if root.exists() else ()
    return sorted(path for path in found if not path.name.startswith(TEMPORARY_PREFIX))
