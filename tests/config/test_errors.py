"""What can be wrong with a configuration."""

import pickle

import pytest

from iriscw._errors import UsageError
from iriscw.config.errors import ConfigError, ConfigTooLarge, Problem, ProblemKind


def problem(line):
    """Return some problem on a line."""
    return Problem(ProblemKind.UNKNOWN_KEY, f"k{line}", line, "unknown key")


def test_problems_come_in_the_order_of_the_file():
    """Whoever mends a file goes through it from top to bottom."""
    error = ConfigError("c.yaml", [problem(9), problem(2)])
    assert [each.line for each in error.problems] == [2, 9]
    assert str(error).splitlines() == ["c.yaml: line 2: k2: unknown key", "c.yaml: line 9: k9: unknown key"]


@pytest.mark.parametrize("kind", [ConfigError, ConfigTooLarge])
def test_errors_can_be_pickled(kind):
    """An error keeps its type, file and problems on its way between processes."""
    error = pickle.loads(pickle.dumps(kind("c.yaml", [problem(1)])))
    assert type(error) is kind
    assert (error.source, error.problems) == ("c.yaml", (problem(1),))
    assert isinstance(error, UsageError)
