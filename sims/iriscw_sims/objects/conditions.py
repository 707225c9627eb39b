"""Preconditions of reads and writes, as S3 judges them: against the object as it is at that moment.

A write whose ``If-Match`` meets no object at all is told 404, not 412: whoever retries must not take that for a lost
race.
"""

from __future__ import annotations

from iriscw_sims.objects.messages import ObjectHead
from iriscw_sims.objects.refusals import Refused

ANY = "*"


def check_write(present: ObjectHead | None, if_none_match: str, if_match: str) -> None:
    """Let a write pass, or not.

    Raises:
        Refused: PreconditionFailed; NoSuchKey, if there is nothing to match; NotImplemented, for conditions that S3
            does not know.
    """
    if if_none_match not in ("", ANY) or if_match == ANY or (if_match and if_none_match):
        raise Refused("NotImplemented")
    if if_none_match and present is not None:
        raise Refused("PreconditionFailed")
    if if_match:
        check_match(present, if_match)


def check_match(present: ObjectHead | None, if_match: str) -> None:
    """Let pass what names the present version, or any by ``*``; no condition passes too.

    Raises:
        Refused: PreconditionFailed, or NoSuchKey.
    """
    if not if_match:
        return
    if present is None:
        raise Refused("NoSuchKey")
    if if_match not in (ANY, present.etag):
        raise Refused("PreconditionFailed")


def check_read(present: ObjectHead, if_match: str, if_none_match: str) -> None:
    """Let a read pass, or not.

    Raises:
        Refused: PreconditionFailed, or NotModified.
    """
    check_match(present, if_match)
    if if_none_match and if_none_match in (ANY, present.etag):
        raise Refused("NotModified")
