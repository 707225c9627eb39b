"""A feature that is installed as a package of its own: actor, records, service, metric, command, simulation."""

import base64
import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from iriscw.runtime import Reply
from iriscw_sims.world import World

PACKAGE = Path(__file__).parent / "package"
FILES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml"))
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "adding.md"

SEEDS = 2

PROGRAM = """
import sys
import urllib.request
from pathlib import Path

import anyio
import iriscw
from iriscw.controller.assembly import Controller
from motd import Text

CONFIG = '''
name: here
platform: {local: {}}
controller: {local: {port: 0}}
scale_groups: {cpu: {max_slices: 1, resources: {cpu: 1, ram: 1GiB}}}
'''
TOKEN = Path("state/secrets/admin-token")
CLI = (sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())", "motd")


def controller():
    return Controller(iriscw.load_config("cluster.yaml"), state_dir=Path("state"))


def metrics(address, token):
    request = urllib.request.Request(f"http://{address.host}:{address.port}/metrics")
    request.add_header("Authorization", f"Bearer {token.reveal()}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


async def main():
    Path("cluster.yaml").write_text(CONFIG)
    async with controller() as first:
        async with iriscw.connect(str(first.address), first.admin_token) as client:
            print((await client.call("/motd.Motd/Set", Text(text="all is well"), Text, key="k")).text)
        where = ("--address", str(first.address), "--token-file", str(TOKEN))
        await anyio.run_process([*CLI, "maintenance at five", *where], stdout=None, stderr=None)
    async with controller() as second:
        where = ("--address", str(second.address), "--token-file", str(TOKEN))
        await anyio.run_process([*CLI, *where], stdout=None, stderr=None)
        shown = ""
        while "iriscw_motd_changes_total 2.0" not in shown:
            await anyio.sleep(0.05)
            shown = await anyio.to_thread.run_sync(metrics, second.address, second.admin_token)
        async with iriscw.connect(str(second.address), second.admin_token) as client:
            print([actor.path for actor in await client.actors(depth=1)])
            try:
                await client.call("/motd.Motd/Set", Text(text="x" * 1000), Text, key="k")
            except iriscw.IriscwError as error:
                print(type(error).__name__)


anyio.run(main)
"""


def wheel(folder: Path) -> Path:
    """Write the package's wheel, as any build tool would."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    offered = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    files = {str(path.relative_to(PACKAGE)): path.read_bytes() for path in FILES if path.suffix == ".py"}
    files[f"{stem}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n".encode()
    )
    files[f"{stem}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{stem}.dist-info/entry_points.txt"] = offered.encode()
    path = folder / f"{stem}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
        archive.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Install the package by pip, and return the environment of a program that has it."""
    folder = tmp_path_factory.mktemp("feature")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--quiet", "--target", str(folder / "site"), str(wheel(folder))], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "HOME": str(folder)}


@pytest.fixture
def motd(monkeypatch):
    """The package, without having been installed."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    import motd.actor

    return motd


@pytest.mark.slow
def test_a_controller_has_it(environment, tmp_path):
    """It serves the service, the command and the metric; a restart keeps its records; its rules bound a message."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    words = [sys.executable, "program.py"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "all is well",
        "maintenance at five",
        "maintenance at five",
        "['/', '/fleet', '/jobs', '/motd', '/nodes']",
        "MessageTooLarge",
    ]


@pytest.mark.slow
def test_its_command_is_listed(environment, tmp_path):
    """Help shows it behind those that are built in."""
    words = [sys.executable, "-c", "from iriscw.cli import main; main()", "--help"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    last = done.stdout.rstrip().splitlines()[-1].split()
    assert last[:4] == ["motd", "Show", "the", "message"]


def test_it_holds_under_faults(motd):
    """In the simulated world a text that was acknowledged survives crashes and stalls."""
    changes = 0
    for seed in range(SEEDS):
        world = World(seed, features=[motd.feature.simulated()])
        assert not world.run().violations
        changes += world.system.state("/motd").now.count
    assert changes > SEEDS


def test_a_feature_that_forgets_is_found(motd, monkeypatch):
    """One that answers without writing down loses its text in a crash, and the world says so."""

    def forgetful(state, message, ctx):
        state.now = motd.actor.TextSet(message.text, state.now.count + 1)
        return (Reply(state.now),)

    monkeypatch.setattr(motd.actor, "set_text", forgetful)
    broken = [World(seed, features=[motd.feature.simulated()]).run().violations for seed in range(SEEDS)]
    assert any("texts were acknowledged" in each for violations in broken for each in violations)


def test_it_is_small():
    """A complete feature is less than 150 lines in at most 8 files."""
    assert len(FILES) <= 8
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES) < 150


def drawn(page: str) -> str:
    """Return the page with the package's files as they are; each stands below its name."""
    for path in FILES:
        name = path.relative_to(PACKAGE).as_posix()
        shown = f"`{name}`:\n\n```{'toml' if path.suffix == '.toml' else 'python'}\n"
        assert page.count(shown) == 1, f"{PAGE.name} does not show {name}"
        before, _, after = page.partition(shown)
        page = f"{before}{shown}{path.read_text(encoding='utf-8')}```{after.partition('```')[2]}"
    return page


def test_the_page_shows_it():
    """All of it, as it is: ``python tests/features/test_motd.py`` writes it there."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
