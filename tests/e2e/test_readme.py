"""The first lines of code that a newcomer reads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_first_program_of_the_guide_runs(tmp_path):
    """So can what the getting-started page shows first; it prints what the tasks wrote, and what they returned."""
    page = (ROOT / "docs" / "getting-started.md").read_text()
    (tmp_path / "count.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    (tmp_path / "README.md").write_text("one two three\n")
    done = subprocess.run(
        [sys.executable, "count.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["counting in 1 files"] * 4 + ["[3, 3, 3, 3]"]


@pytest.mark.slow
def test_the_program_in_the_readme_runs(tmp_path):
    """What the README shows can be pasted into a file and run, beside a README of its own."""
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    (tmp_path / "count.py").write_text(program)
    (tmp_path / "README.md").write_text("one two three\n")
    (tmp_path / "LICENSE").write_text("four five\n")
    done = subprocess.run(
        [sys.executable, "count.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
