"""Platforms are found by argument, then by entry point, and never by guessing."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from iriscw.cloud.drivers import loading
from iriscw.cloud.drivers.loading import (
    ENTRY_POINT_GROUP,
    AmbiguousPlatform,
    BrokenPlatform,
    CloudDrivers,
    NoSuchPlatform,
    load_platform,
)
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.model import Capacity
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver

LOCAL = "iriscw.cloud.drivers.local.drivers:local"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Give a function that pretends that packages with these entry points are installed."""

    def install(*pairs: tuple[str, str]) -> None:
        points = EntryPoints(EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in pairs)
        monkeypatch.setattr(loading, "entry_points", lambda group: points.select(group=group))

    return install


def test_an_argument_wins(installed) -> None:
    """Over an entry point of the same name."""
    installed(("a", LOCAL))

    def mine(section):
        raise NotImplementedError

    assert load_platform("a", {"a": mine}) is mine
    assert load_platform("a") is local


def test_what_is_not_there_is_listed(installed) -> None:
    """With everything that is."""
    installed(("b", LOCAL))
    with pytest.raises(NoSuchPlatform, match=r"there are: b, c, coreweave, local$"):
        load_platform("a", {"c": local})


def test_two_offers_are_no_choice(installed) -> None:
    """Somebody has to uninstall one."""
    installed(("a", LOCAL), ("a", "other:thing"))
    with pytest.raises(AmbiguousPlatform):
        load_platform("a")


@pytest.mark.parametrize("value", ["no_such_module_here:x", "iriscw.errors:no_such_name"])
def test_a_broken_package_is_named(installed, value: str) -> None:
    """With what it wanted to import."""
    installed(("a", value))
    with pytest.raises(BrokenPlatform, match=value.partition(":")[0]):
        load_platform("a")


async def test_the_local_platform_has_the_shape_of_the_ports(tmp_path: Path) -> None:
    """All three of them."""
    async with local(LocalOptions(tmp_path, Capacity())) as drivers:
        assert isinstance(drivers, CloudDrivers)
        assert isinstance(drivers.node_pools, NodePoolDriver)
        assert isinstance(drivers.pods, PodDriver)
        assert isinstance(drivers.connection("pod", "uid"), Connection)
