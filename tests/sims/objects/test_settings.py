"""The presets are in order."""

import attrs
import pytest

from iriscw_sims.coreweave.settings import Span
from iriscw_sims.objects.settings import FAITHFUL, QUICK


@pytest.mark.parametrize("settings", [FAITHFUL, QUICK], ids=["faithful", "quick"])
def test_patience_outlasts_an_ordinary_answer(settings):
    """Otherwise every request would be given up; and one body is no faster than all of them."""
    longest = max(settings.latency.most, settings.latency.tail) + settings.latency_slow.most
    assert settings.patience > longest
    assert settings.stream_bytes_per_s <= min(settings.up_bytes_per_s, settings.down_bytes_per_s)


def test_quick_is_quicker():
    """In every span."""
    for field in attrs.fields(type(QUICK)):
        quick, faithful = getattr(QUICK, field.name), getattr(FAITHFUL, field.name)
        if isinstance(quick, Span):
            assert quick.most <= max(faithful.most, faithful.tail)
