"""What a job brings with it is shown by the command line, and not obeyed by the terminal."""

import json
import os
import subprocess

import pytest

from iriscw._errors import InvalidArgument
from iriscw.cli.outcome import report
from iriscw.cli.output import cell, to_json, visible
from iriscw.client import discovery
from iriscw.client.errors import NoController
from iriscw.processes.identity import identify
from iriscw.rpc.tokens import Secret
from raised import that

HOSTILE = "\x1b]0;title\x07 \x9b2J \u202egpj.exe \x7f"


def test_a_cell_shows_what_it_cannot_print() -> None:
    """No escape, C1 control or change of direction leaves a cell; what people write stays as it is."""
    assert cell(HOSTILE).isprintable()
    assert "\\x1b" in cell(HOSTILE)
    assert cell("größer, 東京") == "größer, 東京"
    assert visible("a\n\tb") == "a\n\tb"


def test_json_is_harmless_and_means_the_same() -> None:
    """JSON escapes it in its own way: a program reads back what was there."""
    text = to_json([HOSTILE, "東京", "\U000e0001"])
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == [HOSTILE, "東京", "\U000e0001"]


def test_an_error_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """An error's text may be a task's own."""
    report(InvalidArgument(f"{HOSTILE}\n{HOSTILE}"), verbose=False)
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_a_killed_cluster_is_named_at_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context whose process is gone is told from a controller that is slow: nobody dials for a minute."""
    path = tmp_path / "context.json"
    monkeypatch.setenv(discovery.CONTEXT_VARIABLE, str(path))
    for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_JOB_ID", "IRIS_WORKDIR"):
        monkeypatch.delenv(name, raising=False)
    with subprocess.Popen(["sleep", "60"]) as process:
        owner = identify(process.pid)
        process.kill()
    monkeypatch.setattr(discovery, "identify", lambda pid: owner if pid == os.getpid() else identify(pid))
    discovery.write_context(path, "127.0.0.1:7", Secret("tok"))
    with pytest.raises(NoController, check=that(names="127.0.0.1:7")):
        discovery.discover()
    discovery.write_context(path, "10.0.0.1:7", Secret("tok"))
    assert discovery.discover().address == "10.0.0.1:7"
