"""``python -m iriscw.task``: the process of a task that is a callable.

It reads the attempt's files (see :mod:`iriscw.task.environment`), makes the call, and writes the result as a
whole. The exit code says how it went, for those who do not read the result:

==== ==============================================================================
code meaning
==== ==============================================================================
0    the call returned, or raised ``SystemExit(0)``; ``result`` holds the value, or None
1    the call raised, or its value cannot be sent; ``result`` holds why
64   the payload cannot be loaded (damaged, other Python, missing module); ``result`` holds why
65   the result could not be written; standard error says why
n    the call raised ``SystemExit(n)`` with n other than 0; 1 for what has no low byte, such as a text
==== ==============================================================================

A call that ends the process (``os._exit``) leaves no result, and the attempt has failed for that, whatever the code.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from pathlib import Path

from iriscw.files import read_bounded, write_atomic
from iriscw.task.environment import PAYLOAD_FILE, PRIVATE_FOLDER, RESULT_FILE
from iriscw.task.framing import HEADER_BYTES
from iriscw.task.payload import MAX_PAYLOAD_BYTES, load_payload
from iriscw.task.result import encode_exception, encode_value
from iriscw.task.sources import without_ours

EXIT_RAISED = 1
EXIT_NOT_LOADED = 64
EXIT_NOT_WRITTEN = 65

_MAX_FILE_BYTES = MAX_PAYLOAD_BYTES + HEADER_BYTES + (64 << 10)


def main() -> int:
    """Run the task of this process."""
    if sys.argv[1:] == ["--try"]:
        return _try()
    workdir = os.environ.get("IRIS_WORKDIR")
    if not workdir:
        sys.stderr.write("python -m iriscw.task is run by a worker: IRIS_WORKDIR is not set\n")
        return EXIT_NOT_LOADED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # they are files: a line must be seen when it is written
    sys.path.insert(0, workdir)
    folder = Path(workdir) / PRIVATE_FOLDER
    code, result = _run(folder)
    try:
        write_atomic(folder / RESULT_FILE, result)
    except OSError as error:
        sys.stderr.write(f"the task's result could not be written: {error}\n")
        return EXIT_NOT_WRITTEN
    return code


def _try() -> int:
    """Say whether a task could run here, among packages that may not be those that iriscw was tested with."""
    try:
        for name in ("iriscw.client.client", "cloudpickle"):
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a package of somebody else's may raise anything
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_NOT_LOADED
    return 0


def _run(folder: Path) -> tuple[int, bytes]:
    try:
        call = load_payload(read_bounded(folder / PAYLOAD_FILE, _MAX_FILE_BYTES))
    except BaseException as error:  # noqa: BLE001  # the pickle of a user may raise anything
        sys.stderr.write("the call cannot be unpickled here:\n")
        traceback.print_exception(without_ours(error))
        return EXIT_NOT_LOADED, encode_exception(error)
    try:
        return 0, encode_value(call())
    except SystemExit as error:
        # Only the low byte of a code reaches whoever waits: 256 must not look like a success.
        code = (error.code & 0xFF if isinstance(error.code, int) else 0) or EXIT_RAISED
        if not isinstance(error.code, int | None):
            sys.stderr.write(f"{error.code}\n")
        return code, encode_exception(error)
    except BaseException as error:  # noqa: BLE001  # whatever the call raised is its result
        traceback.print_exception(without_ours(error))
        return EXIT_RAISED, encode_exception(error)


if __name__ == "__main__":
    sys.exit(main())
