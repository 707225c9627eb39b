"""Data in parts, and the mark of a write."""

from collections.abc import AsyncIterator

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.objects.drivers.s3_place import S3Limits
from iriscw.objects.drivers.writing import Write, pieces
from iriscw.objects.ports import StoreFull
from raised import that

TINY = attrs.evolve(S3Limits(), part_bytes=4, growth_parts=3, growth=2, most_parts=6)
"""4 4 4 8 8 and 8 bytes."""


async def stream(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@given(st.lists(st.binary(max_size=9), max_size=8).filter(lambda chunks: len(b"".join(chunks)) <= 36))
async def test_parts_join_to_the_whole(chunks: list[bytes]) -> None:
    """However the data come: in full parts, but for the last, which is never empty unless it is alone."""
    whole = b"".join(chunks)
    found = [piece async for piece in pieces(stream(chunks), TINY)]
    assert found == [piece async for piece in pieces(whole, TINY)]
    assert b"".join(piece for piece, _ in found) == whole
    assert [is_last for _, is_last in found] == [False] * (len(found) - 1) + [True]
    for number, (piece, is_last) in enumerate(found, 1):
        assert len(piece) == TINY.size_of_part(number) or (is_last and len(piece) < TINY.size_of_part(number))
    assert found[-1][0] or len(found) == 1


async def test_too_many_parts() -> None:
    """Are refused by name, not by the service."""
    with pytest.raises(StoreFull, check=that(comes_from="writing.pieces", names="6")):
        async for _ in pieces(bytes(37), TINY):
            pass


def test_each_write_has_a_mark_of_its_own() -> None:
    """Two writes of the same are told apart."""
    assert Write("k", "k", None).metadata != Write("k", "k", None).metadata
