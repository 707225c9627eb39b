"""Which tiers there are, and how those of packages are found: by name, once, and never silently left out."""

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import context_of

from iriscw import plugs
from iriscw.checkpoint.drivers import loading
from iriscw.checkpoint.drivers.built_in import BUILT_IN, DISK, RAM
from iriscw.checkpoint.drivers.loading import (
    AmbiguousTier,
    BrokenTier,
    NoSuchTier,
    default_tier,
    load_tier,
    named_tier,
    open_tier,
    tier_names,
)
from iriscw.checkpoint.drivers.plug import TierPlug
from iriscw.checkpoint.drivers.store import Folders
from raised import that


def _plug(name="box", **words):
    return TierPlug(open=lambda context: Folders(name, context.state / "box", 1), **words)


BOX = _plug()
OTHER_NAME = _plug("crate")
NOT_A_PLUG = 5


def _fails(context):
    raise ValueError("no box")


FAILS = TierPlug(open=_fails)


@pytest.fixture
def offer(monkeypatch):
    """Offer tiers as packages do: their names, and what of this module each is."""

    def offer(*pairs):
        made = [EntryPoint(name, f"{__name__}:{what}", "iriscw.tiers") for name, what in pairs]
        monkeypatch.setattr(plugs, "entry_points", lambda group: made if group == "iriscw.tiers" else [])
        plugs.offered.cache_clear()

    yield offer
    plugs.offered.cache_clear()


def test_built_in_tiers(offer):
    """Memory comes first, and is meant where none is named."""
    offer()
    assert tier_names() == (RAM, DISK)
    assert named_tier("") == default_tier() == RAM
    assert named_tier(DISK) == DISK
    assert load_tier(DISK) is BUILT_IN[DISK]


def test_a_tier_of_a_package_comes_after_them(offer, tmp_path):
    """By its name; it is opened as they are."""
    offer(("box", "BOX"), ("attic", "BOX"))
    assert tier_names() == (RAM, DISK, "attic", "box")
    assert default_tier() == RAM
    tier = open_tier(context_of(tmp_path, "box"))
    assert (tier.name, tier.root) == ("box", tmp_path / "state" / "box")


def test_its_module_is_imported_only_when_it_is_opened(offer):
    """Names are listed although the module is broken."""
    offer(("box", "no_such_thing"))
    assert "box" in tier_names()
    with pytest.raises(BrokenTier):
        load_tier("box")


@pytest.mark.parametrize("call", [named_tier, load_tier])
def test_a_name_that_no_tier_has(offer, call):
    """The error lists those there are."""
    offer(("box", "BOX"))
    with pytest.raises(NoSuchTier, check=that(names="tape")) as caught:
        call("tape")
    assert str(caught.value).endswith("ram, disk, box")


def test_two_packages_offer_one(offer):
    """Neither wins; nor does one that takes a built-in name."""
    offer(("box", "BOX"), ("box", "OTHER_NAME"), (DISK, "BOX"))
    for name in ("box", DISK):
        with pytest.raises(AmbiguousTier, check=that(names=name)):
            load_tier(name)
    assert tier_names() == (RAM, DISK, "box")


@pytest.mark.parametrize(
    ("name", "what"),
    [("box", "NOT_A_PLUG"), ("box", "missing"), ("Box", "BOX"), ("path:x", "BOX"), ("journal", "BOX")],
)
def test_a_broken_one(offer, name, what):
    """It is named: an operation whose checkpoint lies in it would find nothing."""
    offer((name, what))
    with pytest.raises(BrokenTier):
        load_tier(name)


@pytest.mark.parametrize("what", ["FAILS", "OTHER_NAME"])
def test_one_that_cannot_be_opened(offer, tmp_path, what):
    """Nor can one that calls itself something else: checkpoints would be listed under that name."""
    offer(("box", what))
    with pytest.raises(BrokenTier):
        open_tier(context_of(tmp_path, "box"))


def test_an_error_of_the_tier_is_its_own(offer, tmp_path, monkeypatch):
    """What it says by an error of iriscw arrives as it is."""
    offer(("box", "BOX"))

    def open_it(context):
        raise NoSuchTier("not on this machine")

    monkeypatch.setattr(loading, "load_tier", lambda name: SimpleNamespace(open=open_it))
    with pytest.raises(NoSuchTier):
        open_tier(context_of(tmp_path, "box"))


def test_where_built_in_tiers_lie(offer, tmp_path):
    """As the page on freezing says; the caller may say another folder and budget."""
    offer()
    state = tmp_path / "state"

    def opened(name, **words):
        return open_tier(context_of(tmp_path, name, **words))

    assert opened(RAM, environment={"IRISCW_RAM_DIR": "/a"}).root == Path("/a")
    memory = opened(RAM)
    assert (memory.root, memory.volatile) == (Path(f"/dev/shm/iriscw-{os.getuid()}"), True)
    disk = opened(DISK)
    assert (disk.root, disk.volatile) == (state / "checkpoints", False)
    for tier, place, share in ((memory, "/dev/shm", 0.5), (disk, tmp_path, 0.8)):
        found = os.statvfs(place)
        assert tier.budget_bytes == int(found.f_blocks * found.f_frsize * share)
    moved = opened(DISK, folder=tmp_path / "x", budget_bytes=7)
    assert (moved.root, moved.budget_bytes) == (tmp_path / "x", 7)
