"""Conditions in S3's words."""

from iriscw.objects.drivers.s3_upload import conditions
from iriscw.objects.ports import IfAbsent, IfMatch


def test_conditions() -> None:
    """As HTTP has them."""
    assert conditions(None) == {}
    assert conditions(IfAbsent()) == {"IfNoneMatch": "*"}
    assert conditions(IfMatch("abc")) == {"IfMatch": '"abc"'}
