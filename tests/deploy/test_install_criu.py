"""The script that installs CRIU: what it refuses, and what it leaves alone. That it installs one, .ci/run shows."""

import os
import subprocess
from pathlib import Path

import pytest

from iriscw.freeze.drivers.criu.finding import INSTALLER, VERSION, find_criu, installed_folder
from iriscw.freeze.model import CriuMissing


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


def test_criu_is_found_where_the_script_puts_it(tmp_path, monkeypatch) -> None:
    """Before the one in PATH, and after the one that was named; the folder says which version it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("IRISCW_CRIU", raising=False)
    with pytest.raises(CriuMissing, match="install-criu"):
        find_criu()
    on_path = program(tmp_path / "bin")
    assert find_criu() == on_path
    installed = program(installed_folder())
    assert find_criu() == installed
    assert f"version={VERSION}" in INSTALLER.read_text()
    assert installed_folder().name.startswith(f"criu-{VERSION}-")
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "named"))
    with pytest.raises(CriuMissing, match="named"):
        find_criu()
