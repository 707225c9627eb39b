"""A soak tries more of everything, also of tests that say how many they try."""

import pytest
from hypothesis import given, settings, strategies as st

from profiles import FEW, SOAK_TIMES, USUAL, examples


@pytest.fixture
def profile():
    """Load a profile for this test alone."""
    before = settings.get_current_profile_name()
    yield settings.load_profile
    settings.load_profile(before)


@pytest.mark.parametrize(("name", "times"), [("ci", 1), ("dev", 1), ("soak", SOAK_TIMES)])
def test_a_bound_of_a_test_grows_with_the_profile(profile, name, times):
    """So many are tried, not only asked for; what else is set stays as it is."""
    profile(name)
    tried = []

    @examples(2, database=None)
    @given(st.integers())
    def run(number):
        tried.append(number)

    run()
    assert len(tried) == 2 * times
    assert settings.default.max_examples == (FEW if times == 1 else USUAL * times)


def test_a_smaller_profile_takes_nothing_away(profile):
    """Who judges planted bugs bounds all tests alike, and needs what each test asks for below that."""
    settings.register_profile("a tenth", max_examples=USUAL // 10)
    profile("a tenth")
    assert examples(30).max_examples == 30
    assert examples(30, settings(stateful_step_count=7)).stateful_step_count == 7
