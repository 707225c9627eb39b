"""What this machine has for freezing, and how to get the rest."""

import stat
from pathlib import Path

import pytest

from iriscw.doctor import freezing
from iriscw.doctor.findings import Health
from iriscw.doctor.freezing import CHANGES, LAZY, NETWORK, judge_criu, judge_cuda, look_at_freezing
from iriscw.freeze.model import CriuAbility, CudaAbility, NoRoom


class NoDriver:
    """A machine without a GPU."""

    async def ability(self) -> CudaAbility:
        return CudaAbility(False, reason="there is no GPU")


def program(folder: Path, text: str) -> Path:
    """Write a program that says it is CRIU."""
    path = folder / "criu"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


VERSION = 'case "$*" in *--version*) echo "Version: {version}"; exit 0;; esac\n'
RIGHTS = "Error (criu/crtools.c:1): CRIU needs to have the CAP_SYS_ADMIN capability"


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        (VERSION.format(version="4.2.1") + "exit 0", Health.OK, "4.2.1"),
        (VERSION.format(version="3.17.1") + "exit 0", Health.WRONG, "too old"),
        (VERSION.format(version="4.2") + f'echo "{RIGHTS}" >&2; exit 1', Health.WRONG, "rights are missing"),
        (VERSION.format(version="4.2") + "exit 1", Health.WRONG, "does not work"),
        ("exit 0", Health.WRONG, "which version"),
    ],
)
async def test_a_criu_is_judged_by_what_it_does(tmp_path, text, verdict, said) -> None:
    """Its version, and what it says when it checks itself."""
    found = await look_at_freezing(program(tmp_path, text), NoDriver())
    assert (found[0].check, found[0].verdict) == ("criu", verdict)
    assert said in found[0].found
    assert bool(found[0].advice) == (verdict is not Health.OK)
    assert found[-1].found == "none: there is no GPU"


async def test_a_criu_that_is_missing_is_a_warning_with_a_way(tmp_path) -> None:
    """The script that installs one is named."""
    (found, _) = await look_at_freezing(tmp_path / "none", NoDriver())
    assert found.verdict is Health.WARNING
    assert "make criu" in found.advice


async def test_a_criu_for_which_there_is_no_room_is_tried_again(monkeypatch) -> None:
    """That says nothing of CRIU, so nobody is told to install another one."""

    def probe(program):
        raise NoRoom("/criu could not be started: Resource temporarily unavailable")

    monkeypatch.setattr(freezing, "probe", probe)
    found = next(each for each in await look_at_freezing(None) if each.check == "criu")
    assert (found.verdict, found.advice) == (Health.WRONG, "try again when less runs here")


def test_features_are_judged() -> None:
    """What is missing is told, and whether it matters."""
    whole = judge_criu(CriuAbility("/criu", "4.2", features=(CHANGES, NETWORK, LAZY)), "1")
    assert [each.check for each in whole] == ["criu"]
    bare = {each.check: each for each in judge_criu(CriuAbility("/criu", "4.2"), "3", 0)}
    verdicts = {name: each.verdict for name, each in bare.items()}
    assert verdicts == {
        "criu": Health.OK,
        "criu tracing": Health.WRONG,
        "criu rights": Health.WARNING,
        "criu tcp": Health.WARNING,
        "criu features": Health.OK,
    }


def test_a_driver_is_judged() -> None:
    """Its version, its interface, and whether it moves processes to other GPUs."""
    found = judge_cuda(CudaAbility(True, "580.1", "api", can_map_gpus=True)).found
    assert found == "driver 580.1 by its api; a thaw may move to other GPUs"
    assert "same GPUs" in judge_cuda(CudaAbility(True, "570.1", "binary")).found
