"""Makes what the tests of object storage share importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def anyio_backend():
    """The server is aiohttp's, and that is asyncio's."""
    return "asyncio"
