"""From a configuration to canonical YAML."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given

from iriscw.config.dump import dump_config, unstructure
from iriscw.config.load import build_config, load_config, parse_config
from profiles import examples

DATA = Path(__file__).parent / "data"
_SPEC = importlib.util.spec_from_file_location("config_strategies", Path(__file__).parent / "strategies.py")
strategies = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(strategies)


@examples(15)  # to draw one takes 30 ms
@given(strategies.configurations())
def test_loading_what_was_dumped_gives_the_same(values):
    """A configuration survives being written and read, and its canonical form is stable."""
    config = build_config(values)
    text = dump_config(config)
    again = parse_config(text)
    assert again == config
    assert dump_config(again) == text


@examples(25)
@given(strategies.configurations())
def test_plain_values_are_a_configuration(values):
    """The plain values of a configuration build it, without YAML between."""
    config = build_config(values)
    assert build_config(unstructure(config)) == config


@pytest.mark.parametrize("name", ["seed-000-cluster", "seed-000-smoke", "seed-001-h100"])
def test_seeds_survive(name):
    """The seeds' configurations survive being written and read."""
    config = load_config(DATA / f"{name}.yaml")
    assert parse_config(dump_config(config)) == config


def test_every_default_is_spelled_out():
    """The canonical text names each key, with units, whether it was said or not."""
    text = dump_config(build_config({"platform": {"local": {}}, "scale_groups": {"a": {}}}))
    for line in (
        "boot_delay: 500ms",
        "ram: 1GiB",
        "cpu: 1",
        "durability: local",
        "priority: 100",
        "preemptible: false",
    ):
        assert line in text


def test_a_repr_shows_no_environment():
    """Tokens live in environments: a configuration's repr names the variables only."""
    config = build_config(
        {
            "platform": {"local": {}},
            "defaults": {"task_env": {"TOKEN": "hunter2"}, "bootstrap": {"env_vars": {"KEY": "hunter2"}}},
        }
    )
    assert "hunter2" not in repr(config)
    assert "TOKEN" in repr(config)
