"""What the tests of the kernel share: the folder's own modules can be imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kernel_world and its kin


@pytest.fixture
def anyio_backend():
    """Run async tests on asyncio; a test of both backends says so itself."""
    return "asyncio"
