"""Running one plan again from the command line."""

import attrs
import pytest

from iriscw_sims import rerun
from iriscw_sims.plan_text import pack, plan_text, read_plan
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World


def test_a_word_is_run(capsys):
    """A plan that holds is told in one line, with the trace that any run of it has."""
    plan = attrs.evolve(draw_plan(3), faults=())
    assert rerun.main([pack(plan)]) == 0
    assert World(3, plan).run().trace in capsys.readouterr().out


def test_a_file_is_run(capsys, tmp_path):
    """So is a plan that was kept as Python."""
    path = tmp_path / "kept.py"
    path.write_text(f'"""Once broken."""\n\nPLAN = {plan_text(draw_plan(3))}\n')
    assert rerun.main([str(path)]) == 0
    assert World(3).run().trace in capsys.readouterr().out


@pytest.mark.slow
def test_a_broken_plan_is_told_and_shrunk(capsys, monkeypatch):
    """The smaller plan stands on standard output, what it breaks on standard error."""
    monkeypatch.setattr(World, "heal", lambda world: world.violate("X1", "planted"))
    assert rerun.main(["--seed", "8", "--shrink", "--max-runs", "30"]) == 1
    printed = capsys.readouterr()
    assert "INV-X1: planted" in printed.err
    small = read_plan(printed.out)
    assert (small.faults, small.rates, len(small.jobs)) == ((), (), 1)


@pytest.mark.parametrize("arguments", [[], ["word", "--seed", "3"], ["nonsense"], ["no-such-file.py"]])
def test_nonsense_is_refused(arguments, capsys):
    """A usage error, with a reason."""
    with pytest.raises(SystemExit) as ended:
        rerun.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
