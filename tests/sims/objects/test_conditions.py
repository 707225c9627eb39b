"""Preconditions, case by case."""

import pytest

from iriscw_sims.objects.conditions import check_match, check_read, check_write
from iriscw_sims.objects.messages import ObjectHead
from iriscw_sims.objects.refusals import Refused

HEAD = ObjectHead("k", 1, "tag", 0)


def code_of(check, *args):
    """Return the code of a refusal, "" for none."""
    try:
        check(*args)
    except Refused as refused:
        return refused.answer.code
    return ""


@pytest.mark.parametrize(
    ("present", "if_none_match", "if_match", "code"),
    [
        (None, "", "", ""),
        (HEAD, "", "", ""),
        (None, "*", "", ""),
        (HEAD, "*", "", "PreconditionFailed"),
        (HEAD, "", "tag", ""),
        (HEAD, "", "other", "PreconditionFailed"),
        (None, "", "tag", "NoSuchKey"),
        (HEAD, "", "*", "NotImplemented"),
        (HEAD, "tag", "", "NotImplemented"),
        (HEAD, "*", "tag", "NotImplemented"),
    ],
)
def test_writes(present, if_none_match, if_match, code):
    """412 for a lost race, 404 where there is nothing to match, 501 for what S3 does not know."""
    assert code_of(check_write, present, if_none_match, if_match) == code


@pytest.mark.parametrize(
    ("present", "if_match", "code"),
    [
        (None, "", ""),
        (HEAD, "tag", ""),
        (HEAD, "*", ""),
        (HEAD, "other", "PreconditionFailed"),
        (None, "*", "NoSuchKey"),
        (None, "tag", "NoSuchKey"),
    ],
)
def test_deletes_and_sources(present, if_match, code):
    """A star matches any version."""
    assert code_of(check_match, present, if_match) == code


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "code"),
    [
        ("", "", ""),
        ("tag", "", ""),
        ("other", "", "PreconditionFailed"),
        ("", "tag", "NotModified"),
        ("", "*", "NotModified"),
        ("", "other", ""),
        ("tag", "tag", "NotModified"),
        ("other", "tag", "PreconditionFailed"),
    ],
)
def test_reads(if_match, if_none_match, code):
    """``If-Match`` is judged first."""
    assert code_of(check_read, HEAD, if_match, if_none_match) == code
