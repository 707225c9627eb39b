"""Quantities in canonical form."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.quantity import amount, canonical


@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1500m", "1500m"), ("128", "128"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
        ("1Ki", "1Ki"), ("1023", "1023"), ("0", "0"), ("-0", "0"), ("-1", "-1"), ("1e3", "1e3"), ("1E", "1E"),
        ("2000", "2k"), ("0.1n", "1n"), ("100k", "100k"), ("0.5Ki", "512"), (".5", "500m"), ("8.", "8"),
    ],
)  # fmt: skip
def test_canonical_forms(given_text, wanted):
    """The server answers with the shortest form of the same family of suffixes, and rounds up below nano."""
    assert canonical(given_text) == wanted


@pytest.mark.parametrize("text", ["", "a", "1X", "1Gib", "--1", "1 Gi", "1e", "."])
def test_what_is_no_quantity(text):
    """Other texts are none."""
    assert canonical(text) is None
    assert amount(text) == 0


@given(st.integers(-(10**6), 10**6), st.sampled_from(["", "m", "u", "n", "k", "M", "Ki", "Mi", "e2", "e-3"]))
def test_the_canonical_form_has_the_same_amount_and_is_its_own(number, suffix):
    """Law: canonical forms are fixed points, and stand for the same amount."""
    text = f"{number}{suffix}"
    written = canonical(text)
    assert canonical(written) == written
    assert amount(written) == amount(text)


def test_amounts_compare_across_suffixes():
    """500m is half, a Gi is more than a G."""
    assert amount("500m") == Fraction(1, 2)
    assert amount("1Gi") > amount("1G")
