"""Applications are told, by a program, a POST or files, and one that does not answer is named."""

import sys
from pathlib import Path

import aiohttp.web
import anyio
import pytest

from iriscw.freeze.drivers.hooks import ASKED, READY, THAWED, ApplicationHooks
from iriscw.freeze.model import Hook, HookFailed, HookKind, TaskIdentity, VerifyFailed
from iriscw.processes.identity import identify, is_alive
from raised import that

ROOT = TaskIdentity(100, 1, "boot-1")
PATIENCE_NS = 60_000_000_000
SHORT_NS = 200_000_000

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def program(code: str, within_ns: int = PATIENCE_NS) -> Hook:
    """Return a hook that runs this."""
    return Hook(HookKind.EXEC, (sys.executable, "-S", "-c", code), within_ns)


async def test_a_program(tmp_path) -> None:
    """It gets the word as its last argument; only 0 is yes."""
    file = tmp_path / "said"
    hook = program(f"import sys; open({str(file)!r}, 'a').write(sys.argv[1])")
    await ApplicationHooks().quiesce(hook, ROOT)
    await ApplicationHooks().wake(hook, ROOT)
    assert file.read_text() == "freezethaw"
    with pytest.raises(HookFailed, check=that(comes_from="hooks._run", names="7")):
        await ApplicationHooks().quiesce(program("raise SystemExit(7)"), ROOT)
    with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell")):
        await ApplicationHooks().quiesce(Hook(HookKind.EXEC, (str(tmp_path / "none"),)), ROOT)


async def test_a_program_that_hangs() -> None:
    """Its time is bounded."""
    with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell", names="0.2")):
        await ApplicationHooks().quiesce(program("import time; time.sleep(1000)", SHORT_NS), ROOT)


async def test_nothing_is_left_of_a_program_that_hangs(tmp_path) -> None:
    """What it has started ends with it, in whatever process group that is."""
    file = tmp_path / "started"
    code = f"""
import os, subprocess, time
one = subprocess.Popen(["sleep", "1000"])
two = subprocess.Popen(["sleep", "1000"], process_group=0)
with open({str(file)!r} + ".new", "w") as said:
    said.write(f"{{one.pid}} {{two.pid}}")
os.rename({str(file)!r} + ".new", {str(file)!r})
time.sleep(1000)
"""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ApplicationHooks().quiesce, program(code), ROOT)
        with anyio.fail_after(60):
            while not file.exists():  # noqa: ASYNC110 - nobody is told of it
                await anyio.sleep(0.005)
        started = [identify(int(pid)) for pid in file.read_text().split()]
        tasks.cancel_scope.cancel()
    with anyio.fail_after(60):
        while any(is_alive(each) for each in started):  # noqa: ASYNC110 - they are nobody's children
            await anyio.sleep(0.005)


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
    with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell", names="0.2")):
        await ApplicationHooks().quiesce(Hook(HookKind.FILES, (str(tmp_path),), SHORT_NS), ROOT)
    with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell")):
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
        with pytest.raises(HookFailed, check=that(comes_from="hooks._post", names="302")):
            await ApplicationHooks().wake(hook, ROOT)
        kept = Hook(HookKind.HTTP, (f"http://user:hunter2@{host}:{port}/app",), PATIENCE_NS)  # by an older version
        with pytest.raises(HookFailed, check=that(comes_from="hooks._post", names="302")) as failure:
            await ApplicationHooks().wake(kept, ROOT)
        assert "hunter2" not in str(failure.value)
    finally:
        await runner.cleanup()
    assert said == ["/app/freeze", "/app/thaw", "/app/thaw"]
    for address in ("http://user:hunter2", f"http://user:hunter2@{host}:{port}/app"):  # of a manifest that was kept
        with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell")) as failure:
            await ApplicationHooks().wake(Hook(HookKind.HTTP, (address,), PATIENCE_NS), ROOT)
        assert "hunter2" not in str(failure.value)
    with pytest.raises(HookFailed, check=that(comes_from="hooks.ApplicationHooks._tell")):
        await ApplicationHooks().quiesce(hook, ROOT)


async def test_a_program_says_whether_a_tree_is_what_it_was(tmp_path) -> None:
    """It hears whom it is about; only 0 is yes, and its time is bounded."""
    file = tmp_path / "said"
    hook = program(f"import sys; open({str(file)!r}, 'a').write(' '.join(sys.argv[1:]))")
    await ApplicationHooks().confirm(hook, ROOT)
    assert file.read_text() == "verify 100"
    for no in (program("raise SystemExit(7)"), program("import time; time.sleep(1000)", SHORT_NS)):
        with pytest.raises(VerifyFailed):
            await ApplicationHooks().confirm(no, ROOT)


async def test_a_server_is_asked_until_it_says_that_all_is_well() -> None:
    """One that has trouble, or does not listen yet, may be well later; of one that never is, why is said."""
    asked = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        asked.append(request.path)
        return aiohttp.web.Response(status=200 if request.path == "/well" and len(asked) > 2 else 503)

    server = aiohttp.web.AppRunner(app := aiohttp.web.Application())
    app.router.add_get("/{place}", answer)
    await server.setup()
    site = aiohttp.web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{server.addresses[0][1]}"
    await ApplicationHooks().confirm(Hook(HookKind.HTTP, (f"{address}/well",), PATIENCE_NS), ROOT)
    assert asked == ["/well"] * 3
    with pytest.raises(VerifyFailed, check=that(comes_from="hooks.ApplicationHooks.confirm", names="503")):
        await ApplicationHooks().confirm(Hook(HookKind.HTTP, (f"{address}/ill",), SHORT_NS), ROOT)
    await server.cleanup()
    with pytest.raises(VerifyFailed, check=that(names=("100", "0.2"))):
        await ApplicationHooks().confirm(Hook(HookKind.HTTP, (f"{address}/well",), SHORT_NS), ROOT)
