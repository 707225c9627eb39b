"""The parts of a subject."""

import pytest

from iriscw_sims.timeline.model import kind_of, name_of


@pytest.mark.parametrize(
    ("subject", "kind", "name"),
    [
        ("slice/iris-g0-a2b", "slice", "iris-g0-a2b"),
        ("task/job-x/3", "task", "job-x/3"),
        ("controller", "controller", "controller"),
        ("", "", ""),
    ],
)
def test_a_subject_has_a_kind_and_a_name(subject, kind, name):
    """The kind is what stands before the first bar; a subject of one part is both."""
    assert (kind_of(subject), name_of(subject)) == (kind, name)
