"""How many examples Hypothesis tries: the profiles, and how a test asks for more or fewer than the profile has."""

import os

import hypothesis
from hypothesis import settings

FEW = 25
"""The examples of a test that says nothing, each time tests run: other ones for each commit."""

USUAL = 100
"""What a soak tries a multiple of. A run of a test takes well below a second, or the test asks for fewer examples."""

SOAK_TIMES = 50
"""How many times as many a soak tries."""


def register() -> None:
    """Register the profiles, and load the one of the environment; ``--hypothesis-profile`` names another later."""
    # ci: the examples of a commit (`make test` draws them from its hash), nothing left on disk, a failure printed as
    # something to paste.
    settings.register_profile("ci", max_examples=FEW, database=None, print_blob=True, deadline=None)
    # dev: new examples each time, remembered in .hypothesis.
    settings.register_profile("dev", max_examples=FEW, print_blob=True, deadline=None)
    settings.register_profile("soak", max_examples=USUAL * SOAK_TIMES, print_blob=True, deadline=None)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


def examples(number: int, *parents: settings, **others: object) -> hypothesis.settings:
    """Have a test try so many examples in ``make test``, and as many times more as the loaded profile has in a soak.

    It is the only way for a test to have a bound of its own: one that is written as a plain number would hold in a
    soak as well. A test that only a soak runs divides what it wants by `SOAK_TIMES`.

    Args:
        number: How many where the profile says `FEW`, and a multiple in a soak.
        parents: Settings to begin with; at most one.
        others: Other settings, by name.
    """
    times = max(1, settings.default.max_examples // USUAL)
    return settings(*parents, max_examples=number * times, **others)
