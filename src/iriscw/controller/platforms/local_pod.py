"""What a pod of the local platform runs: becomes the worker, told by the environment who it is.

``python -m iriscw.controller.platforms.local_pod CONTROLLER CACHE_DIR``. The platform gives all pods one command;
what differs is in IRIS_WORKER_ID, IRIS_INCARNATION and IRISCW_TOKEN_FILE. The process replaces itself, so its
id and parent stay.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the worker's command line.

    Raises:
        SystemExit: the arguments are not an address and a folder, or the environment does not say who this is.
    """
    names = ("IRIS_WORKER_ID", "IRIS_INCARNATION", "IRISCW_TOKEN_FILE")
    missing = [name for name in names if not environment.get(name)]
    if len(arguments) != 2 or missing:
        raise SystemExit(f"a controller's address and a folder are expected, and in the environment {', '.join(names)}")
    controller, cache_dir = arguments
    worker_id, incarnation, token_file = (environment[name] for name in names)
    return [
        *(sys.executable, "-m", "iriscw.worker", "serve"),
        *("--controller", controller),
        *("--worker-id", worker_id),
        *("--incarnation", incarnation),
        *("--cache-dir", cache_dir),
        *("--token-file", token_file),
        *("--host", "127.0.0.1"),
        *("--port", "0"),
    ]


if __name__ == "__main__":
    argv = command(sys.argv[1:], os.environ)
    os.execv(argv[0], argv)  # noqa: S606 - this very interpreter, and arguments that were checked
