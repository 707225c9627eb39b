"""Features of installed packages: found by name, and refused by name."""

import types
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from iriscw import plugs
from iriscw.cli import app
from iriscw.controller.feature import Feature, Parts
from iriscw.controller.installed import AmbiguousFeature, BrokenFeature, installed_features
from raised import that

MODULE = "a_package_with_features"


@pytest.fixture
def package(monkeypatch):
    """A package, and what it has under the entry point."""
    module = types.ModuleType(MODULE)
    module.one = Feature(name="one", open=lambda _: Parts(), commands={"hello": f"{MODULE}:hello"})
    module.two = Feature(name="two", open=lambda _: Parts(), commands={"hello": f"{MODULE}:hello"})
    module.taken = Feature(name="taken", open=lambda _: Parts(), commands={"jobs": f"{MODULE}:hello"})
    module.text = "no feature"
    monkeypatch.setitem(__import__("sys").modules, MODULE, module)

    def offer(**entries: str):
        found = EntryPoints(
            EntryPoint(name.rstrip("_"), f"{MODULE}:{value}", "iriscw.features") for name, value in entries.items()
        )
        monkeypatch.setattr(plugs, "entry_points", lambda group: found.select(group=group))
        app.further_commands.cache_clear()
        plugs.offered.cache_clear()

    yield offer
    app.further_commands.cache_clear()
    plugs.offered.cache_clear()


def test_they_come_by_their_names(package):
    """In an order that does not depend on that of the installation."""
    package(two="two", one="one")
    assert [feature.name for feature in installed_features()] == ["one", "two"]


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"one": "one", "one_": "two"}, AmbiguousFeature),
        ({"one": "text"}, BrokenFeature),
        ({"one": "missing"}, BrokenFeature),
    ],
)
def test_what_is_wrong_has_a_name(package, entries, error):
    """Two of one name, what is no feature, and what cannot be imported."""
    package(**entries)
    with pytest.raises(error, check=that(names="one")):
        list(installed_features())


def test_commands_are_found_when_they_are_wanted(package, capsys):
    """A command that is built in asks no package; two of one name are refused where they are looked for."""
    package(one="text")
    assert app.run(["config", "--help"]) == 0
    assert app.run(["hello"]) == 2
    assert "must be a Feature" in capsys.readouterr().err
    for entries in ({"one": "one", "two": "two"}, {"taken": "taken"}):
        package(**entries)
        with pytest.raises(AmbiguousFeature):
            app.further_commands()


def test_a_command_that_is_broken_is_its_packages(package, capsys, monkeypatch):
    """It is named, and is no bug of iriscw."""
    package(one="one")
    assert app.run(["hello"]) == 2
    assert f"'hello' of an installed package ({MODULE}:hello) cannot be imported" in capsys.readouterr().err
    monkeypatch.setattr(f"{MODULE}.hello", print, raising=False)
    assert app.run(["hello"]) == 2
    assert "must be a click.Command" in capsys.readouterr().err
