"""A tree dumped and restored by CRIU alone, as its manual says: what the catalogue is compared with."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import attrs

from iriscw.freeze.criu_log import error_lines
from iriscw.freeze.drivers.criu.finding import find_criu

OPTIONS = (
    "--no-default-config",
    "--network-lock=nftables",
    "--tcp-established",
    "--file-locks",
    "--link-remap",
    "--ghost-limit=512M",
)
"""What the product asks of CRIU for any tree."""

MAX_S = 60.0


@attrs.frozen
class Ran:
    """How a run of CRIU ended."""

    good: bool
    seconds: float
    said: str
    """The first error of its log."""


class BareCriu:
    """CRIU alone, for one tree."""

    def __init__(self, folder: Path, options: tuple[str, ...]) -> None:
        self._images = folder / "bare-images"
        self._images.mkdir(mode=0o700)
        self._plugins = folder / "bare-no-plugins"
        self._plugins.mkdir()
        self._options = (*OPTIONS, f"--libdir={self._plugins}", *options)

    def dump(self, pid: int) -> Ran:
        """Dump a tree, which ends."""
        return self._run("dump", f"--tree={pid}")

    def restore(self) -> Ran:
        """Restore it."""
        return self._run("restore", "--restore-detached")

    def size_bytes(self) -> int:
        """Return how large the images are."""
        return sum(each.stat().st_size for each in self._images.iterdir())

    def _run(self, *words: str) -> Ran:
        log = self._images / f"{words[0]}.log"
        begun = time.monotonic()
        process = subprocess.Popen(
            [find_criu(), *words, f"--images-dir={self._images}", f"--log-file={log.name}", "-v2", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(MAX_S)
        overdue = process.poll() is None
        if overdue:
            process.kill()
        code = process.wait()
        seconds = time.monotonic() - begun
        said = next(iter(error_lines(log.read_text(errors="replace"))), f"exit code {code}")
        return Ran(code == 0, seconds, "it hangs" if overdue else said)
