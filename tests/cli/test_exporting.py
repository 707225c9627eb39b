"""``export`` and ``import``: a checkpoint leaves a machine in a file, and comes to another one."""

import json
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from artifacts import FROZEN, fill

from iriscw.agent.local import tiers_below
from iriscw.checkpoint.drivers.store import default_reading

pytestmark = pytest.mark.usefixtures("claims_of_ours")


@pytest.fixture
def machine(iriscw, tmp_path, monkeypatch):
    """Run a command on a machine of that name, without CRIU."""
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "no-criu"))
    for name in ("IRISCW_REPOSITORY", "IRISCW_TRUST"):
        monkeypatch.delenv(name, raising=False)

    def run(name, *words):
        monkeypatch.setenv("IRISCW_STATE_DIR", str(tmp_path / name))
        monkeypatch.setenv("IRISCW_RAM_DIR", str(tmp_path / f"{name}-ram"))
        return iriscw(*words)

    return run


@pytest.fixture
def kept(tmp_path):
    """A checkpoint on the disk of the machine ``a``."""
    disk = tiers_below(tmp_path / "a", folders={"ram": tmp_path / "a-ram"}).folders["disk"]
    fill(disk.reserve("ck-1", 1 << 20), large=False)
    disk.seal("ck-1", FROZEN, (("model", "a"),), default_reading(lambda count: None), lambda size: None)
    disk.publish("ck-1")
    disk.unpin("ck-1", "ck-1")
    return disk


def listed(machine, name):
    """Return the checkpoints of a machine with their tiers."""
    found = json.loads(machine(name, "checkpoints", "-o", "json")[1])
    return {each["artifact"]: [copy["tier"] for copy in each["copies"]] for each in found}


def test_it_goes_to_another_machine_in_a_file(machine, kept, tmp_path):
    """Whole, with its labels; the first machine has it as before."""
    file = tmp_path / "ck-1.tar"
    code, out, _ = machine("a", "export", "ck-1", str(file), "-o", "json")
    assert code == 0
    done = json.loads(out)
    assert (done["checkpoint"], done["file"], done["size_bytes"]) == ("ck-1", str(file), file.stat().st_size)
    code, out, _ = machine("b", "import", str(file), "--tier", "disk", "-o", "json")
    assert code == 0
    assert (json.loads(out)["outcome"], json.loads(out)["tier"]) == ("imported", "disk")
    assert listed(machine, "a") == listed(machine, "b") == {"ck-1": ["disk"]}
    code, out, _ = machine("b", "verify", "ck-1", "-o", "json")
    sizes = [(each["tier"], each["size_bytes"], each["trouble"]) for each in json.loads(out)]
    assert (code, sizes) == (0, [("disk", kept.manifest("ck-1").sealed.size_bytes, "")])
    assert machine("b", "import", str(file), "--tier", "disk")[0] == 0, "it is here already, and is compared"


def test_a_file_is_not_written_over_unless_it_is_said(machine, kept, tmp_path):
    """Which is said before anything is read."""
    file = tmp_path / "ck-1.tar"
    file.write_text("mine")
    code, _, err = machine("a", "export", "ck-1", str(file))
    assert (code, "--force" in err, file.read_text()) == (2, True, "mine")
    assert machine("a", "export", "ck-1", str(file), "--force")[0] == 0
    assert tarfile.is_tarfile(file)
    assert machine("a", "export", "ck-2", str(tmp_path / "other.tar"))[0] == 2
    assert not (tmp_path / "other.tar").exists()


def test_a_damaged_file_leaves_nothing(machine, kept, tmp_path):
    """Neither of the checkpoint nor of the room that was taken for it."""
    file = tmp_path / "ck-1.tar"
    machine("a", "export", "ck-1", str(file))
    with tarfile.open(file) as tar:
        at = tar.getmember("images/pages-1.img").offset_data
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    code, _, err = machine("b", "import", str(file), "--tier", "disk")
    assert (code, "ImportUndone" in err, "ArchiveRefused" in err) == (3, True, True), err
    assert listed(machine, "b") == {}
    (disk,) = [each for each in json.loads(machine("b", "tiers", "-o", "json")[1]) if each["tier"] == "disk"]
    assert (disk["used_bytes"], disk["reserved_bytes"]) == (0, 0)


def test_a_machine_that_trusts_keys_takes_no_file(machine, kept, tmp_path, monkeypatch):
    """Unless it is told to take what has no signature."""
    file = tmp_path / "ck-1.tar"
    machine("a", "export", "ck-1", str(file))
    monkeypatch.setenv("IRISCW_TRUST", str(tmp_path / "trusted.pem"))
    assert machine("b", "import", str(file), "--tier", "disk")[0] == 3
    monkeypatch.setenv("IRISCW_ACCEPT_UNPROTECTED", "1")
    assert machine("b", "import", str(file), "--tier", "disk")[0] == 0
