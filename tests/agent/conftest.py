"""What the tests of this folder share."""

import pytest


@pytest.fixture(autouse=True)
def _apart(claims_of_ours):
    """See there."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
