"""Tells applications that they will be frozen and that they were thawed: a program, a POST, or files in a folder.

What an application says is not shown: it may hold anything. What its program writes goes nowhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import anyio.to_thread

from iriscw._errors import OperationError
from iriscw.files import write_atomic
from iriscw.freeze.drivers.processes.driver import doom
from iriscw.freeze.drivers.processes.reading import in_session
from iriscw.freeze.model import Hook, HookFailed, HookKind, TaskIdentity, VerifyFailed
from iriscw.runtime.vocabulary import SECOND

ASKED = "freeze-requested"
READY = "ready-to-freeze"
THAWED = "thawed"

LOOK_S = 0.05
"""Between two looks for a file. The folder may be a mount of the application's own, where the kernel tells us of no
change; a twentieth of a second is little beside what a dump takes."""

ASK_AGAIN_S = 0.1
"""Between two questions to a server that does not answer well yet."""

END_ROUNDS = 20
"""Over a session that is killed, until nobody of it is left."""


class ApplicationHooks:
    """The port :class:`~iriscw.freeze.ports.Hooks`."""

    async def quiesce(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._tell(hook, root, "freeze")

    async def wake(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._tell(hook, root, "thaw")

    async def confirm(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        said = HookFailed(f"nobody said that process {root.pid} is what it was")
        try:
            with anyio.fail_after(hook.within_ns / SECOND):
                if hook.kind is HookKind.EXEC:
                    await _run(hook, root, "verify", str(root.pid))
                    return None
                while True:
                    try:
                        return await _get(hook.target[0])
                    except HookFailed as error:  # it may not listen again yet
                        said = error
                    await anyio.sleep(ASK_AGAIN_S)
        except TimeoutError as error:
            seconds = hook.within_ns / SECOND
            who = f"process {root.pid} was not found to be what it was within {seconds:g} s"
            raise VerifyFailed(f"{who}: {said}") from error
        except HookFailed as error:  # the program's no
            raise VerifyFailed(str(error)) from error
        except (OSError, ValueError) as error:
            if isinstance(error, OperationError):
                raise
            what = "its address is none" if hook.kind is HookKind.HTTP and isinstance(error, ValueError) else error
            raise VerifyFailed(f"whether process {root.pid} is what it was cannot be asked: {what}") from error

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
        except (OSError, ValueError) as error:
            # What is not an address may be a password that slipped into one: it is not repeated.
            what = "its address is none" if hook.kind is HookKind.HTTP and isinstance(error, ValueError) else error
            raise HookFailed(f"the application's hook could not be told {word!r}: {what}") from error


async def _run(hook: Hook, root: TaskIdentity, word: str, *more: str) -> None:
    """Run the program, in a session of its own; when its time is up that is killed as a whole."""
    program = await anyio.open_process(
        [*hook.target, word, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = await program.wait()
    except BaseException:
        with anyio.CancelScope(shield=True):
            # It is not a zombie that somebody has reaped: until then its number means its session and nobody else's.
            await anyio.to_thread.run_sync(_end_session, program.pid)
            if program.returncode is None:
                program.kill()
            await program.wait()
        raise
    if code != 0:
        raise HookFailed(f"{hook.target[0]} answered {word!r} for process {root.pid} with exit code {code}")


def _end_session(number: int) -> None:
    """Kill all of a session: what was forked while the others were looked for is found by the next look."""
    for _ in range(END_ROUNDS):
        found = in_session(number)
        doom(found)
        if not found:
            return


async def _post(address: str, word: str) -> None:
    import aiohttp  # it takes a tenth of a second, and few hooks are of this kind

    url = f"{address.rstrip('/')}/{word}"
    try:
        async with aiohttp.ClientSession() as session, session.post(url, allow_redirects=False) as answer:
            if not 200 <= answer.status < 300:
                raise HookFailed(f"{answer.url.with_user(None)} answered {answer.status}")
    except aiohttp.ClientError as error:
        if isinstance(error, OSError | ValueError):
            raise
        raise HookFailed(f"the application's hook could not be told {word!r}: {error}") from error


async def _get(address: str) -> None:
    import aiohttp  # likewise

    try:
        async with aiohttp.ClientSession() as session, session.get(address, allow_redirects=False) as answer:
            if not 200 <= answer.status < 300:
                raise HookFailed(f"{answer.url.with_user(None)} answered {answer.status}")
    except aiohttp.InvalidURL:
        raise
    except aiohttp.ClientError as error:
        raise HookFailed(f"it does not answer: {error}") from error


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
