"""The built-in tiers keep the contract of tiers."""

import pytest

from iriscw.checkpoint.drivers.built_in import BUILT_IN, DISK, RAM
from iriscw.checkpoint.drivers.plug import TierPlug
from iriscw.testing.conformance.tier import TierConformance


class TestRam(TierConformance):
    """In memory."""

    @pytest.fixture
    def plug(self) -> TierPlug:
        """The built-in one."""
        return BUILT_IN[RAM]


class TestDisk(TierConformance):
    """On a disk."""

    @pytest.fixture
    def plug(self) -> TierPlug:
        """The built-in one."""
        return BUILT_IN[DISK]
