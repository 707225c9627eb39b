"""The script that installs CRIU: what it refuses, and what it leaves alone. That it installs one, .ci/run shows."""

import fcntl
import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from iriscw.freeze.drivers.criu.finding import INSTALLER, VERSION, find_criu, how_to_install, installed_folder
from iriscw.freeze.model import CriuMissing
from raised import that

PATIENCE_S = 60.0


def install(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    """Run the script."""
    return subprocess.run(
        [str(INSTALLER), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def program(folder: Path) -> Path:
    """Put something executable where CRIU would be."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "criu"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_another_source_is_refused(tmp_path) -> None:
    """What has another sum is not unpacked, and nothing that runs is left."""
    source = tmp_path / "source.tar.xz"
    source.write_bytes(b"something else")
    done = install("--from", "source", tmp_path / "criu", CRIU_SOURCE=str(source))
    assert done.returncode == 1
    if "needs apt-get" in done.stderr or "to build it with" in done.stderr or "only for" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert "its SHA-256 is another one" in done.stderr
    assert [path.name for path in (tmp_path / "criu").iterdir()] == [".lock"]


@pytest.fixture
def broken(tmp_path) -> dict[str, str]:
    """An environment in which neither way leads anywhere, and no network is asked."""
    source = tmp_path / "source.tar.xz"
    source.write_bytes(b"something else")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (folder / "apt-get").chmod(0o755)
    environment = {"CRIU_SOURCE": str(source), "PATH": f"{folder}:{os.environ['PATH']}"}
    done = install(tmp_path / "probe", **environment)
    if any(each in done.stderr for each in ("needs apt-get", "to build it with", "only for")):
        pytest.skip(done.stderr.strip())
    return environment


def test_what_takes_long_is_said_before_it_begins(tmp_path, broken) -> None:
    """With the log, and the faster way where there is one and nobody has chosen."""
    folder = tmp_path / "criu"
    building = f"install-criu: builds CRIU {VERSION} from source, which takes a minute, or many on a busy machine; "
    building += f"log: {folder}/build.log"
    first, *_ = install(folder, **broken).stderr.splitlines()
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    faster = "; Debian's own takes seconds: --from debian, or make criu ARGS='--from debian'"
    assert first == building + faster * keys.exists()
    assert install("--from", "source", folder, **broken).stderr.splitlines()[0] == building
    if keys.exists():
        said = install("--from", "debian", folder, **broken).stderr.splitlines()
        assert said[0] == "install-criu: fetches Debian's CRIU, which takes some seconds"


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock: the script does not wait")
def test_that_another_one_is_waited_for_is_said(tmp_path, broken) -> None:
    """Two at the same time: the second waits until the first is done, and says so at once."""
    folder = tmp_path / "criu"
    folder.mkdir()
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(
            [str(INSTALLER), str(folder)], env={**os.environ, **broken}, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            try:
                assert select.select([process.stderr], [], [], PATIENCE_S)[0]
                assert process.stderr.readline() == f"install-criu: waits for another install-criu in {folder}\n"
            finally:
                program(folder)
                fcntl.flock(held, fcntl.LOCK_UN)
            assert process.stderr.read() == ""
    assert process.returncode == 0


def test_what_is_there_is_taken(tmp_path) -> None:
    """Nothing is made again; only looking for it makes nothing."""
    assert install("--only-find", tmp_path / "none").returncode == 1
    assert not (tmp_path / "none").exists()
    path = program(tmp_path / "here")
    assert install("--only-find", tmp_path / "here").stdout == f"{path}\n"
    assert install(tmp_path / "here").stdout == f"{path}\n"


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path) -> None:
    """Something is in it, and the script did not put it there: it would remove a folder ``lib``."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine").write_text("mine")
    done = install(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not ours" in done.stderr or "needs apt-get" in done.stderr or "only for" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lib"]
    assert (tmp_path / "lib" / "mine").read_text() == "mine"


@pytest.mark.parametrize("arguments", [["--what"], ["--from", "elsewhere"], ["a", "b"]])
def test_what_it_does_not_understand_it_says(arguments) -> None:
    """Options that are none, one folder too many."""
    done = install(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("install-criu: ")


def test_how_it_is_installed_is_said_as_where_it_stands(tmp_path) -> None:
    """By its Makefile in a checkout, and elsewhere by the script alone: an installed package has no Makefile."""
    checkout = tmp_path / "src" / "iriscw" / "deploy" / "install-criu"
    assert how_to_install(checkout) == f"`bash {checkout}`"
    (tmp_path / "Makefile").touch()
    assert how_to_install(checkout) == f"`make criu` in {tmp_path}"
    installed = tmp_path / "site-packages" / "iriscw" / "deploy" / "install-criu"
    assert how_to_install(installed) == f"`bash {installed}`"


def test_criu_is_found_where_the_script_puts_it(tmp_path, monkeypatch) -> None:
    """Before the one in PATH, and after the one that was named; the folder says which version it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("IRISCW_CRIU", raising=False)
    with pytest.raises(CriuMissing, check=that(names="make")):
        find_criu()
    on_path = program(tmp_path / "bin")
    assert find_criu() == on_path
    installed = program(installed_folder())
    assert find_criu() == installed
    assert f"version={VERSION}" in INSTALLER.read_text()
    assert installed_folder().name.startswith(f"criu-{VERSION}-")
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "named"))
    with pytest.raises(CriuMissing, check=that(names="named")):
        find_criu()
