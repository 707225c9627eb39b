"""Tells applications that they will be frozen and that they were thawed: a program, a POST, or files in a folder.

What an application says is not shown: it may hold anything. What its program writes goes nowhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread

from iriscw.errors import OperationError
from iriscw.files import write_atomic
from iriscw.freeze.model import Hook, HookFailed, HookKind, TaskIdentity

ASKED = "freeze-requested"
READY = "ready-to-freeze"
THAWED = "thawed"

LOOK_S = 0.05
"""Between two looks for a file. The folder may be a mount of the application's own, where the kernel tells us of no
change; a twentieth of a second is little beside what a dump takes."""

SECOND = 1_000_000_000


class ApplicationHooks:
    """The port :class:`~iriscw.freeze.ports.Hooks`."""

    async def quiesce(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._tell(hook, root, "freeze")

    async def wake(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._tell(hook, root, "thaw")

    async def _tell(self, hook: Hook, root: TaskIdentity, word: str) -> None:
        try:
            with anyio.fail_after(hook.within_ns / SECOND):
                match hook.kind:
                    case HookKind.EXEC:
                        await _run(hook, root, word)
                    case HookKind.HTTP:
                        await _post(hook.target[0], word)
                    case HookKind.FILES:
                        await _leave_files(Path(hook.target[0]), word)
        except TimeoutError as error:
            seconds = hook.within_ns / SECOND
            raise HookFailed(f"the application's hook did not answer {word!r} within {seconds:g} s") from error
        except OperationError:
            raise
        except (OSError, ValueError, aiohttp.ClientError) as error:
            # What is no address may be a password that slipped into one: it is not repeated.
            what = "its address is none" if hook.kind is HookKind.HTTP and isinstance(error, ValueError) else error
            raise HookFailed(f"the application's hook could not be told {word!r}: {what}") from error


async def _run(hook: Hook, root: TaskIdentity, word: str) -> None:
    """Run the program; it is killed when its time is up, because a cancelled ``run_process`` kills."""
    done = await anyio.run_process(
        [*hook.target, word],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise HookFailed(f"{hook.target[0]} answered {word!r} for process {root.pid} with exit code {done.returncode}")


async def _post(address: str, word: str) -> None:
    url = f"{address.rstrip('/')}/{word}"
    async with aiohttp.ClientSession() as session, session.post(url, allow_redirects=False) as answer:
        if not 200 <= answer.status < 300:
            raise HookFailed(f"{answer.url.with_user(None)} answered {answer.status}")


async def _leave_files(folder: Path, word: str) -> None:
    ready = folder / READY
    if word == "thaw":
        await anyio.to_thread.run_sync(_announce, folder, THAWED, (ASKED, READY))
        return
    await anyio.to_thread.run_sync(_announce, folder, ASKED, (READY, THAWED))
    while not await anyio.to_thread.run_sync(ready.exists):  # noqa: ASYNC110 - no event comes of another mount
        await anyio.sleep(LOOK_S)


def _announce(folder: Path, name: str, old: tuple[str, ...]) -> None:
    for each in old:
        (folder / each).unlink(missing_ok=True)
    write_atomic(folder / name, b"", mode=0o644, durable=False)
