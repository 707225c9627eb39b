"""Sizes, lengths of time and CPU shares."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import UsageError
from iriscw.config.quantities import (
    CPU_LIMIT_MILLI,
    DURATION_LIMIT_MS,
    DURATION_UNITS_MS,
    NS_PER_MS,
    SIZE_LIMIT_BYTES,
    SIZE_UNITS,
    CpuError,
    DurationError,
    QuantityError,
    SizeError,
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
)
from raised import that


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("2048GB", 2048 * 10**9),
        ("16GiB", 16 * 2**30),
        ("16 GiB", 16 * 2**30),
        ("1.5KiB", 1536),
        ("0B", 0),
        (4096, 4096),
        ("3PB", 3 * 10**15),
        ("1TiB", 2**40),
    ],
)
def test_sizes_of_both_systems(text, size_bytes):
    """GB counts in tens, GiB in twos, a number is bytes."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("5gb", that(comes_from="quantities._unit_bytes", names="GB")),
        ("5G", that(comes_from="quantities._unit_bytes", names="GB")),
        ("5Gi", that(names="GiB")),
        ("5", that(comes_from="quantities._unit_bytes")),
        ("5 parsecs", that(comes_from="quantities._unit_bytes")),
        ("", that(comes_from="quantities.parse_size")),
        ("-1GB", that(comes_from="quantities.parse_size")),
        (-1, that(comes_from="quantities.parse_size")),
        (1.5, that(comes_from="quantities.parse_size")),
        (True, that(comes_from="quantities.parse_size")),
        (None, that(comes_from="quantities.parse_size")),
        ([1], that(comes_from="quantities.parse_size")),
        ("0.3B", that(comes_from="quantities.parse_size")),
        ("1.00000000000000000001PiB", that(comes_from="quantities.parse_size")),
        ("9000PiB", that(comes_from="quantities.parse_size")),
        (10**4000, that(comes_from="quantities.parse_size")),
        ("9" * 100_000 + "GB", that(comes_from="quantities.parse_size")),
        ("\u0665GB", that(comes_from="quantities.parse_size")),
    ],
)
def test_sizes_that_are_refused(value, says):
    """A size that is malformed, inexact or too large is refused, and the message says why."""
    with pytest.raises(SizeError, check=says) as caught:
        parse_size(value)
    assert len(str(caught.value)) < 250


@given(
    st.integers(0, SIZE_LIMIT_BYTES)
    | st.builds(lambda n, f: n * f, st.integers(0, 2000), st.sampled_from([*SIZE_UNITS.values()]))
)
def test_size_round_trip(size_bytes):
    """Formatting loses nothing."""
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("30m", 1_800_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("0.5s", 500),
        ("1d", 86_400_000),
        ("250ms", 250),
        ("0s", 0),
        ({"milliseconds": 1_800_000}, 1_800_000),
    ],
)
def test_durations(value, milliseconds):
    """A length of time is text with units or a mapping with milliseconds, and becomes ns."""
    assert parse_duration(value) == milliseconds * NS_PER_MS


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (30, that(comes_from="quantities.parse_duration")),
        (0.5, that(comes_from="quantities.parse_duration")),
        ("30", that(comes_from="quantities._length_ms")),
        ("-5s", that(comes_from="quantities._length_ms")),
        ("1m1h", that(comes_from="quantities._length_ms")),
        ("1s1s", that(comes_from="quantities._length_ms")),
        ("0.1ms", that(comes_from="quantities.parse_duration")),
        ("367d", that(comes_from="quantities.parse_duration")),
        ("1 hour", that(comes_from="quantities._length_ms")),
        (None, that(comes_from="quantities.parse_duration")),
        (True, that(comes_from="quantities.parse_duration")),
        ({}, that(comes_from="quantities._milliseconds")),
        ({"milliseconds": "5"}, that(comes_from="quantities._milliseconds")),
        ({"milliseconds": True}, that(comes_from="quantities._milliseconds")),
        ({"milliseconds": -1}, that(comes_from="quantities._milliseconds")),
        ({"milliseconds": 10**4000}, that(comes_from="quantities._milliseconds")),
        ({"milliseconds": 1, "seconds": 1}, that(comes_from="quantities._milliseconds")),
    ],
)
def test_durations_that_are_refused(value, says):
    """A length of time without a unit, out of order, inexact or too long is refused."""
    with pytest.raises(DurationError, check=says):
        parse_duration(value)


@given(st.integers(0, DURATION_LIMIT_MS))
def test_duration_round_trip(milliseconds):
    """Formatting loses nothing."""
    assert parse_duration(format_duration(milliseconds * NS_PER_MS)) == milliseconds * NS_PER_MS


@given(st.integers(0, 8 * 366).map(lambda eighths: Fraction(eighths, 8)), st.sampled_from(sorted(DURATION_UNITS_MS)))
def test_durations_are_exact(amount, unit):
    """A decimal number of units is either exact in ms, or refused."""
    milliseconds = amount * DURATION_UNITS_MS[unit]
    text = f"{float(amount)}{unit}"  # eighths are exact in binary and in decimal
    if milliseconds.denominator == 1:
        assert parse_duration(text) == milliseconds * NS_PER_MS
    else:
        with pytest.raises(DurationError):
            parse_duration(text)


@pytest.mark.parametrize(
    ("value", "cpu_milli"), [(4, 4000), (0.5, 500), ("500m", 500), ("0.1", 100), (0.1, 100), ("0", 0)]
)
def test_cpu_shares(value, cpu_milli):
    """Cores are numbers or text; thousandths have an m."""
    assert parse_cpu(value) == cpu_milli


@pytest.mark.parametrize(
    "value", [-1, "x", None, True, float("nan"), float("inf"), 1e30, 10**40, "0.0001", 0.0001, "3000000"]
)
def test_cpu_shares_that_are_refused(value):
    """What is not a number, too fine or too large is refused."""
    with pytest.raises(CpuError):
        parse_cpu(value)


@given(st.integers(0, CPU_LIMIT_MILLI))
def test_cpu_round_trip(cpu_milli):
    """Formatting loses nothing, and a float of thousandths is read exactly."""
    assert parse_cpu(format_cpu(cpu_milli)) == cpu_milli
    assert parse_cpu(str(float(Fraction(cpu_milli % 10**6, 1000)))) == cpu_milli % 10**6


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dictionaries(st.text(), st.integers()))
def test_anything_is_read_or_refused(value):
    """No value makes a parser fail in another way than by its named error."""
    for parse in (parse_size, parse_duration, parse_cpu):
        with contextlib.suppress(QuantityError):
            assert parse(value) >= 0


def test_quantity_errors_are_the_callers():
    """A wrong quantity is a usage error, and a ValueError for those who know nothing else."""
    assert issubclass(QuantityError, UsageError)
    assert issubclass(QuantityError, ValueError)
