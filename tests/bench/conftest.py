"""What the tests of benchmarks share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"
