"""What the tests of installed packages share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for installing and tiny_wheels


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The asyncio backend: that of the product."""
    return "asyncio"
