"""The store gives the golden answers; so does the real server, where there is one."""

import pytest
from kube_catalogue import SCENARIOS
from kube_differential import compare, report
from kube_golden import load, record, step_as_json
from kube_normal import normal_form
from kube_program import complete
from kube_worlds import run_program

GOLDEN = load()


def _check(name, world):
    steps = complete(SCENARIOS[name])
    golden = [answer for _, answer in GOLDEN[name]]
    answers = normal_form(run_program(SCENARIOS[name], world))
    difference, _ = compare(steps, golden, answers)
    assert not difference, report(steps, difference, golden[difference.step], answers[difference.step])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_store_answers_as_was_recorded(name, store_world):
    """Every scenario of the catalogue."""
    _check(name, store_world)


def test_the_golden_file_is_of_this_catalogue():
    """A catalogue that changed has to be recorded anew."""
    requests = {name: [step_as_json(step) for step in complete(program)] for name, program in SCENARIOS.items()}
    assert {name: [request for request, _ in steps] for name, steps in GOLDEN.items()} == requests


def test_the_store_answers_the_same_each_time(store_world):
    """Two runs of the catalogue are equal, whatever was before."""
    names = ("watches and selectors", "lists in pages", "pods: grace")
    few = {name: SCENARIOS[name] for name in names}
    assert record(store_world, few) == record(store_world, few)


@pytest.mark.slow
def test_the_real_server_still_says_so(real_world):
    """The golden file is what this version of the server answers: no answer in it is of one run or one machine."""
    answers = record(real_world)
    for name, program in SCENARIOS.items():
        golden = [answer for _, answer in GOLDEN[name]]
        steps = complete(program)
        difference, _ = compare(steps, golden, answers[name])
        assert not difference, report(steps, difference, golden[difference.step], answers[name][difference.step])
