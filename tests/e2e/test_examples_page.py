"""The page of examples: each program on it is run as it stands, and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(
    r"^```python\n(.*?)^```\n\n```console\n\$ python (\w+\.py)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "name", "printed"), PROGRAMS, ids=[name for _, name, _ in PROGRAMS])
def test_it_prints_what_the_page_says(program, name, printed, tmp_path):
    """From a file of its own, with warnings as errors."""
    (tmp_path / name).write_text(program)
    command = [sys.executable, "-W", "error", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_each_program_has_its_output():
    """None is shown that is not run, and each is listed."""
    assert len(PROGRAMS) == PAGE.count("```python") >= 4
    table = PAGE.partition("\n## ")[0]
    listed = [anchor.replace("-", " ") for anchor in re.findall(r"\(#([a-z-]+)\)", table)]
    assert listed == [title.lower() for title in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)][:-1]


def test_examples_elsewhere_have_a_test():
    """Each row names a file with tests."""
    rows = [line for line in PAGE.partition("## On other pages")[2].splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 10
    for row in rows:
        (test,) = re.findall(r"`(tests/[\w/]+\.py)` \|$", row)
        assert re.search(r"^(async )?def test_", (ROOT / test).read_text(encoding="utf-8"), re.MULTILINE), row
