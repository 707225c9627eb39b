"""Names of buckets, by service."""

import pytest

from iriscw_sims.objects.rules import AWS, COREWEAVE


@pytest.mark.parametrize("name", ["abc", "a-b", "0ab", "a" * 63])
def test_names_that_all_take(name):
    """Letters, digits and hyphens, 3 to 63."""
    assert AWS.allows_bucket(name)
    assert COREWEAVE.allows_bucket(name)


@pytest.mark.parametrize("name", ["", "ab", "a" * 64, "Abc", "a_b", "-ab", "ab-", "a b", "äbc", "xn--abc", "abc\n"])
def test_names_that_nobody_takes(name):
    """Wrong lengths, letters and ends."""
    assert not AWS.allows_bucket(name)
    assert not COREWEAVE.allows_bucket(name)


@pytest.mark.parametrize("name", ["a.b", "cw-a", "vip-a", "log-stitcher-ch-a"])
def test_names_that_coreweave_does_not_take(name):
    """Dots, which its certificates do not cover, and its own prefixes."""
    assert AWS.allows_bucket(name)
    assert not COREWEAVE.allows_bucket(name)


@pytest.mark.parametrize("name", ["a..b", "10.0.0.1", "sthree-a", "a-s3alias", "a--x-s3"])
def test_names_that_amazon_does_not_take(name):
    """Addresses, and its own prefixes and suffixes."""
    assert not AWS.allows_bucket(name)
