"""Platforms are found by entry point, and never by guessing."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from iriscw import plugs
from iriscw.cloud.drivers.loading import (
    AmbiguousPlatform,
    BrokenPlatform,
    CloudDrivers,
    GroupPlace,
    InvalidSettings,
    NoSuchPlatform,
    Platform,
    load_platform,
)
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.model import Capacity
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from raised import that

LOCAL = "iriscw.cloud.drivers.local.drivers:local"
HERE = f"{__name__}:mine"


def _open(context):
    raise NotImplementedError


mine = Platform(open=_open)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Return a function that pretends that packages with these entry points are installed."""

    def install(*pairs: tuple[str, str]) -> None:
        points = EntryPoints(EntryPoint(name, value, "iriscw.platforms") for name, value in pairs)
        monkeypatch.setattr(plugs, "entry_points", lambda group: points.select(group=group))
        plugs.offered.cache_clear()

    yield install
    plugs.offered.cache_clear()


def test_a_package_is_found_by_name(installed) -> None:
    """Among others."""
    installed(("a", HERE), ("b", "no_such_module_here:x"))
    assert load_platform("a") is mine


def test_what_is_not_there_is_listed(installed) -> None:
    """With everything that is."""
    installed(("b", HERE), ("c", HERE))
    with pytest.raises(NoSuchPlatform, check=that(comes_from="plugs.Plugs.load", names=("b", "c"))):
        load_platform("a")


def test_what_is_no_platform_is_refused(installed) -> None:
    """A function alone, as an earlier page had it."""
    installed(("a", LOCAL))
    with pytest.raises(BrokenPlatform, check=that(comes_from="plugs.Plugs.load", names="function")):
        load_platform("a")


@pytest.mark.parametrize("source", ["raise RuntimeError('no licence')", "this is no Python"])
def test_whatever_an_import_raises_is_the_packages(installed, tmp_path: Path, monkeypatch, source: str) -> None:
    """It is told with its text, by the platform's name."""
    (tmp_path / "spoilt_platform.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "spoilt_platform", raising=False)
    installed(("a", "spoilt_platform:platform"))
    with pytest.raises(BrokenPlatform, check=that(comes_from="plugs.Plugs.load")):
        load_platform("a")


def test_without_a_check_there_are_no_settings() -> None:
    """One that is said is misspelt, or meant for another platform."""
    mine.check({}, {"g": GroupPlace(region="r", instance_type="t")})
    for settings, groups, where in (
        ({"a": "1"}, {}, "platform.plugin"),
        ({}, {"g": GroupPlace(settings={"a": ""})}, "g"),
    ):
        with pytest.raises(InvalidSettings, check=that(comes_from="loading._no_settings", names=where)):
            mine.check(settings, groups)


def test_two_offers_are_no_choice(installed) -> None:
    """Somebody has to uninstall one."""
    installed(("a", HERE), ("a", "other:thing"))
    with pytest.raises(AmbiguousPlatform):
        load_platform("a")


@pytest.mark.parametrize("value", ["no_such_module_here:x", "iriscw.errors:no_such_name"])
def test_a_broken_package_is_named(installed, value: str) -> None:
    """With what it wanted to import."""
    installed(("a", value))
    with pytest.raises(BrokenPlatform, check=that(names=value.partition(":")[0])):
        load_platform("a")


async def test_the_local_platform_has_the_shape_of_the_ports(tmp_path: Path) -> None:
    """All three of them."""
    async with local(LocalOptions(tmp_path, Capacity())) as drivers:
        assert isinstance(drivers, CloudDrivers)
        assert isinstance(drivers.node_pools, NodePoolDriver)
        assert isinstance(drivers.pods, PodDriver)
        assert isinstance(drivers.connection("pod", "uid"), Connection)
