"""A stage for each run of an entry, and where nothing can be frozen, why."""

import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))  # for real_trees

for name in ("catalogue_entry", "program_entries", "program_peers", "server_entries", "shape_entries"):
    pytest.register_assert_rewrite(name)  # what is asserted there is told as if it stood in a test

from catalogue_entry import Stage  # noqa: E402
from real_trees import why_not  # noqa: E402


@pytest.fixture
def turn(request, tmp_path_factory):
    """Have entries that share something wait for each other, in whichever process they are."""
    shared = request.node.callspec.params["entry"].alone
    if not shared:
        yield
        return
    # All processes of pytest-xdist have folders below one that they share.
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (folder / f"catalogue-{shared}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def stage(turn):
    """Yield a function that makes a stage; all of it is ended afterwards."""
    if why_not():
        pytest.skip(why_not())
    made = []

    def make() -> Stage:
        # A short name: that of a Unix socket has 108 bytes.
        made.append(Stage(Path(tempfile.mkdtemp(prefix="cat-"))))
        return made[-1]

    yield make
    for each in made:
        each.end()
        shutil.rmtree(each.folder)
