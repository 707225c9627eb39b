"""The real ``runc``: where it is, and the few calls of it that the agent makes itself."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from iriscw.freeze.drivers.namespace.entering import without_keys
from iriscw.freeze.drivers.runtime.finding import real_runc
from iriscw.freeze.model import Container, CriuFailed, CriuMissing, CriuOptions

OUTPUT: Final = "runtime.out"
MAX_OUTPUT_BYTES: Final = 1 << 20
CALL_S: Final = 30.0
"""For a call that reads or writes state; it takes some 10 ms."""

PAUSED: Final = "paused"


def find_runc() -> Path:
    """Find the real runtime.

    Raises:
        CriuMissing: there is none; the text says how to name one.
    """
    try:
        return Path(real_runc(os.environ))
    except FileNotFoundError as error:
        raise CriuMissing(str(error)) from error


def checkpoint_words(runc: Path, container: Container, options: CriuOptions, images: str, work: str) -> list[str]:
    """Return the command line of a checkpoint that ends the container: whether it is ended is decided by us."""
    words = [str(runc), "--root", container.root, "checkpoint", "--image-path", images, "--work-path", work]
    flags = (
        ("--tcp-established", options.tcp_established),
        ("--ext-unix-sk", options.external_unix_sockets),
        ("--shell-job", options.shell_job),
        ("--file-locks", options.file_locks),
        ("--link-remap", options.link_remap),
    )
    words += [flag for flag, wanted in flags if wanted]
    if container.cgroups_mode:
        words += ["--manage-cgroups-mode", container.cgroups_mode]
    for name in container.empty_namespaces:
        words += ["--empty-ns", name]
    return [*words, "--", container.container_id]


class Runtime:
    """One run of the runtime, in a session of its own."""

    def __init__(self, words: list[str], work: Path, environment: Mapping[str, str]) -> None:
        with (work / OUTPUT).open("ab") as output:
            self._process = without_keys(
                lambda: subprocess.Popen(  # noqa: S603  # a list of arguments
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=work,
                    env=dict(environment),
                    start_new_session=True,
                )
            )
        self._pidfd = os.pidfd_open(self._process.pid)
        self._work = work

    async def ended(self, within_ns: int | None = None) -> bool:
        """Wait until it has ended; say whether it has within this time."""
        if self._pidfd >= 0:
            with anyio.move_on_after(None if within_ns is None else within_ns / 1e9):
                await anyio.wait_readable(self._pidfd)
        return self._pidfd < 0 or self._process.poll() is not None

    async def close(self, within_ns: int) -> int:
        """Let it end by itself for this long, then kill it with what it started; give its code. May be repeated."""
        if not await self.ended(within_ns):
            self._process.kill()
            await self.ended()
        code = self._process.wait()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return code

    def said(self) -> str:
        """Return the last lines of what it said."""
        try:
            data = (self._work / OUTPUT).read_bytes()[-MAX_OUTPUT_BYTES:]
        except OSError:
            return ""
        lines = [line for line in data.decode(errors="replace").splitlines() if "level=warning" not in line]
        return "; ".join(lines[-3:])[:1000]


async def is_paused(runc: Path, container: Container) -> bool:
    """Whether the container's control group is frozen.

    Raises:
        CriuFailed: the runtime does not tell.
    """
    code, out, err = await _call([str(runc), "--root", container.root, "state", "--", container.container_id])
    try:
        state = json.loads(out) if code == 0 else None
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise CriuFailed(f"the runtime does not tell the state of container {container.container_id}: {err[:300]}")
    return state.get("status") == PAUSED


async def unpause(runc: Path, container: Container) -> None:
    """Let the container's control group run.

    Raises:
        CriuFailed: the runtime says no.
    """
    code, _, err = await _call([str(runc), "--root", container.root, "resume", "--", container.container_id])
    if code:
        raise CriuFailed(f"the runtime does not resume container {container.container_id}: {err[:300]}")


async def _call(words: list[str]) -> tuple[int, str, str]:
    def run() -> tuple[int, str, str]:
        try:
            done = subprocess.run(  # noqa: S603  # a list of arguments
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_S, check=False
            )
        except subprocess.TimeoutExpired:
            return -1, "", f"it did not end within {CALL_S:g} s"
        except OSError as error:
            return -1, "", f"it cannot be executed: {error}"
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()

    return await anyio.to_thread.run_sync(run)
