"""The blocking names take what the asynchronous ones take, pass all of it on, and type checkers know it."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for blocking_signatures

import iriscw
from blocking_signatures import PAIRS, rewritten
from iriscw import blocking

SLIPS = """
import iriscw
from iriscw import blocking

with blocking.Cluster.local(nodes=1) as cluster:
    cluster.client.submit(len, [], name="n", replicas=1)
    cluster.client.submit(len, [], name="n", replicas="two")
    cluster.client.checkpoint("job", tier=7)
blocking.Cluster.local(nodse=3)
blocking.connect_kubernetes(namespace=3)
"""


@pytest.mark.parametrize(("owner", "name"), list(PAIRS))
def test_signatures_are_those_of_the_originals(owner, name):
    """Else run ``python tests/blocking_signatures.py``."""
    made, there = rewritten(owner, name)
    assert ast.unparse(made) == ast.unparse(there)


@pytest.mark.parametrize("name", ["Client", "Job", "Cluster"])
def test_nothing_takes_whatever_comes(name):
    """Only what goes to the user's own callable is without a name."""
    for each, function in inspect.getmembers(getattr(blocking, name), inspect.isroutine):
        if each.startswith("_"):
            continue
        loose = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
        assert loose == (["kwargs"] if each in ("submit", "create_actor", "create_actor_group") else []), each
        assert hasattr(getattr(iriscw, name), each) or each == "delete"


@pytest.mark.slow
def test_slips_are_type_errors(tmp_path):
    """As for the asynchronous names."""
    script = tmp_path / "script.py"
    script.write_text(SLIPS)
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", root / ".mypy_cache", script],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if "script.py" in line and ": error:" in line]
    assert lines == [7, 8, 9, 10], done.stdout + done.stderr
