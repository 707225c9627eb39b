"""The group of sim's commands."""

import subprocess
import sys

from iriscw.cli.sim.command import sim


def test_the_group_lists_its_commands(iriscw):
    """Each has a text."""
    code, out, _ = iriscw("sim", "--help")
    assert code == 0
    listed = [line for line in out.partition("Commands:\n")[2].splitlines() if line[2] != " "]
    assert [line.split()[0] for line in listed] == sorted(sim.commands)
    assert all(len(line.split()) > 2 for line in listed)


def test_help_does_not_load_the_simulator():
    """The simulator is loaded by what runs it."""
    code = (
        "import sys, iriscw.cli.sim.command; print(*[name for name in sys.modules if name.startswith('iriscw_sims')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
