"""What CRIU says of itself: what it can is kept, what it could not is asked again, and want of room has a name."""

import errno
import os

import pytest

from iriscw.freeze.drivers.criu import ability, driver, remembering
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.model import CriuAbility, CriuUnfit, NoRoom

SCRIPT = """#!/bin/sh
case "$*" in
    *--version*) echo "Version: 4.2.1" ;;
    *uffd-noncoop*) test -e {folder}/able ;;
esac
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def program(tmp_path):
    """A program that says what CRIU says, and lacks a feature until there is a file."""
    path = tmp_path / "criu"
    path.write_text(SCRIPT.format(folder=tmp_path))
    path.chmod(0o700)
    return path


@pytest.mark.anyio
async def test_what_was_not_found_is_looked_for_again(tmp_path, program, monkeypatch) -> None:
    """Not at once, and only until all is there: a check may have failed for want of room."""
    now, asked = [1000.0], []
    real = remembering.probe
    monkeypatch.setattr(remembering, "probe", lambda path: asked.append(path) or real(path))
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    criu = CriuSwrk(program)
    assert "uffd-noncoop" not in (await criu.ability()).features
    (tmp_path / "able").touch()
    now[0] += ability.AGAIN_S - 1
    assert "uffd-noncoop" not in (await criu.ability()).features
    now[0] += 1
    assert (await criu.ability()).features == tuple(sorted(ability.FEATURES))
    now[0] += 10 * ability.AGAIN_S
    assert isinstance(await criu.ability(), CriuAbility)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EAGAIN, NoRoom), (errno.ENOMEM, NoRoom), (errno.EMFILE, NoRoom), (errno.ENOEXEC, CriuUnfit)],
)
def test_want_of_room_says_nothing_of_criu(program, monkeypatch, number, error) -> None:
    """It may be tried again; what is not a program is none."""

    def run(*words, **more):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ability.subprocess, "run", run)
    with pytest.raises(error):
        ability.probe(program)
