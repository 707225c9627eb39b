"""What the listings of the fleet say in words."""

import time

import anyio
import pytest

from iriscw.cli.fleet import coming
from iriscw.client.model import SliceStatus

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("expected_at_ms", "reason", "said"),
    [
        (1000 * MINUTE_MS, "", "ready in about 12m"),
        (1000 * MINUTE_MS, "pods are made", "ready in about 12m: pods are made"),
        (985 * MINUTE_MS, "pods are made", "late by 3m: pods are made"),
        (0, "no machines", ""),
    ],
)
def test_a_slice_says_when_it_should_be_ready(expected_at_ms, reason, said):
    """Beside what it says itself; nothing where nobody can say."""
    each = SliceStatus("s", "g", "BOOTING", reason, expected_at_ms=expected_at_ms)
    assert coming(each, 988 * MINUTE_MS) == said


def test_the_listing_of_slices_says_it_too(iriscw, monkeypatch):
    """In the column of reasons, of each slice that is on its way; another one has its own reason there."""
    soon_ms = time.time_ns() // 1_000_000 + 30 * MINUTE_MS

    class Client:
        async def slices(self, _group):
            on_its_way = SliceStatus("s1", "g", "BOOTING", "pods are made", expected_at_ms=soon_ms)
            return [on_its_way, SliceStatus("s2", "g", "DRAINING", "nobody needs it")]

    monkeypatch.setattr("iriscw.cli.fleet.with_client", lambda _address, _token, work: anyio.run(work, Client()))
    code, out, _ = iriscw("slices")
    first, second = out.splitlines()[1:]
    assert code == 0
    assert first.endswith(("ready in about 29m: pods are made", "ready in about 30m: pods are made"))
    assert second.endswith("nobody needs it")
    assert "ready" not in second
