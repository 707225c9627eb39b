"""What all attempts with a folder share: where their files are, reading the result, making and removing the folder."""

from __future__ import annotations

import errno
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.jobs.traits import Fault
from iriscw.processes.identity import ProcessIdentity
from iriscw.worker.model import MAX_FAULT_CHARS
from iriscw.worker.ports import AttemptExists, AttemptSpec, ResultMissing, ResultUnreadable, WorkerTrouble
from iriscw.worker.runtimes.workdir import AttemptFolder

_NEVER_READ = (errno.ELOOP, errno.ENXIO, errno.EIO)
"""A link, a socket: a program put it where its result should be, and nothing else will ever be there. Or the disk has
lost it."""


@attrs.define(eq=False)
class FolderAttempt:
    """The part of a :class:`~iriscw.worker.ports.RunningAttempt` that lies in its folder."""

    folder: AttemptFolder

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.folder.uid

    @property
    def host(self) -> str:
        """Where others reach it; empty: at its worker's address."""
        return ""

    @property
    def process(self) -> ProcessIdentity | None:
        """Its first process; None where it is none that this machine's agent could see."""
        return None

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """Who is frozen with it; None where attempts are not suspended."""
        return None

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that others than its worker gave it; none where that is the worker's doing."""
        return ()

    @property
    def stdout(self) -> Path:
        """The file that takes its standard output."""
        return self.folder.stdout

    @property
    def stderr(self) -> Path:
        """The file that takes its standard error."""
        return self.folder.stderr

    async def result(self) -> bytes | None:
        """Return what its callable left; None for a program.

        Raises:
            ResultMissing: it is a callable, and left none.
            ResultUnreadable: it is larger than any result is, or no file.
            WorkerTrouble: it cannot be read just now.
        """
        try:
            return await anyio.to_thread.run_sync(self.folder.result)
        except FileNotFoundError as error:
            raise ResultMissing(f"{self.uid} left no result: its call neither returned nor raised") from error
        except (ValueError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
            raise ResultUnreadable(f"the result of {self.uid} cannot be read: {error}") from error
        except OSError as error:
            kind = ResultUnreadable if error.errno in _NEVER_READ else WorkerTrouble
            raise kind(f"the result of {self.uid} cannot be read: {error}") from error

    async def setup_failure(self) -> Fault | None:
        """Return which of its steps failed; None: none did."""
        said = await anyio.to_thread.run_sync(self.folder.setup_failure)
        return None if said is None else Fault(said[0], said[1][-MAX_FAULT_CHARS:])

    async def remove(self) -> None:
        """Remove its files.

        Raises:
            WorkerTrouble: the disk does not let go of them.
        """
        try:
            await anyio.to_thread.run_sync(self.folder.remove)
        except OSError as error:
            raise WorkerTrouble(f"the files of {self.uid} cannot be removed: {error}") from error


async def prepare(folder: AttemptFolder, spec: AttemptSpec, argv: tuple[str, ...] = ()) -> None:
    """Make the folder of an attempt that starts.

    Raises:
        AttemptExists: there is one with this uid.
        WorkerTrouble: it cannot be made, and nothing of it is left.
    """
    try:
        await anyio.to_thread.run_sync(folder.prepare, spec, argv)
    except FileExistsError as error:
        raise AttemptExists(f"there is an attempt {spec.uid!r} already") from error
    except OSError as error:
        await anyio.to_thread.run_sync(folder.discard)
        raise WorkerTrouble(f"the folder of {spec.uid} cannot be made: {error}") from error
