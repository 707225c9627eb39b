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
def test_which_function_and_which_raise(number):
    """The function by its module, and its raises by their order."""
    assert place_of(caught(number)) == ("test_raised.refuse", number)
    assert that(comes_from="test_raised.refuse")(caught(number))
    assert that(comes_from="test_raised.refuse", nth=number)(caught(number))


def test_what_it_was_raised_from_counts_as_well():
    """Whoever wraps an error adds to its way."""
    with pytest.raises(LookupError) as error:  # noqa: PT012 - it is what this test looks at
        try:
            refuse(1)
        except ValueError as inner:
            raise LookupError("wrapped") from inner
    assert that(comes_from="test_raised.refuse", nth=1)(error.value)
    assert that(comes_from="test_raised.test_what_it_was_raised_from_counts_as_well")(error.value)


def test_the_innermost_function_of_ours_counts():
    """Not the test that called it."""
    with pytest.raises(InvalidArgument) as error:
        Resources(cpu=-1)
    assert place_of(error.value)[0].startswith("resources.")


def test_a_line_that_raises_nothing_itself_has_no_number():
    """What it called did."""
    with pytest.raises(ValueError) as error:
        int("two")
    assert place_of(error.value)[1] == 0


def test_what_holds():
    """Values, several of them, attributes and the cause."""
    assert that(names=("two", 3), cause=ValueError)(caught(2))
    assert that(errno=errno.ENOSPC)(OSError(errno.ENOSPC, "full"))


@pytest.mark.parametrize(
    "asked",
    [
        {"comes_from": "test_raised.caught"},
        {"comes_from": "test_raised.refuse", "nth": 2},
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
