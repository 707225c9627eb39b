"""The process of a task: result and exit code, whatever the call does."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from iriscw.files import make_private_folder, write_atomic
from iriscw.task.environment import AttemptFacts, encode_facts
from iriscw.task.payload import make_payload
from iriscw.task.result import load_result, read_result_summary


def run(workdir: Path, payload: bytes | None) -> subprocess.CompletedProcess[bytes]:
    """Run a task's process on a payload."""
    make_private_folder(workdir / ".iris")
    write_atomic(workdir / ".iris" / "context.json", encode_facts(AttemptFacts("/j", "/j/0", "uid", 0, 1)))
    if payload is not None:
        write_atomic(workdir / ".iris" / "payload", payload)
    return subprocess.run(
        [sys.executable, "-m", "iriscw.task"],
        env={**os.environ, "IRIS_WORKDIR": str(workdir)},
        cwd=workdir,
        capture_output=True,
        timeout=60,
        check=False,
    )


def result_of(workdir: Path) -> bytes:
    path = workdir / ".iris" / "result"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_bytes()


def exits(code):
    def call():
        sys.exit(code)

    return call


def test_a_value(tmp_path: Path) -> None:
    """It can ask for its context, and import from its working folder."""

    def call(x):
        import beside

        from iriscw.task.context import context

        sys.stdout.write("working\n")
        return (x, context().attempt_uid, beside.VALUE)

    (tmp_path / "beside.py").write_text("VALUE = 5")
    done = run(tmp_path, make_payload(call, [1], {}))
    assert (done.returncode, done.stdout) == (0, b"working\n"), done.stderr
    assert load_result(result_of(tmp_path)) == (1, "uid", 5)


@pytest.mark.parametrize(
    ("call", "code", "error_type"),
    [
        (lambda: 1 / 0, 1, "ZeroDivisionError"),
        (lambda: threading.Lock(), 1, "iriscw.task.result.ResultNotPicklable"),  # noqa: PLW0108
        (exits(7), 7, "SystemExit"),
        (exits("words"), 1, "SystemExit"),
        (exits(256), 1, "SystemExit"),
        (exits(-1), 255, "SystemExit"),
    ],
)
def test_failures(tmp_path: Path, call, code: int, error_type: str) -> None:
    """The exit code and the result agree, where only its low byte arrives too; standard error shows why."""
    done = run(tmp_path, make_payload(call, [], {}))
    assert done.returncode == code
    assert bool(done.stderr) is (error_type != "SystemExit" or b"words" in done.stderr)
    summary = read_result_summary(result_of(tmp_path))
    assert (summary.succeeded, summary.error_type) == (False, error_type)


@pytest.mark.parametrize("code", [None, 0])
def test_a_normal_exit_is_a_success(tmp_path: Path, code: int | None) -> None:
    """``sys.exit()`` is how many scripts end."""
    assert run(tmp_path, make_payload(exits(code), [], {})).returncode == 0
    assert load_result(result_of(tmp_path)) is None


def test_a_payload_that_cannot_be_loaded(tmp_path: Path) -> None:
    """Missing or damaged: its own exit code, and a result that says why."""
    damaged = bytearray(make_payload(print, [], {}))
    damaged[-1] ^= 1
    for number, payload in enumerate([None, bytes(damaged)]):
        workdir = tmp_path / str(number)
        assert run(workdir, payload).returncode == 64
        assert not read_result_summary(result_of(workdir)).succeeded


def test_by_hand_it_says_what_it_is() -> None:
    """Without a working folder there is nothing to do."""
    environment = {name: value for name, value in os.environ.items() if name != "IRIS_WORKDIR"}
    done = subprocess.run(
        [sys.executable, "-m", "iriscw.task"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 64
    assert b"run by a worker" in done.stderr
