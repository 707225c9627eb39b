"""The Python that the documentation shows: all of it is Python, and what needs no cluster is run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNS = ("docs/simulation.md", "docs/policies.md", "docs/code-and-packages.md", "docs/hosted-actors.md")
"""Pages whose examples stand alone."""


def blocks(page):
    """Return the Python of a page, each block with its first line."""
    found = re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [(page.read_text()[: each.start()].count("\n") + 2, each[1]) for each in found]


EXAMPLES = [pytest.param(code, id=f"{page.relative_to(ROOT)}:{line}") for page in PAGES for line, code in blocks(page)]
RUNNING = [each for each in EXAMPLES if each.id.partition(":")[0] in RUNS]


@pytest.mark.parametrize("code", EXAMPLES)
def test_it_is_python(code):
    """What is shown can be compiled, at the top of a file or inside a coroutine."""
    compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.slow
@pytest.mark.parametrize("code", RUNNING)
def test_it_runs(code, tmp_path):
    """What stands alone runs as it stands, and its assertions hold."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_there_are_examples():
    """The pattern finds what it is meant to find."""
    assert len(EXAMPLES) > 10
    assert len(RUNNING) >= 3
