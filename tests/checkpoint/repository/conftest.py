"""What the tests of this folder share."""

import sys
from pathlib import Path

import pytest

for folder in (Path(__file__).parent, Path(__file__).parents[1]):  # for the modules beside this one, and above
    sys.path.insert(0, str(folder))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
