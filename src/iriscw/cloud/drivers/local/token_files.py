"""The tokens of workers on this machine: one file (0600) for each pod, which its process is told the name of.

A file is written before its pod is promised, and removed when nothing of the pod is left. Those of pods that are gone
already, which a controller that was killed left, go when the platform is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw.cloud.model import PodSpec, Unavailable
from iriscw.rpc.tokens import Secret, write_token_file

log = logging.getLogger(__name__)

TOKEN_FILE_VARIABLE = "IRISCW_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""Where a worker finds its token."""


@attrs.frozen
class TokenFiles:
    """Tokens in files.

    Args:
        folder: of the files, which have the names of their pods.
        token: gives the token of the worker in a pod.
    """

    folder: Path
    token: Callable[[PodSpec], Secret] = attrs.field(repr=False)

    def environment_of(self, pod: str) -> dict[str, str]:
        """Return the variable that leads a pod's process to its token."""
        return {TOKEN_FILE_VARIABLE: str(self.folder / pod)}

    async def write(self, spec: PodSpec) -> None:
        """Have the token of a pod's worker on disk.

        Raises:
            Unavailable: it cannot be written.
        """
        try:
            await anyio.to_thread.run_sync(write_token_file, self.folder / spec.name, self.token(spec))
        except OSError as error:
            raise Unavailable(f"the worker's token cannot be written: {error.strerror or error}") from error

    def remove(self, pod: str) -> None:
        """Remove the file of a pod; one that cannot be removed is told in the log. Blocks on the disk."""
        _remove(self.folder / pod)

    def remove_others(self, pods: Container[str]) -> None:
        """Remove the files of all pods but these. Blocks on the disk."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name not in pods:
                _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the token file %s stays: %s", path, error)
