"""Applications are told, by a program, a POST or files, and one that does not answer is named."""

import sys
from pathlib import Path

import aiohttp.web
import anyio
import pytest

from iriscw.freeze.drivers.hooks import ASKED, READY, THAWED, ApplicationHooks
from iriscw.freeze.model import Hook, HookFailed, HookKind, TaskIdentity

ROOT = TaskIdentity(100, 1, "boot-1")
PATIENCE_NS = 60_000_000_000
SHORT_NS = 200_000_000

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def program(code: str, within_ns: int = PATIENCE_NS) -> Hook:
    """Give a hook that runs this."""
    return Hook(HookKind.EXEC, (sys.executable, "-S", "-c", code), within_ns)


async def test_a_program(tmp_path) -> None:
    """It gets the word as its last argument; only 0 is yes."""
    file = tmp_path / "said"
    hook = program(f"import sys; open({str(file)!r}, 'a').write(sys.argv[1])")
    await ApplicationHooks().quiesce(hook, ROOT)
    await ApplicationHooks().wake(hook, ROOT)
    assert file.read_text() == "freezethaw"
    with pytest.raises(HookFailed, match="exit code 7"):
        await ApplicationHooks().quiesce(program("raise SystemExit(7)"), ROOT)
    with pytest.raises(HookFailed, match="could not be told"):
        await ApplicationHooks().quiesce(Hook(HookKind.EXEC, (str(tmp_path / "none"),)), ROOT)


async def test_a_program_that_hangs() -> None:
    """Its time is bounded."""
    with pytest.raises(HookFailed, match=r"within 0\.2 s"):
        await ApplicationHooks().quiesce(program("import time; time.sleep(1000)", SHORT_NS), ROOT)


async def test_files(tmp_path) -> None:
    """The application answers with a file of its own, and what is left of an earlier time is removed first."""
    hook = Hook(HookKind.FILES, (str(tmp_path),), PATIENCE_NS)
    (tmp_path / READY).write_bytes(b"")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ApplicationHooks().quiesce, hook, ROOT)
        with anyio.fail_after(60):
            while not (tmp_path / ASKED).exists():  # noqa: ASYNC110 - as an application would
                await anyio.sleep(0.005)
        assert not (tmp_path / READY).exists()
        (tmp_path / READY).write_bytes(b"")
    await ApplicationHooks().wake(hook, ROOT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [THAWED]
    with pytest.raises(HookFailed, match=r"within 0\.2 s"):
        await ApplicationHooks().quiesce(Hook(HookKind.FILES, (str(tmp_path),), SHORT_NS), ROOT)
    with pytest.raises(HookFailed, match="could not be told"):
        await ApplicationHooks().quiesce(Hook(HookKind.FILES, (str(Path(tmp_path, "none")),), PATIENCE_NS), ROOT)


async def test_a_post() -> None:
    """Any 2xx is yes; anything else, a redirection included, is no."""
    said: list[str] = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        said.append(request.path)
        return aiohttp.web.Response(status=204 if request.path == "/app/freeze" else 302)

    application = aiohttp.web.Application()
    application.router.add_post("/app/{word}", answer)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        hook = Hook(HookKind.HTTP, (f"http://{host}:{port}/app/",), PATIENCE_NS)
        await ApplicationHooks().quiesce(hook, ROOT)
        with pytest.raises(HookFailed, match="answered 302"):
            await ApplicationHooks().wake(hook, ROOT)
        kept = Hook(HookKind.HTTP, (f"http://user:hunter2@{host}:{port}/app",), PATIENCE_NS)  # by an older version
        with pytest.raises(HookFailed, match="answered 302") as failure:
            await ApplicationHooks().wake(kept, ROOT)
        assert "hunter2" not in str(failure.value)
    finally:
        await runner.cleanup()
    assert said == ["/app/freeze", "/app/thaw", "/app/thaw"]
    for address in ("http://user:hunter2", f"http://user:hunter2@{host}:{port}/app"):  # of a manifest that was kept
        with pytest.raises(HookFailed, match="could not be told") as failure:
            await ApplicationHooks().wake(Hook(HookKind.HTTP, (address,), PATIENCE_NS), ROOT)
        assert "hunter2" not in str(failure.value)
    with pytest.raises(HookFailed, match="could not be told"):
        await ApplicationHooks().quiesce(hook, ROOT)
