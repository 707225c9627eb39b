"""Environments of packages: made once, shared, bounded, and never left half-made. With the real uv and the real pip."""

import os
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest
from installing import attempt, cache_of, real, scripted
from tiny_wheels import only, wheel

from iriscw.packages.cache import START_GRACE_S, TRIES, CacheLimits, DependenciesFailed, PackagesUnavailable
from iriscw.packages.installers import Installer
from iriscw.processes.identity import identify, is_alive
from raised import that
from waiting import until

pytestmark = pytest.mark.slow

INSTALLERS = ("uv", "pip")

HANGS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
told = pathlib.Path(sys.argv[1], "processes")
told.with_name("unfinished").write_text(f"{os.getpid()} {child.pid}")
told.with_name("unfinished").rename(told)
time.sleep(1000)
"""


def asked(name: str) -> Installer:
    """Return an installer of the machine."""
    installer = real(name)
    if installer is None:
        pytest.skip(f"there is no {name}")
    return installer


@pytest.mark.parametrize("name", INSTALLERS)
async def test_one_is_made_for_all_that_want_the_same(tmp_path: Path, name: str) -> None:
    """Two at once make one, a third uses it. It has the package, what that needs, and iriscw."""
    wheel(tmp_path / "wheels", needs="iriscw-deep>=2")
    wheel(tmp_path / "wheels", "iriscw_deep", "1.0")
    wheel(tmp_path / "wheels", "iriscw_deep", "2.5")
    cache = cache_of(tmp_path, asked(name), only(tmp_path / "wheels"))
    await cache.sweep()
    said: list[str] = []
    found = []

    async def provide(uid: str, *wanted: str) -> None:
        found.append(await cache.provide(wanted, attempt(tmp_path, uid), 120, said.append))

    async with anyio.create_task_group() as both:
        both.start_soon(provide, "a", "iriscw-tiny>=1", "iriscw_deep")
        both.start_soon(provide, "b", "iriscw.deep", "IRISCW_TINY >= 1")
    await provide("c", "iriscw-tiny>=1", "iriscw-deep")
    assert found[0] == found[1] == found[2]
    assert not found[0].hindrance
    assert (cache.counts.made, cache.counts.reused) == (1, 2)
    assert sorted(text.split()[0] for text in said) == ["installs", "waits", "waits"]
    script = "import iriscw, iriscw_tiny, iriscw_deep, sys; print(iriscw_tiny.VERSION, iriscw_deep.VERSION, sys.prefix)"
    done = await anyio.run_process([str(found[0].python), "-c", script], cwd="/")
    assert done.stdout.decode().split() == ["1.0", "2.5", str(found[0].folder)]
    assert not [each for each in found[0].folder.rglob("*") if each.is_dir() and each.stat().st_mode & 0o222]


async def test_what_iriscw_cannot_run_beside_is_told_with_the_environment(tmp_path: Path) -> None:
    """Commands can use it all the same; a callable is refused with these words."""
    wheel(tmp_path / "wheels", "attr", "99")  # iriscw needs another module of this name
    cache = cache_of(tmp_path, asked("pip"), only(tmp_path / "wheels"))
    await cache.sweep()
    found = await cache.provide(("attr",), attempt(tmp_path, "a"), 120)
    assert "attr" in found.hindrance
    assert (await cache.provide(("attr",), "a", 120)).hindrance == found.hindrance


@pytest.mark.parametrize("name", INSTALLERS)
async def test_what_cannot_be_installed_is_said_with_its_last_line(tmp_path: Path, name: str) -> None:
    """Another version than there is: the job's fault, tried once, and nothing is left of it."""
    wheel(tmp_path / "wheels")
    cache = cache_of(tmp_path, asked(name), only(tmp_path / "wheels"))
    await cache.sweep()
    with pytest.raises(DependenciesFailed, check=that(names=("iriscw-tiny", "==9"))) as failed:
        await cache.provide(("iriscw-tiny==9",), attempt(tmp_path, "a"), 120)
    *_, before, last = str(failed.value).splitlines()
    assert last.endswith(before.strip())
    assert cache.counts.failed == 1
    assert [each.name for each in cache.root.iterdir()] == ["locks"]


@pytest.mark.parametrize("name", INSTALLERS)
async def test_credentials_of_an_index_are_told_to_nobody(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody answers there: it is tried a bounded number of times, and is no fault of the job's."""
    with socket.socket() as bound:  # so that nobody else has the port; and nobody listens
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        await unreached(tmp_path, asked(name), port, caplog)


async def unreached(tmp_path: Path, installer: Installer, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Ask for a package where nobody answers."""
    address = f"http://user:secret@127.0.0.1:{port}/simple"
    ours = {"PIP_INDEX_URL": address, "UV_DEFAULT_INDEX": address, "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}
    cache = cache_of(tmp_path, installer, ours)
    await cache.sweep()
    with caplog.at_level("DEBUG"), pytest.raises(PackagesUnavailable, check=that(names=port)) as failed:
        await cache.provide(("iriscw-tiny",), attempt(tmp_path, "a"), 120)
    assert "secret" not in str(failed.value) + caplog.text
    assert "user" not in str(failed.value)


async def test_an_index_that_is_away_is_asked_a_bounded_number_of_times(tmp_path: Path) -> None:
    """And what it says after that is what it said last; one that comes back is used."""
    log = tmp_path / "log"
    away = f"import sys; open({str(log)!r}, 'a').write('x'); sys.exit('ECONNREFUSED: connection refused')"
    cache = cache_of(tmp_path, scripted(away))
    await cache.sweep()
    with pytest.raises(PackagesUnavailable, check=that(names="ECONNREFUSED")):
        await cache.provide(("a",), attempt(tmp_path, "a"), 60)
    assert log.read_text() == "x" * TRIES
    comes = f"import sys; o = open({str(log)!r}, 'a'); o.write('y'); o.tell() > {TRIES + 1} or sys.exit('503 Service')"
    cache = cache_of(tmp_path, scripted(comes))
    await cache.provide(("a",), "a", 60)
    assert log.read_text() == "x" * TRIES + "yy"


async def test_the_one_that_was_used_longest_ago_goes_and_none_that_is_in_use(tmp_path: Path) -> None:
    """With room for one: another is refused until its user is gone. Also if both have the same lock."""
    cache = cache_of(tmp_path, scripted(""), limits=CacheLimits(environments=1))
    await cache.sweep()
    lock = cache.digest(("a",))[:2]
    other = next(name for name in map("b{}".format, range(9_999)) if cache.digest((name,))[:2] == lock)
    first = await cache.provide(("a",), attempt(tmp_path, "one"), 60)
    use = first.folder.parent / "uses" / "one"
    long_ago = use.stat().st_mtime - START_GRACE_S - 60
    os.utime(use, (long_ago, long_ago))
    with pytest.raises(PackagesUnavailable, check=that(comes_from="cache.EnvironmentCache._make_room", names=1)):
        await cache.provide((other,), attempt(tmp_path, "two"), 60)
    assert await cache.provide(("a",), "one", 60) == first
    (tmp_path / "users" / "one").rmdir()
    with pytest.raises(PackagesUnavailable):  # it has just said so again: its attempt may be about to begin
        await cache.provide((other,), "two", 60)
    os.utime(use, (long_ago, long_ago))
    second = await cache.provide((other,), "two", 60)
    assert second.folder.is_dir()
    assert not first.folder.parent.exists()
    assert (cache.counts.made, cache.counts.removed) == (2, 1)


def processes_of(root: Path) -> list[int]:
    """Return those that a hanging installer told of; none if it has not yet."""
    return [int(word) for told in root.glob("*/env/processes") for word in told.read_text().split()]


async def test_cancelling_ends_an_installer_with_what_it_started(tmp_path: Path) -> None:
    """And nothing is left of what it was making."""
    cache = cache_of(tmp_path, scripted(HANGS))
    await cache.sweep()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cache.provide, ("a",), attempt(tmp_path, "a"), 60)
        found = [identify(pid) for pid in await until(lambda: processes_of(cache.root))]
        assert len(found) == 2
        tasks.cancel_scope.cancel()
    assert not [each for each in found if is_alive(each)]
    assert [each.name for each in cache.root.iterdir()] == ["locks"]


MAKER = """
import sys, anyio
from pathlib import Path
sys.path[:0] = {path}
from installing import attempt, cache_of, scripted
async def main():
    cache = cache_of(Path({folder!r}), scripted({script!r}))
    await cache.sweep()
    await cache.provide(("a",), attempt(Path({folder!r}), "a"), 60)
anyio.run(main)
"""


async def test_what_a_killed_maker_left_is_removed_at_the_start(tmp_path: Path) -> None:
    """With the installer that it left running; one that another maker is busy with stays."""
    here = str(Path(__file__).parent)
    script = MAKER.format(path=[here, str(Path(here).parent)], folder=str(tmp_path), script=HANGS)
    cache = cache_of(tmp_path, scripted(HANGS))
    async with await anyio.open_process([sys.executable, "-c", script], stdout=None, stderr=None) as maker:
        try:
            found = [identify(pid) for pid in await until(lambda: processes_of(cache.root))]
            await cache.sweep()
            assert [each for each in found if is_alive(each)] == found
        finally:
            maker.kill()
            await maker.wait()
    assert maker.returncode == -signal.SIGKILL
    await cache.sweep()
    assert not [each for each in found if is_alive(each)]
    assert [each.name for each in cache.root.iterdir()] == ["locks"]
