"""A tier that is installed as a package of its own keeps the contract, and freezes and thaws by the command."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from real_trees import Counting, why_not

from iriscw.checkpoint.drivers.plug import TierPlug
from iriscw.freeze.model import FreezePlan, TaskIdentity
from iriscw.freeze.records import FreezeAccepted
from iriscw.journal.sqlite import SqliteJournal
from iriscw.testing.conformance.tier import TierConformance
from wheels import install, wheel

SOURCE = Path(__file__).parent / "package" / "loft_tier.py"
MAIN = "import sys; from iriscw.cli import main; sys.exit(main())"


class TestLoft(TierConformance):
    """What the package offers, without installing it."""

    @pytest.fixture
    def plug(self) -> TierPlug:
        """Of its source."""
        spec = importlib.util.spec_from_file_location("loft_tier", SOURCE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.loft


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the package is installed."""
    folder = tmp_path_factory.mktemp("plug")
    return install(folder, wheel(folder, SOURCE, "iriscw.tiers", "loft = loft_tier:loft"))


@pytest.fixture
def command(site, tmp_path):
    """Run the command line with that package, and a state of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "IRISCW_STATE_DIR": str(tmp_path / "state"),
        "IRISCW_RAM_DIR": str(tmp_path / "memory"),
        "LOFT_DIR": str(tmp_path / "loft"),
    }

    def run(*arguments, **words):
        return subprocess.run(
            [sys.executable, "-c", MAIN, *arguments],
            env={**environment, **words},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.slow
def test_the_command_knows_it(command):
    """Its name and a budget for it are in the help; a name that no tier has is told those that there are."""
    said = command("checkpoint", "--help").stdout
    assert "ram, disk, loft" in " ".join(said.split())
    assert "--loft-budget" in said
    refused = command("checkpoint", "--pid", str(os.getpid()), "--tier", "cellar")
    assert refused.returncode == 2
    assert "there is no tier 'cellar': there are ram, disk, loft" in refused.stderr


@pytest.mark.slow
def test_an_operation_of_it_waits_for_it(command, tmp_path):
    """One that was begun in its tier is left alone by a command that would look elsewhere."""
    folder = tmp_path / "state" / "operations" / "ck-1"
    folder.mkdir(parents=True, mode=0o700)
    for each in (folder.parent, folder.parent.parent):
        each.chmod(0o700)
    _begun_freeze(folder / "journal")
    (folder / "loft").write_text(str(tmp_path / "loft"))
    moved = command("checkpoints", LOFT_DIR=str(tmp_path / "other"))
    assert f"run this with LOFT_DIR={tmp_path / 'loft'}" in moved.stderr
    gone = command("checkpoints", PYTHONPATH="")
    assert "of the tier 'loft', which no installed package offers" in gone.stderr
    assert folder.exists()


def _begun_freeze(journal):
    """Write down that a freeze was accepted, of a process that is no more."""
    open_journal = SqliteJournal.open(journal)
    try:
        plan = FreezePlan("ck-1", TaskIdentity(2**22, 1, "another-boot"), "loft")
        open_journal.append("/freeze", [FreezeAccepted(plan, 1)])
    finally:
        open_journal.close()


@pytest.mark.slow
def test_a_tree_is_frozen_into_it_and_thawed(command, tmp_path):
    """By the command, with CRIU: the checkpoint lies in the package's folder, and the tree goes on where it was."""
    if reason := why_not():
        pytest.skip(reason)
    tree = Counting(tmp_path, children=1)
    try:
        frozen = command("checkpoint", "--pid", str(tree.pid), "--tier", "loft", "-o", "json")
        assert frozen.returncode == 0, frozen.stderr
        done = json.loads(frozen.stdout)
        assert (done["outcome"], done["tier"]) == ("frozen", "loft")
        assert not tree.alive()
        assert (tmp_path / "loft" / "artifacts" / done["checkpoint"] / "images" / "inventory.img").exists()
        (listed,) = json.loads(command("checkpoints", "-o", "json").stdout)
        assert (listed["artifact"], listed["tier"]) == (done["checkpoint"], "loft")
        thawed = command("restore", done["checkpoint"])
        assert thawed.returncode == 0, thawed.stderr
        tree.counts_on()
        assert tree.unbroken()
        assert command("checkpoints", "--remove", done["checkpoint"]).returncode == 0
        assert not [*(tmp_path / "loft" / "artifacts").iterdir()]
    finally:
        tree.kill()
