"""``python -m iriscw.controller serve --config cluster.yaml``: the controller without the command line's libraries."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from iriscw._errors import IriscwError, UsageError
from iriscw.controller.logging import configure
from iriscw.controller.serve import serve
from iriscw.rpc.pacing import short_turned_loop

USAGE = 2
REFUSED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, with logs as JSON on standard error; give the exit code.

    It is 0 after an ordered stop, 2 for a wrong call, 3 when the world said no.
    """
    parser = argparse.ArgumentParser(prog="python -m iriscw.controller", description="The controller of a cluster.")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--config", required=True, type=Path, help="the cluster's configuration")
    parser.add_argument("--host", help="the address to listen on")
    parser.add_argument("--port", type=int, help="the port to listen on; 0 takes a free one")
    parser.add_argument("--bundle-prefix", help="the object store for bundles, as an URL")
    parser.add_argument("--state-dir", type=Path, help="where journal, logs, results and secrets lie")
    parser.add_argument("--insecure-plaintext", action="store_true", help="listen without TLS: the network is trusted")
    said = parser.parse_args(arguments)
    try:
        configure()
        anyio.run(
            functools.partial(
                serve,
                said.config,
                host=said.host,
                port=said.port,
                bundle_prefix=said.bundle_prefix,
                state_dir=said.state_dir,
                insecure_plaintext=said.insecure_plaintext,
            ),
            backend_options={"loop_factory": short_turned_loop},
        )
    except IriscwError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return USAGE if isinstance(error, UsageError) else REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
