"""SPDY frames: what a client sends is read, in whatever pieces; what is wrong is said by name."""

import struct
import zlib

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.serve.spdy import (
    DICTIONARY,
    FIN,
    FRAME_BYTES,
    HEADERS_BYTES,
    PING,
    RST_STREAM,
    SYN_REPLY,
    SYN_STREAM,
    Came,
    Opened,
    Pinged,
    Reset,
    Spdy,
    SpdyBroken,
)
from raised import that


class Client:
    """The other side, frame by frame."""

    def __init__(self):
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def control(self, kind, payload, flags=0, version=3):
        """Return a control frame."""
        return struct.pack("!HHI", 0x8000 | version, kind, flags << 24 | len(payload)) + payload

    def open(self, stream, headers, flags=0):
        """Return the frame that opens a stream."""
        block = struct.pack("!I", len(headers))
        for text in (text for pair in headers.items() for text in pair):
            block += struct.pack("!I", len(text)) + text.encode()
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return self.control(SYN_STREAM, struct.pack("!IIH", stream, 0, 0) + packed, flags)

    def data(self, stream, data, flags=0):
        """Return a frame of data."""
        return struct.pack("!II", stream, flags << 24 | len(data)) + data

    def headers(self, block):
        """Read compressed headers of the server."""
        return self._inflate.decompress(block)


def test_the_dictionary_is_that_of_the_protocol():
    """By its checksum, which every compressed header begins with."""
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(st.integers(1, 40))
def test_frames_come_in_pieces(size):
    """A connection of several streams is read alike, however its bytes are cut."""
    client, spdy = Client(), Spdy()
    sent = (
        client.open(1, {"streamtype": "error", "port": "80"}, FIN)
        + client.open(3, {"streamtype": "data", "port": "80"})
        + client.data(3, b"x" * 100)
        + client.control(4, struct.pack("!I", 0))
        + client.control(PING, struct.pack("!I", 7))
        + client.data(3, b"", FIN)
        + client.control(RST_STREAM, struct.pack("!II", 3, 5))
    )
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [news for piece in pieces for news in spdy.receive(piece)] == [
        Opened(1, {"streamtype": "error", "port": "80"}, True),
        Opened(3, {"streamtype": "data", "port": "80"}, False),
        Came(3, b"x" * 100, False),
        Pinged(7),
        Came(3, b"", True),
        Reset(3),
    ]


def test_what_is_sent_can_be_read():
    """Answers to streams and pings, data in frames of a limited size, ends."""
    client, spdy = Client(), Spdy()
    for stream in (1, 3):  # the second is compressed by what the first has said
        reply = spdy.reply(stream)
        assert struct.unpack_from("!HHII", reply) == (0x8003, SYN_REPLY, len(reply) - 8, stream)
        assert client.headers(reply[12:]) == struct.pack("!I", 0)
    assert spdy.data(3, b"hi", end=True) == client.data(3, b"hi") + client.data(3, b"", FIN)
    long = spdy.data(3, b"x" * (FRAME_BYTES + 1))
    assert long == client.data(3, b"x" * FRAME_BYTES) + client.data(3, b"x")
    assert spdy.pong(7) == client.control(PING, struct.pack("!I", 7))
    assert spdy.reset(3, 1) == client.control(RST_STREAM, struct.pack("!II", 3, 1))


def wrong_frames():
    """Return bytes that are no SPDY, by what is wrong."""
    client = Client()
    head = struct.pack("!IIH", 1, 0, 0)
    torn = Client().open(1, {"a": "b"})
    return {
        "version": client.control(PING, b"0000", version=2),
        "bytes; ": struct.pack("!II", 1, FRAME_BYTES + 1),
        "too short": client.control(PING, b"00"),
        "cannot be read": client.control(SYN_STREAM, head + b"nonsense"),
        "bytes of headers": client.open(1, {"a": "b" * (HEADERS_BYTES + 1)}),
        "in the middle": client.control(SYN_STREAM, head + packed(struct.pack("!II", 1, 99))),
        "a frame that": torn[:4] + struct.pack("!I", 3) + torn[8:11],
    }


def packed(block):
    """Compress headers."""
    deflate = zlib.compressobj(zdict=DICTIONARY)
    return deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)


WRONG = {
    "version": that(comes_from="spdy.Spdy._control"),
    "bytes; ": that(comes_from="spdy.Spdy.receive"),
    "too short": that(comes_from="spdy._unpacked"),
    "cannot be read": that(comes_from="spdy.Spdy._headers"),
    "bytes of headers": that(comes_from="spdy.Spdy._headers"),
    "in the middle": that(comes_from="spdy.Spdy._headers"),
    "a frame that": that(comes_from="spdy._unpacked"),
}


@pytest.mark.parametrize("said", wrong_frames())
def test_what_is_no_spdy_is_refused(said):
    """Each at the check that it does not pass."""
    with pytest.raises(SpdyBroken, check=WRONG[said]):
        list(Spdy().receive(wrong_frames()[said]))


@given(st.binary(max_size=200))
def test_nonsense_breaks_the_connection_and_nothing_else(data):
    """Whatever comes is read, or refused by name."""
    spdy = Spdy()
    try:
        list(spdy.receive(data))
    except SpdyBroken:
        return
