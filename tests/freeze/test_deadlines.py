"""Deadlines grow with bytes (INV-C2): twice the bytes never get less, and nothing gets none."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.deadlines import copy_ns, dump_ns, paging_ns, restore_ns

SIZES = st.integers(0, 1 << 45)


@pytest.mark.parametrize("deadline", [dump_ns, restore_ns, paging_ns, copy_ns])
@given(size=SIZES, more=SIZES)
def test_a_deadline_grows_with_the_bytes(deadline, size, more):
    """There is a base for what has no size; each gigabyte adds at least a second, wherever it begins."""
    assert deadline(0) >= 10**9
    grown = deadline(size + more) - deadline(size)
    assert grown >= (more >> 30) * 10**9
    assert deadline(1 << 40) < 24 * 3600 * 10**9
