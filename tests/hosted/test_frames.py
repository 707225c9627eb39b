"""The protocol of hosted actors as bytes."""

import pytest

from iriscw.hosted.errors import CallRefused, CallTooLarge
from iriscw.hosted.frames import (
    HEADER_BYTES,
    FrameKind,
    Greeting,
    Tagging,
    header_bytes,
    proof,
    read_greeting,
    read_header,
    written_header,
)
from iriscw.hosted.model import MAX_CALL_BYTES, MAX_PARTS


def test_what_is_written_is_read():
    """Greetings and headers."""
    greeting = Greeting((3, 12), b"n" * 32, tagged=True)
    assert read_greeting(greeting.encode()) == greeting
    text = written_header(FrameKind.CALL, 7, [3, 0, 1 << 20])
    assert header_bytes(text[:HEADER_BYTES]) == len(text)
    header = read_header(text)
    assert (header.kind, header.call, header.lengths) == (FrameKind.CALL, 7, (3, 0, 1 << 20))


@pytest.mark.parametrize("lengths", [[MAX_CALL_BYTES + 1], [1] * (MAX_PARTS + 1), [MAX_CALL_BYTES, 1]])
def test_a_frame_has_bounds(lengths):
    """For who writes it and for who reads it."""
    with pytest.raises(CallTooLarge):
        written_header(FrameKind.REPLY, 1, lengths)
    if len(lengths) <= MAX_PARTS:
        text = bytearray(written_header(FrameKind.REPLY, 1, [0] * len(lengths)))
        text[HEADER_BYTES:] = b"".join(each.to_bytes(8, "little") for each in lengths)
        with pytest.raises(CallRefused):
            read_header(text)


@pytest.mark.parametrize("change", [(0, 99), (2, 255), (4, 1)])
def test_what_is_no_frame_is_refused(change):
    """An unknown kind, too many parts, something where there is nothing."""
    text = bytearray(written_header(FrameKind.REPLY, 1, [0]))
    text[change[0]] = change[1]
    text[3] = 255 if change[0] == 2 else text[3]
    with pytest.raises(CallRefused):
        header_bytes(text)


def test_other_programs_are_refused():
    """Whatever listens there."""
    with pytest.raises(CallRefused):
        read_greeting(b"HTTP/1.1 200 OK\r\nContent-Length: 0, and so on"[:43].ljust(43, b" "))


def test_a_proof_is_of_one_key_one_side_and_one_meeting():
    """Nothing of another one will do."""
    proofs = [
        proof(b"k", b"server", b"a", b"b"),
        proof(b"l", b"server", b"a", b"b"),
        proof(b"k", b"caller", b"a", b"b"),
        proof(b"k", b"server", b"c", b"b"),
        proof(b"k", b"server", b"a", b"c"),
    ]
    assert len(set(proofs)) == len(proofs)


def test_a_tag_is_of_one_frame_at_one_place():
    """What was changed, left out or repeated is found."""
    ours, theirs = Tagging(b"k" * 32), Tagging(b"k" * 32)
    first, second = ours.tag([b"h", b"one"]), ours.tag([b"h", b"two"])
    assert theirs.holds([b"h", b"one"], first)
    assert not theirs.holds([b"h", b"one"], first)  # repeated
    late = Tagging(b"k" * 32)
    assert not late.holds([b"h", b"two"], second)  # the first one is missing
    assert not Tagging(b"k" * 32).holds([b"h", b"onE"], first)
