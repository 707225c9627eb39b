"""What no drawn world shows is noticed by one test."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))

from caught import CAUGHT  # noqa: E402
from planting import fails  # noqa: E402


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in CAUGHT])
def test_it_fails_its_test(bug, tmp_path):
    """The test that is named as its catcher fails, and nothing else goes wrong."""
    fails(bug, bug.catcher, tmp_path)
