"""A result shows how it went without being unpickled, and gives value or exception when it is."""

import threading

import pytest

from iriscw.task.result import (
    MAX_RESULT_BYTES,
    MAX_TEXT_CHARS,
    ResultNotPicklable,
    ResultSummary,
    ResultTooLarge,
    encode_exception,
    encode_value,
    load_result,
    read_result_summary,
)


class Broken(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301  # for its traceback
    except BaseException as caught:
        return caught


def test_a_value_comes_through() -> None:
    """None as well: it is a value."""
    for value in (None, {"a": [1, 2]}, b"x" * 1000):
        data = encode_value(value)
        assert load_result(data) == value
        assert read_result_summary(data) == ResultSummary(succeeded=True)


def test_a_failure_shows_type_message_and_traceback() -> None:
    """And gives the exception itself."""
    data = encode_exception(raised(ValueError("no such word")))
    summary = read_result_summary(data)
    assert (summary.succeeded, summary.error_type, summary.message) == (False, "ValueError", "no such word")
    assert "in raised" in summary.traceback
    assert isinstance(load_result(data), ValueError)


def test_an_exception_that_cannot_be_pickled_goes_as_text() -> None:
    """The failure is still told."""
    error = ValueError(threading.Lock())
    data = encode_exception(raised(error))
    assert load_result(data) is None
    assert "lock" in read_result_summary(data).message


def test_an_exception_that_cannot_be_shown_is_no_obstacle() -> None:
    """Whatever its ``__str__`` does."""
    assert "RuntimeError" in read_result_summary(encode_exception(raised(Broken()))).message


def test_texts_are_bounded() -> None:
    """A message of megabytes is cut, and of a traceback the end is kept."""
    summary = read_result_summary(encode_exception(raised(ValueError("x" * (1 << 20) + "END"))))
    assert len(summary.message) == len(summary.traceback) == MAX_TEXT_CHARS
    assert summary.traceback.endswith("END\n")


def test_values_that_cannot_be_sent_have_names() -> None:
    """Too large, or not picklable."""
    with pytest.raises(ResultTooLarge):
        encode_value(b"x" * (MAX_RESULT_BYTES + 1))
    with pytest.raises(ResultNotPicklable):
        encode_value(threading.Lock())


def test_a_failure_that_holds_bytes() -> None:
    """What stands in a message and is no UTF-8, such as a file's name, can be passed on all the same."""
    summary = read_result_summary(
        encode_exception(OSError(2, "No such file", b"\xff".decode(errors="surrogateescape")))
    )
    for text in (summary.message, summary.traceback):
        assert "\\udcff" in text
        text.encode()
