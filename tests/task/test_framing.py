"""A frame is checked before anything in it is believed."""

import struct

import pytest
from hypothesis import given, strategies as st

from iriscw.task.framing import (
    FORMAT_VERSION,
    HEADER_BYTES,
    FrameCorrupt,
    PythonMismatch,
    UnknownFormat,
    frame,
    this_python,
    unframe,
)
from raised import that

MAGIC = b"IRISTEST"


@given(st.dictionaries(st.text(), st.text()), st.binary())
def test_what_was_framed_comes_out(summary: dict[str, str], body: bytes) -> None:
    """Summary, body and this Python's version."""
    found = unframe(MAGIC, frame(MAGIC, summary, body))
    assert (found.python, found.summary, found.body) == (this_python(), summary, body)
    found.check_python()


@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    """Wherever it is: in the header, the hash, the summary or the body."""
    whole = bytearray(frame(MAGIC, {"a": 1}, b"body"))
    position = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[position // 8] ^= 1 << position % 8
    with pytest.raises((FrameCorrupt, UnknownFormat)):
        unframe(MAGIC, bytes(whole))


@given(st.integers(0, 200))
def test_any_shortening_is_found(length: int) -> None:
    """A frame that is cut off, or has something behind it, is none."""
    whole = frame(MAGIC, {}, b"x" * 100)
    cut = whole[: min(length, len(whole) - 1)]
    for bad in (cut, whole + b"x"):
        with pytest.raises(FrameCorrupt):
            unframe(MAGIC, bad)


def test_another_kind_is_refused() -> None:
    """A result is no call."""
    with pytest.raises(FrameCorrupt, check=that(comes_from="framing.unframe")):
        unframe(b"IRISCALL", frame(MAGIC, {}, b""))


def test_a_later_format_is_named() -> None:
    """It is not damage: the reader is old."""
    whole = bytearray(frame(MAGIC, {}, b""))
    whole[8:10] = struct.pack(">H", FORMAT_VERSION + 1)
    with pytest.raises(UnknownFormat, check=that(comes_from="framing.unframe", names=FORMAT_VERSION + 1)):
        unframe(MAGIC, bytes(whole))


def test_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read from the frame, before the pickle."""
    whole = frame(MAGIC, {}, b"")
    monkeypatch.setattr("sys.version_info", (3, 99, 0))
    with pytest.raises(PythonMismatch, check=that(comes_from="framing.Frame.check_python", names="3.99")):
        unframe(MAGIC, whole).check_python()


def test_the_header_is_as_long_as_documented() -> None:
    """Readers in other languages count on it."""
    assert HEADER_BYTES == 56
