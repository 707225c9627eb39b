"""What the tests of benchmarks share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for ratios and worker_storm


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"
