"""Makes the world of the tests importable, and sets what async tests run on."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def anyio_backend():
    """Run async tests on asyncio."""
    return "asyncio"
