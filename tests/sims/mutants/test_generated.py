"""Bugs made from the source of decisions: a test of the decisions or a seed of the simulated world notices them.

``make test`` judges two of a chosen dozen, ``make soak`` that dozen and a random sample of all modules: always the same
one, but for ``BUGS=7`` in the environment, which draws another, and ``BUGS=all``, which takes all 2,500, in some hours.
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

from mutating import CONTROLS, MODULES, all_mutations, in_line, mutate, mutations, sample  # noqa: E402

LEAST_NOTICED = 0.9
"""The share of the bugs that has to be noticed, those apart that change nothing."""

BUGS = 160
"""Of a sample. With so many the share is known to within five percent, in a quarter of an hour of one core."""

SAMPLE = (
    "fleet/lifecycle.py:_pod_rows:row:13",
    "fleet/lifecycle.py:_slice_rows:row:23",
    "fleet/slices/slice.py:move:guard:2",
    "fleet/slices/rules.py:completed:command:4",
    "fleet/slices/ending.py:dismiss:command:5",
    "fleet/pods.py:hung_up:guard:1",
    "fleet/records.py:evolve:assign:2",
    "fleet/groups/scaling.py:_ask_cordon:command:1",
    "jobs/job/decisions.py:JobDecisions.placed:record:1",
    "jobs/links/link.py:LinkDecisions._synced:command:2",
    "jobs/scheduling/placement.py:Inventory.commit:assign:2",
    "jobs/lifecycle.py:(module):entry:3",
)
"""One of each kind, in all modules that matter."""

FEW = SAMPLE[2:4]
"""What `make test` judges: one that a seed notices, and one that a test does."""


def equivalents():
    """Return what is listed as changing nothing: name to text and reason."""
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
    for module in MODULES[::4]:
        text = (HERE.parents[2] / "src" / "iriscw" / module).read_text(encoding="utf-8")
        assert mutations(module, text) == [each for each in found if each.module == module]
    assert {each.operator for each in found} == {
        *("assign", "bound", "call", "command", "compare", "count", "entry", "flag", "guard", "record", "row", "sign")
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("module", MODULES)
def test_a_bug_changes_the_source(module):
    """One place, and it is still Python."""
    every, plain = mutations(module), ast.unparse(_plain(module))
    assert every
    for mutation in every[:: -(-len(every) // 3)]:
        tree = mutate(mutation)
        assert ast.unparse(tree) != plain
        compile(tree, module, "exec")


def _plain(module):
    return ast.parse((HERE.parents[2] / "src" / "iriscw" / module).read_text(encoding="utf-8"))


def test_a_control_changes_nothing():
    """One for each feature, with the tests and seeds that its bugs are judged by."""
    assert {each.module.partition("/")[0] for each in CONTROLS} == {module.partition("/")[0] for module in MODULES}
    for each in CONTROLS:
        assert ast.unparse(mutate(each)) == ast.unparse(_plain(each.module))


def test_all_that_decides_is_changed():
    """Tables, rules and the state that they read; values and assembly are not."""
    assert {"fleet/lifecycle.py", "fleet/slices/rules.py", "jobs/lifecycle.py", "jobs/scheduling/scheduler.py"} <= {
        *MODULES
    }
    assert not {"fleet/model.py", "jobs/messages.py", "jobs/records.py", "fleet/actor.py"} & {*MODULES}


def test_a_sample_is_drawn_from_each_module_by_its_size():
    """The same for the same seed, another one for another; none twice."""
    first = sample(7, 160)
    assert first == sample(7, 160) != sample(8, 160)
    assert len(first) == len({each.name for each in first}) >= 150
    assert {each.module for each in first} == {*MODULES}
    number = sum(each.module == "fleet/pods.py" for each in first)
    assert abs(number - 160 * len(mutations("fleet/pods.py")) / len(all_mutations())) < 1


def test_a_sample_outlives_an_edit():
    """What else there is does not change the order of the rest: it is drawn again, but for one in its place."""
    found = mutations("fleet/pods.py")
    line = in_line(found, 1)
    assert line != in_line(found, 2)
    for gone in found[::20]:
        assert in_line([each for each in found if each is not gone], 1) == [each for each in line if each is not gone]


def test_a_choice_between_two_texts_is_no_decision():
    """It is words for people, as the texts themselves are; a choice of anything else is one."""
    text = '''
def say(state):
    """Say."""
    text = "the pool goes" if state.pool else "the pods go"
    return Row(text, f"{state.a}" if state.a else "", "a" if state.b else "b")
'''
    assert [each.text.partition("  ->")[0] for each in mutations("m.py", text)] == ["state.b"]


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
    both = zip(a, b, strict=True)
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
    """The sources as they are pass all that bugs of the fleet are judged by: else a verdict would be worth nothing.

    Those judged below are of the fleet; the soak, which judges bugs of jobs, too, has the control of jobs.
    """
    assert [each["noticed"] for each in judged("--control", "--limit-s", "0.001", timeout=600)] == [""]


@pytest.mark.slow
def test_a_few_bugs_are_noticed():
    """By a seed, or by a test."""
    verdicts = judged(*FEW, timeout=240)
    assert [each["name"] for each in verdicts if not each["noticed"]] == []


@pytest.mark.soak
def test_the_sample_is_noticed():
    """All of it."""
    verdicts = judged(*SAMPLE, timeout=900)
    assert [each["name"] for each in verdicts if not each["noticed"]] == []


@pytest.mark.soak
def test_most_bugs_are_noticed():
    """Those that are not are printed, to be caught by a new test or listed with a reason."""
    harmless = equivalents()
    asked = os.environ.get("BUGS", "1")
    drawn = all_mutations() if asked == "all" else sample(int(asked), BUGS)
    verdicts = judged("--control", *(each.name for each in drawn if each.name not in harmless), timeout=8 * 3600)
    controls, verdicts = verdicts[:2], verdicts[2:]
    assert [each["noticed"] for each in controls] == ["", ""]
    missed = [f"{each['name']}  {each['text']}" for each in verdicts if not each["noticed"]]
    sys.stdout.write(f"{len(verdicts) - len(missed)} of {len(verdicts)} noticed\n" + "\n".join(missed) + "\n")
    assert len(verdicts) - len(missed) >= LEAST_NOTICED * len(verdicts), "\n".join(missed)
