"""A platform that is installed as a package of its own runs jobs, found by the name that a configuration gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wheels import install, wheel

HERE = Path(__file__).parent

CONFIG = """
name: desks
platform:
  plugin:
    name: desk-cloud
    settings: {desks: "1"}
  timeouts: {worker_timeout: 10s, api_timeout: 1s}
  autoscaler: {scale_up_delay: 0s, scale_down_delay: 1s, startup_grace_period: 60s, evaluation_interval: 1s}
controller: {local: {port: 0}}
defaults: {bootstrap: {env_vars: {IRISCW_ORPHAN_AFTER_S: "5"}}}
scale_groups:
  small:
    resources: {cpu: 1, ram: 1GiB}
    max_slices: 1
    slice_template: {plugin: {region: attic, instance_type: desk, settings: {paint: green}}}
"""

PROGRAM = """
import sys
import anyio
import iriscw

async def main():
    config = iriscw.load_config("cluster.yaml")
    async with iriscw.Cluster.open(config, workdir="state") as cluster:
        command = iriscw.Command(["echo", "hello"])
        job = await cluster.client.submit(command, name="hello", constraints={"region": "attic"})
        await job.result()
        print(*[str(line) async for line in job.logs()])
        overview = await cluster.client.status()
        print(overview.platform)
        while await cluster.client.slices():  # nobody's machines outlive this test
            await anyio.sleep(0.05)

if __name__ == "__main__":
    anyio.run(main)
"""


CHECK = ("-c", "import sys; from iriscw.cli import main; sys.exit(main())", "config", "check", "cluster.yaml")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Install the package by pip, and give the environment of a program that has it."""
    folder = tmp_path_factory.mktemp("plugin")
    built = wheel(folder, HERE / "package" / "desk_cloud.py", "iriscw.platforms", "desk-cloud = desk_cloud:platform")
    return {**os.environ, "PYTHONPATH": str(install(folder, built)), "HOME": str(folder)}


def run(environment, folder, *arguments):
    """Run Python there; give what became of it."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_a_job_runs_on_it(environment, tmp_path):
    """From its configuration alone; the platform has its settings, and each group's; the overview has its name."""
    (tmp_path / "cluster.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = run(environment, tmp_path, "program.py")
    assert (done.stdout, done.returncode) == ("hello\ndesk-cloud\n", 0), done.stderr
    assert (tmp_path / "state" / "platform" / "paint").read_text(encoding="utf-8") == "green"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('desks: "1"', 'desks: "none"', "platform.plugin.settings.desks: 'none' is not a number from 1 to 100"),
        ('desks: "1"', 'desk: "1"', "desk is no setting of desk-cloud"),
        (
            "instance_type: desk",
            "instance_type: sofa",
            "scale_groups.small: 'sofa' is none of this platform's machines",
        ),
    ],
)
def test_the_platform_looks_at_its_settings(environment, tmp_path, old, new, said):
    """What it does not take, ``config check`` refuses in its words, with the exit code of a usage error."""
    assert old in CONFIG
    (tmp_path / "cluster.yaml").write_text(CONFIG.replace(old, new), encoding="utf-8")
    done = run(environment, tmp_path, *CHECK)
    assert (done.stdout, done.returncode) == ("", 2)
    assert said in done.stderr


@pytest.mark.slow
def test_a_package_that_is_not_there(tmp_path):
    """The file is good all the same; a controller is refused by name."""
    (tmp_path / "cluster.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "HOME": str(tmp_path)}
    checked = run(environment, tmp_path, *CHECK)
    assert checked.returncode == 0
    assert "there is no platform 'desk-cloud': no installed package has one" in checked.stderr
    opened = run(environment, tmp_path, "program.py")
    assert opened.returncode == 1
    assert "NoSuchPlatform: there is no platform 'desk-cloud'" in opened.stderr
