"""The names of the built-in tiers stand in one module: all others ask which tiers there are."""

import ast
import re

import pytest

from parsed import nodes

HOME = "iriscw.checkpoint.drivers.built_in"

RESOURCES = (
    "iriscw.bench.whole",
    "iriscw.cli.doctor",
    "iriscw.cli.submit",
    "iriscw.cloud.model",
    "iriscw.cluster",
    "iriscw.config.checks",
    "iriscw.config.model",
    "iriscw.fleet.registration",
    "iriscw.jobs.model",
    "iriscw.resources",
)
"""Modules in which these words are something else: what a task asks for and a machine has (cpu, ram, disk).

``config.model`` also explains the keys `ram_budget` and `disk_budget`, which stand in the files of users.
"""

MEASURED = ("iriscw.bench.freezing",)
"""Modules that may ask for the built-in tiers by their constants: what was promised is a time for each of the two."""

SIMULATED = (
    "iriscw_sims.moving",
    "iriscw_sims.nodes.swarm",
    "iriscw_sims.nodes.world",
    "iriscw_sims.tiering.pictures",
    "iriscw_sims.tiering.replay",
)
"""Modules of the simulator that have both built-in tiers on their machines, by the same constants."""

OTHER_DISKS = (
    "iriscw_sims.faults",
    "iriscw_sims.nodes.keeping",
    "iriscw_sims.nodes.world",
    "iriscw_sims.timeline.model",
)
"""Modules of the simulator in which a disk is that of the controller, or how long one takes."""

NAMES = ("ram", "disk")
TEXT = re.compile(r"tiers? [\"`'](ram|disk)\b|\bram(,| or| and) disk\b", re.IGNORECASE)


def _texts(tree):
    """Yield all string constants that are no docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def check_names(module, tree):
    """Find names of built-in tiers where they are not at home."""
    if module == HOME or module in RESOURCES or module in OTHER_DISKS:
        return
    for line, text in _texts(tree):
        if text in NAMES or TEXT.search(text):
            yield f"{module}:{line}: {text[:60]!r}: ask iriscw.checkpoint.drivers.loading"
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module == HOME and module not in (*MEASURED, *SIMULATED):
            for each in node.names:
                if each.name in ("RAM", "DISK"):
                    yield f"{module}:{node.lineno}: {each.name}: ask iriscw.checkpoint.drivers.loading"


def test_they_stand_in_one_module(sources):
    """No other module names one, in a constant or in a text that is shown."""
    found = [each for source in sources for each in check_names(source.module, source.tree)]
    assert not found, "\n" + "\n".join(found)


def test_what_is_left_out_is_there(sources):
    """Each module of the lists has such a word: a list that is too long would let one in."""
    has = {source.module for source in sources if any(text in NAMES for _, text in _texts(source.tree))}
    assert {HOME, *RESOURCES, *OTHER_DISKS} <= has


@pytest.mark.parametrize(
    "code",
    [
        'tier = given or "ram"',
        'def f(tier: str = "disk"): ...',
        'TIERS = ("ram", "x")',
        "help = 'Room for the tier \"disk\".'",
        'help = "to ram or disk"',
        "from iriscw.checkpoint.drivers.built_in import BUILT_IN, RAM",
    ],
)
def test_the_check_bites(code):
    """Planted offences are found."""
    assert [*check_names("iriscw.agent.wire", ast.parse(code))]


def test_the_check_lets_go():
    """Of docstrings, of other words, and of who asks."""
    code = '"""The tier `ram`."""\nfrom iriscw.checkpoint.drivers.built_in import BUILT_IN\nx = "programs"'
    assert not [*check_names("iriscw.agent.wire", ast.parse(code))]
