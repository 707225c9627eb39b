"""What the tests of processes share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
