"""The ``iriscw`` command. Nothing but the function below is imported before it runs.

Tasks of ``iriscw demo`` import modules below this package, and those must not load what the terminal needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; see :mod:`iriscw.cli.outcome` for what the codes mean."""
    try:
        from iriscw.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:  # during the imports, which take a third of a second
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
