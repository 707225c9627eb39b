"""Errors and warnings as ``runc`` tells them, so that whoever called it finds them: ``--log``, ``--log-format``."""

from __future__ import annotations

import json
import sys
import time

from iriscw.shim.runc_options import RuncCommand


def fail(asked: RuncCommand, text: str) -> int:
    """Tell an error, in the log and on standard error; give the exit code."""
    say(asked, "error", text)
    if _log(asked):
        sys.stderr.write(f"{_one_line(text)}\n")
    return 1


def say(asked: RuncCommand, level: str, text: str) -> None:
    """Write one line to the log, or to standard error where there is none."""
    line = log_line(asked, level, text, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    name = _log(asked)
    if name:
        try:
            with open(name, "a", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs milliseconds
                file.write(line)
        except OSError as error:
            sys.stderr.write(f"iriscw-runc: {name}: {error.strerror}\n")
        else:
            return
    sys.stderr.write(line)


def log_line(asked: RuncCommand, level: str, text: str, at: str) -> str:
    """Return a line of the log as ``runc`` would write it."""
    text = _one_line(text)
    form = next((value for name, value in reversed(asked.given) if name == "log-format"), "text")
    if form == "json":
        return json.dumps({"level": level, "msg": text, "time": at}) + "\n"
    return f'time="{at}" level={level} msg={json.dumps(text)}\n'


def _log(asked: RuncCommand) -> str:
    return next((value for name, value in reversed(asked.given) if name == "log"), "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
