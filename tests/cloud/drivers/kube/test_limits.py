"""Limits are positive, and each is a field."""

import attrs
import pytest

from iriscw._errors import InvalidArgument
from iriscw.cloud.drivers.kube.limits import TransportLimits
from raised import that


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(TransportLimits)])
@pytest.mark.parametrize("value", [0, -1])
def test_no_limit_is_nothing(name, value):
    """Zero would mean that nothing ever works, not that there is no limit."""
    with pytest.raises(InvalidArgument, check=that(names=name)):
        TransportLimits(**{name: value})


def test_a_request_may_be_made_again_within_a_call():
    """One that goes silent leaves time for another."""
    limits = TransportLimits()
    assert limits.request_s * 2 <= 60
    assert limits.connect_s < limits.request_s


def test_streams_leave_connections():
    """To requests and watches, whose loss would stop everything."""
    limits = TransportLimits()
    assert limits.connections - limits.stream_places >= 30
    few = [TransportLimits(connections=connections).stream_places for connections in (1, 2, 3, 64, 65, 66)]
    assert few == [1, 1, 2, 63, 64, 64]
