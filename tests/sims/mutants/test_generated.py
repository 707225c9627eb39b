"""Bugs made from the source of decisions: a test of the decisions or a seed of the simulated world notices them.

``make test`` judges two, ``.ci/run`` twelve, ``make soak`` some of each module, evenly spread; with ``BUGS=all`` in the
environment all 2,300, in some hours.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))

from mutating import CONTROL, MODULES, all_mutations, mutate, mutations  # noqa: E402

LEAST_NOTICED = 0.75
"""The share of the bugs that has to be noticed, those apart that change nothing: what was measured on samples, rounded
down. Only ever raised; 0.9 is the aim."""

OF_EACH_MODULE = 6
"""Bugs of a module that the soak judges."""

SAMPLE = (
    "fleet/lifecycle.py:_pod_rows:row:13",
    "fleet/lifecycle.py:_slice_rows:row:23",
    "fleet/slices.py:move:guard:2",
    "fleet/slice_rules.py:completed:command:4",
    "fleet/slice_end.py:dismiss:command:5",
    "fleet/pods.py:hung_up:guard:1",
    "fleet/records.py:evolve:assign:2",
    "fleet/scaling.py:_cordon_longest_idle:command:1",
    "jobs/job.py:JobDecisions.placed:record:1",
    "jobs/link.py:LinkDecisions._synced:command:2",
    "jobs/placement.py:Inventory.commit:assign:2",
    "jobs/lifecycle.py:(module):entry:3",
)
"""One of each kind, in all modules that matter: what `.ci/run` judges."""


def equivalents():
    """Give what is listed as changing nothing: name to text and reason."""
    lines = (HERE / "equivalent.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    assert all(len(entry) == 3 and all(entry) for entry in entries)
    return {name: (text, reason) for name, text, reason in entries}


def judged(*arguments, timeout):
    """Judge bugs; give the verdicts."""
    done = subprocess.run(
        [sys.executable, str(HERE / "judging.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_bug_has_a_name_and_is_one():
    """Names are unique, the order is always the same, and each bug changes the source."""
    found = all_mutations()
    assert len(found) == len({each.name for each in found}) > 1_500
    assert [each.name for each in found] == [each.name for each in all_mutations()]
    assert {each.operator for each in found} == {
        *("assign", "bound", "call", "command", "compare", "count", "entry", "flag", "guard", "record", "row", "sign")
    }


@pytest.mark.parametrize("module", MODULES)
def test_a_bug_changes_the_source(module):
    """One place, and it is still Python."""
    every = mutations(module)
    assert every
    for mutation in every[:: max(1, len(every) // 10)]:
        tree = mutate(mutation)
        assert ast.unparse(tree) != ast.unparse(mutate(CONTROL) if module == CONTROL.module else _plain(module))
        compile(tree, module, "exec")


def _plain(module):
    return ast.parse((HERE.parents[2] / "src" / "iriscw" / module).read_text(encoding="utf-8"))


def test_operators_do_what_they_say():
    """A small module, and all that can be done to it."""
    text = '''
"""A module."""
def decide(state, message, ctx):
    """Decide."""
    assert state.ok and message
    state.reason = f"why {state.x + 1}"
    if state.a < 3:
        state.b = True
        state.generation += 1
    commands = [Tell(a, b)]
    commands.append(SetTimer("t", max(1, state.c), None))
    state.seen.clear()
    return Decision(records=(JobEnded(1),), commands=(*commands, CancelTimer("t")))
'''
    found = [(each.operator, each.text.split("  ->  ")) for each in mutations("m.py", text)]
    assert found == [
        ("guard", ["state.a < 3", "its negation"]),
        ("compare", ["state.a < 3", "LtE"]),
        ("assign", ["state.b = True", "nothing"]),
        ("flag", ["True", "False"]),
        ("count", ["state.generation += 1", "nothing"]),
        ("command", ["Tell(a, b)", "nothing"]),
        ("command", ["commands.append(SetTimer('t', max(1, state.c), None))", "nothing"]),
        ("bound", ["max(1, state.c)", "min"]),
        ("call", ["state.seen.clear()", "nothing"]),
        ("record", ["JobEnded(1)", "nothing"]),
        ("command", ["*commands", "nothing"]),
        ("command", ["CancelTimer('t')", "nothing"]),
    ]


def test_what_is_listed_as_changing_nothing_is_there():
    """Each entry names a bug that can still be made, and the text that it was judged by."""
    known = {each.name: each for each in all_mutations()}
    for name, (text, reason) in equivalents().items():
        assert name in known, name
        assert known[name].text.startswith(f"{text}  ->"), known[name].text
        assert len(reason) > 10


def test_the_sample_is_there():
    """Names of the sample are names of bugs, none of which is listed as changing nothing."""
    assert {*SAMPLE} <= {each.name for each in all_mutations()}
    assert not {*SAMPLE} & {*equivalents()}


@pytest.mark.slow
def test_no_bug_is_noticed_by_nobody():
    """The sources as they are pass all that the bugs are judged by: else every verdict would be worth nothing."""
    (verdict,) = judged("--control", timeout=300)
    assert verdict["noticed"] == ""


def test_a_few_bugs_are_noticed():
    """By a seed, or by a test."""
    verdicts = judged(*SAMPLE[2:4], timeout=240)
    assert [each["name"] for each in verdicts if not each["noticed"]] == []


@pytest.mark.slow
def test_the_sample_is_noticed():
    """All of it."""
    verdicts = judged(*SAMPLE, timeout=900)
    assert [each["name"] for each in verdicts if not each["noticed"]] == []


@pytest.mark.soak
def test_most_bugs_are_noticed():
    """Those that are not are printed, to be caught by a new test or listed with a reason."""
    harmless = equivalents()
    chosen = []
    for module in MODULES:
        every = [each.name for each in mutations(module) if each.name not in harmless]
        chosen += every if os.environ.get("BUGS") == "all" else every[:: -(-len(every) // OF_EACH_MODULE)]
    verdicts = judged(*chosen, timeout=6 * 3600)
    missed = [f"{each['name']}  {each['text']}" for each in verdicts if not each["noticed"]]
    sys.stdout.write(f"{len(verdicts) - len(missed)} of {len(verdicts)} noticed\n" + "\n".join(missed) + "\n")
    assert len(verdicts) - len(missed) >= LEAST_NOTICED * len(verdicts), "\n".join(missed)
