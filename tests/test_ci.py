"""A part that was not made and a skip that nobody expects fail CI, and a run that fails says how far it came."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skips

CONFTEST = """
import sys
sys.path.insert(0, {folder!r})
import skips
def pytest_configure(config):
    skips.registered(config)
"""

SKIPPING = """
import pytest
def test_passes(): pass
def test_skips(): pytest.skip({reason!r})
@pytest.mark.xfail
def test_is_known_to_fail(): assert False
"""


def run(folder, reason, *arguments, **environment):
    """Run a test that skips for this reason; give the exit status and what was said."""
    (folder / "conftest.py").write_text(CONFTEST.format(folder=str(Path(skips.__file__).parent)))
    (folder / "test_it.py").write_text(SKIPPING.format(reason=reason))
    words = {name: value for name, value in os.environ.items() if name not in ("CI", skips.LACKS)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *arguments, folder],
        cwd=folder,
        env=words | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), id="one process"), pytest.param(("-n", "1"), id="workers", marks=pytest.mark.slow)],
)
def test_a_skip_that_nobody_expects_fails_ci(tmp_path, arguments):
    """It is named with its reason; elsewhere, for a known reason, or where the machine said so, it is a skip."""
    status, said = run(tmp_path, "no API at hand", *arguments, CI="1")
    assert status == 1
    assert "test_it.py::test_skips: no API at hand" in said
    assert "1 passed, 1 skipped, 1 xfailed" in said
    assert run(tmp_path, "no API at hand", *arguments)[0] == 0


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("reason", "lacks", "status"),
    [
        ("this kernel has no NUMA", "", 0),
        ("no kubelet: nobody made it", "", 1),
        ("no kubelet: nobody made it", "runc kubelet", 0),
        ("no kubelet: nobody made it", "runc", 1),
        ("no kubelet: nobody made it", "kublet", 3),
    ],
)
def test_a_machine_says_beforehand_what_it_lacks(tmp_path, reason, lacks, status):
    """A part that it names may be missing, and no other one; a name that means nothing is an error."""
    assert run(tmp_path, reason, CI="1", IRISCW_LACKS=lacks)[0] == status


def test_the_parts_are_those_that_ci_makes(repository):
    """Each of them has the reasons of the tests that go without it."""
    text = (repository / ".ci/run").read_text()
    assert re.findall(r'^    \[(\w+)\]="\d+ ', text, re.MULTILINE) == [*skips.PARTS]


PARTS = """
set -euo pipefail
scratch={scratch} SECONDS=0 summary=() making_parts="" running="" running_since=0
declare -A part=([good]="9 true" [bad]="9 false")
{functions}
trap leave EXIT
exec {{parts}}< <(lane good bad)
phase parts await_parts
echo all of it
"""


@pytest.mark.parametrize(("lacks", "status"), [("", 1), ("bad", 0), ("good ba", 1)])
def test_a_part_that_is_not_made_ends_it(tmp_path, repository, lacks, status):
    """Unless the machine is known to lack it; a run that fails says what took how long, too."""
    text = (repository / ".ci/run").read_text()
    functions = re.findall(r"^(?:phase|lane|end_jobs|await_parts|leave)\(\) \{.*?^\}", text, re.MULTILINE | re.DOTALL)
    assert len(functions) == 5
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = PARTS.format(scratch=scratch, functions="\n".join(functions))
    done = subprocess.run(
        ["bash", "-c", script], env=os.environ | {skips.LACKS: lacks}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "all of it" in done.stdout) == (status, status == 0), done.stdout + done.stderr
    if status:
        assert 'IRISCW_LACKS="bad"' in done.stdout
        assert re.search(r"== failed after \d+ s\n(.*\n)*parts +\d+ s  FAILED\n", done.stdout)
        assert re.search(r"  bad +\d+ s  NOT MADE\n", done.stdout.split("== failed after")[1])
    assert not scratch.exists()
