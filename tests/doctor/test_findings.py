"""What a finding says."""

import pytest

from iriscw.cloud.model import Forbidden, Throttled, Unavailable
from iriscw.doctor.findings import Health, ok, unseen, warning, wrong


def test_a_finding_says_how_it_stands():
    """What is well needs no advice."""
    assert (ok("a", "b").verdict, ok("a", "b").advice) == (Health.OK, "")
    assert warning("a", "b", "c").verdict is Health.WARNING
    assert wrong("a", "b", "c").advice == "c"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Forbidden("may not\nlook"), Health.WARNING),
        (Unavailable("gone"), Health.WRONG),
        (Throttled("slow"), Health.WRONG),
        (Unavailable(), Health.WRONG),
    ],
)
def test_who_may_not_look_found_nothing_wrong(error, verdict):
    """A cluster that does not answer is another thing. The text is one line, and never empty."""
    found = unseen("thing", error)
    assert found.verdict is verdict
    assert found.found.startswith("not looked at: ")
    assert len(found.found) > len("not looked at: ")
    assert "\n" not in found.found
    assert found.advice
