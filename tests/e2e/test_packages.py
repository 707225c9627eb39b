"""What a job asks to be installed, and to be run before it begins: on a real cluster, with a real installer."""

import importlib
import sys
from pathlib import Path

import pytest

import iriscw
from iriscw import blocking
from raised import that

sys.path.insert(0, str(Path(__file__).parents[1] / "packages"))

from tiny_wheels import never_built, only, wheel

STEP = "import pathlib; pathlib.Path('made').write_text('by a step')"


def look() -> tuple[str, str]:
    """Return what is there: a package, and a file."""
    return importlib.import_module("iriscw_tiny").VERSION, Path("made").read_text()


@pytest.mark.slow
def test_a_job_has_what_it_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable imports it and finds what a step wrote; what cannot be had, and a step that fails, are said once."""
    wheel(tmp_path)
    never_built(tmp_path)
    for name, value in only(tmp_path).items():
        monkeypatch.setenv(name, value)
    write = [sys.executable, "-c", STEP]
    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        small = iriscw.Resources(cpu=0.2, memory="64MiB")
        submit = cluster.client.submit
        job = submit(look, name="has", resources=small, dependencies=["iriscw-tiny"], setup=[write])
        assert job.result() == [("1.0", "by a step")]

        job = submit(look, name="slow", resources=small, dependencies=["iriscw-slow", "iriscw-tiny"])
        said = next(status for status in job.watch() if status.reason.startswith("installs"))
        assert (said.state.name, said.progress) == ("BUILDING", None)
        assert said.reason == job.tasks()[0].reason == job.tasks()[0].attempts[0].reason
        assert said.reason == "installs iriscw-slow, iriscw-tiny"
        job.terminate()
        assert job.wait().state.name == "KILLED"

        job = submit(look, name="none", resources=small, dependencies=["iriscw-tiny==9"], max_retries_failure=0)
        with pytest.raises(iriscw.JobFailed, check=that(names="DependenciesFailed")):
            job.result()

        fails = [sys.executable, "-c", "print('so it is'); raise SystemExit(3)"]
        job = submit(look, name="step", resources=small, setup=[write, fails], max_retries_failure=0)
        with pytest.raises(iriscw.JobFailed, check=that(names="SetupFailed")):
            job.result()
        (task,) = job.tasks()
        (ended,) = task.attempts
        assert ended.exit_code == 3
        assert "step 2 of 2" in ended.reason
        assert ended.reason.endswith("so it is")
