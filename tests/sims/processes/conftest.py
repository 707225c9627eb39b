"""What the tests of pods that are processes share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))


@pytest.fixture
def anyio_backend():
    """The server is aiohttp's, and that is asyncio's."""
    return "asyncio"
