"""ListObjectsV2: pages of keys in the order of their UTF-8 bytes, rolled up at a delimiter.

Keys that share what comes before the delimiter, behind the prefix, are one *common prefix*; it counts as one entry of
a page and stands where its first key would. A page that ends with a common prefix is continued behind all of its keys.
The token is the last entry of the page before, in a wrapping that clients must not look into. ``start_after`` goes by
the key, but for a common prefix itself, which skips all that is in it.
"""

from __future__ import annotations

import base64
import binascii
import bisect
from collections.abc import Mapping, Sequence

from iriscw_sims.objects.messages import Listing, ListObjectsV2, ObjectHead
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.rules import MAX_KEYS

BEYOND = b"\xff"
"""Sorts behind everything that begins with what it is added to: no byte of UTF-8 is that high."""


def list_objects(heads: Mapping[str, ObjectHead], order: Sequence[bytes], asked: ListObjectsV2) -> Listing:
    """Return one page.

    Args:
        heads: all objects by key.
        order: all keys in UTF-8, sorted.
        asked: which page.

    Raises:
        Refused: InvalidArgument, for a negative number or a token that was never given out.
    """
    if asked.max_keys < 0:
        raise Refused("InvalidArgument", "maxKeys cannot be negative")
    limit = min(asked.max_keys, MAX_KEYS)
    prefix, delimiter = asked.prefix.encode(), asked.delimiter.encode()
    position = _first(order, max(prefix, asked.start_at.encode()), _resumed(asked, prefix, delimiter))
    objects: list[ObjectHead] = []
    rolled: list[str] = []
    last = b""
    while limit and position < len(order) and order[position].startswith(prefix):
        if len(objects) + len(rolled) == limit:
            return Listing(tuple(objects), tuple(rolled), base64.urlsafe_b64encode(last).decode())
        folder = common_prefix(order[position], prefix, delimiter)
        last = folder or order[position]
        if folder:
            rolled.append(folder.decode())
            position = bisect.bisect_left(order, folder + BEYOND)
        else:
            objects.append(heads[last.decode()])
            position += 1
    return Listing(tuple(objects), tuple(rolled))


def common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """Return what a key is rolled up to, empty if it is listed itself."""
    if not delimiter or not key.startswith(prefix):
        return b""
    found = key.find(delimiter, len(prefix))
    return key[: found + len(delimiter)] if found >= 0 else b""


def _resumed(asked: ListObjectsV2, prefix: bytes, delimiter: bytes) -> bytes:
    """Return the bytes behind which a page begins; a token wins over ``start_after``."""
    after = _opened(asked.continuation_token) if asked.continuation_token else asked.start_after.encode()
    return after + BEYOND if after and common_prefix(after, prefix, delimiter) == after else after


def _opened(token: str) -> bytes:
    try:
        after = base64.b64decode(token, altchars=b"-_", validate=True)
        after.decode()
    except (binascii.Error, ValueError) as error:
        raise Refused("InvalidArgument", "The continuation token provided is incorrect") from error
    return after


def _first(order: Sequence[bytes], begin: bytes, after: bytes) -> int:
    return max(bisect.bisect_left(order, begin), bisect.bisect_right(order, after) if after else 0)
