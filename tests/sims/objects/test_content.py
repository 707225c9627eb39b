"""Contents behave like the rows of symbols that they stand for."""

import itertools

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.content import EMPTY, Content, Sized
from raised import that

PIECE = st.one_of(st.binary(max_size=5), st.builds(Sized, st.integers(0, 5), st.integers(0, 2), st.integers(0, 6)))
PIECES = st.lists(PIECE, max_size=6)


def symbols(pieces):
    """Return what pieces stand for, one by one."""
    found = []
    for piece in pieces:
        if isinstance(piece, bytes):
            found += piece
        else:
            found += [(piece.seed, piece.start + offset) for offset in range(piece.length)]
    return found


@given(PIECES)
def test_the_form_is_canonical(pieces):
    """It stands for the same, and no two neighbours could be one."""
    content = Content(*pieces)
    assert symbols(content.pieces) == symbols(pieces)
    assert len(content) == len(symbols(pieces))
    assert all(len(piece) for piece in content.pieces)
    for one, next_one in itertools.pairwise(content.pieces):
        assert not (isinstance(one, bytes) and isinstance(next_one, bytes))
        if isinstance(one, Sized) and isinstance(next_one, Sized):
            assert (one.seed, one.start + one.length) != (next_one.seed, next_one.start)


@given(PIECES, PIECES)
def test_equal_is_what_stands_for_the_same(ours, theirs):
    """Equality, hash and digest tell contents apart exactly as their symbols do."""
    one, other = Content(*ours), Content(*theirs)
    same = symbols(ours) == symbols(theirs)
    assert (one == other) is same
    assert (one.digest == other.digest) is same
    assert not same or hash(one) == hash(other)


@given(PIECES, st.integers(0, 30), st.integers(0, 30))
def test_a_part_is_a_slice(pieces, start, end):
    """Also beyond the end, and backwards, which is nothing."""
    part = Content(*pieces).part(start, end)
    assert part == Content(*part.pieces)
    assert symbols(part.pieces) == symbols(pieces)[start:end]


@given(PIECES, st.lists(st.integers(0, 30), max_size=5))
def test_what_was_cut_joins_to_the_whole(pieces, cuts):
    """Wherever it was cut: multipart uploads and ranges lose nothing."""
    content = Content(*pieces)
    bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    parts = [content.part(start, end) for start, end in itertools.pairwise(bounds)]
    assert Content.joined(parts) == content


@given(st.builds(Sized, st.integers(0, 20_000), st.integers(-3, 3), st.integers(0, 10_000)), st.data())
def test_rendering_is_of_the_stream(stretch, data):
    """A part of a stretch is rendered as that part of the rendered stretch."""
    content = Content(stretch)
    whole = content.rendered()
    assert len(whole) == stretch.length
    start, end = data.draw(st.integers(0, 20_000)), data.draw(st.integers(0, 20_000))
    assert content.part(start, end).rendered() == whole[start:end]
    assert b"".join(content.chunks(4000)) == whole


def test_streams_differ():
    """Renderings of two seeds have nothing in common, and are no zeros."""
    one, other = Content(Sized(64, 1)).rendered(), Content(Sized(64, 2)).rendered()
    assert one != other
    assert len({*one}) > 16


def test_long_contents_cost_nothing():
    """100 GB are cut, joined, compared and hashed at once; only rendering them is refused."""
    whole = Content(Sized(100 << 30, seed=7))
    parts = [whole.part(start, start + (50 << 20)) for start in range(0, len(whole), 50 << 20)]
    joined = Content.joined(parts)
    assert joined == whole
    assert joined.digest == whole.digest
    assert len(joined.pieces) == 1
    with pytest.raises(InvalidArgument, check=that(comes_from="content.Content.rendered")):
        whole.rendered()


def test_digests_of_bytes_are_md5():
    """As S3 has them."""
    assert EMPTY.digest.hex() == "d41d8cd98f00b204e9800998ecf8427e"
    assert Content(b"he", b"llo").digest.hex() == "5d41402abc4b2a76b9719d911017c592"


def test_impossible_stretches_are_refused():
    """Negative lengths and bounds have no meaning."""
    for length, start in ((-1, 0), (0, -1)):
        with pytest.raises(InvalidArgument):
            Sized(length, 0, start)
    for start, end in ((-1, 0), (0, -1)):
        with pytest.raises(InvalidArgument):
            EMPTY.part(start, end)


def test_bytes_are_not_shown():
    """A repr tells lengths only: contents may be secrets, and long."""
    assert repr(Content(b"secret", Sized(3, 1))) == "Content(<6 bytes>, Sized(length=3, seed=1, start=0))"
    assert Content(b"x") != b"x"
