"""Checks of errors find what they are asked for, and say what differs."""

import errno

import pytest

from iriscw._errors import InvalidArgument
from iriscw.resources import Resources
from raised import place_of, that


def refuse(what):
    """Raise by the second of two, if asked for that."""
    if what == 1:
        raise ValueError("one of 3")
    try:
        [int(each) for each in ["1", "two"]]
    except ValueError as error:
        raise ValueError("two of 3") from error


def caught(number=1):
    """Return what was raised."""
    with pytest.raises(ValueError) as error:
        refuse(number)
    return error.value


@pytest.mark.parametrize("number", [1, 2])
def test_which_function(number):
    """By its module, whichever of its lines it was."""
    assert place_of(caught(number)) == "test_raised.refuse"
    assert that(comes_from="test_raised.refuse")(caught(number))


def test_what_it_was_raised_from_counts_as_well():
    """Whoever wraps an error adds to its way."""
    with pytest.raises(LookupError) as error:  # noqa: PT012 - it is what this test looks at
        try:
            refuse(1)
        except ValueError as inner:
            raise LookupError("wrapped") from inner
    assert that(comes_from="test_raised.refuse")(error.value)
    assert that(comes_from="test_raised.test_what_it_was_raised_from_counts_as_well")(error.value)


def test_the_innermost_function_of_ours_counts():
    """Not the test that called it."""
    with pytest.raises(InvalidArgument) as error:
        Resources(cpu=-1)
    assert place_of(error.value).startswith("resources.")


def test_what_holds():
    """Values, several of them, attributes and the cause."""
    assert that(names=("two", 3), cause=ValueError)(caught(2))
    assert that(errno=errno.ENOSPC)(OSError(errno.ENOSPC, "full"))


@pytest.mark.parametrize(
    "asked",
    [
        {"comes_from": "test_raised.caught"},
        {"names": "two"},
        {"names": ("one", 4)},
        {"names": ""},
        {"cause": ValueError},
        {"args": ()},
    ],
    ids=str,
)
def test_what_differs_fails(asked):
    """Each of the questions can be answered with no."""
    with pytest.raises(AssertionError):
        that(**asked)(caught())
