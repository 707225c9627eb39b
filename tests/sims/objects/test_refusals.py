"""Refusals carry S3's codes and statuses."""

import pytest

from iriscw_sims.objects.messages import Answer, GetObject, HeadObject
from iriscw_sims.objects.refusals import CODES, Refused, refusal, told


def test_a_refusal_becomes_an_answer():
    """With status, code and words; words of its own win."""
    answer = Refused("SlowDown").answer
    assert (answer.status, answer.code, answer.ok) == (503, "SlowDown", False)
    assert str(Refused("InvalidArgument", "too odd")) == "InvalidArgument: too odd"
    with pytest.raises(KeyError):
        Refused("NoSuchCode")


def test_a_refused_head_has_a_status_only():
    """It has no body that could say more."""
    assert told(HeadObject("k"), refusal("NoSuchBucket")) == Answer(404)
    assert told(GetObject("k"), refusal("NoSuchBucket")).code == "NoSuchBucket"
    assert told(HeadObject("k"), Answer(200)) == Answer(200)
    assert told(GetObject("k"), refusal("NotModified")) == Answer(304)


def test_statuses_are_refusals():
    """Each code stands under a status that no success has."""
    assert all(300 <= status < 600 and message for status, message in CODES.values())
