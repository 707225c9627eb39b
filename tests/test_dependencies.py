"""What is declared is used, what is used is declared, and a client needs none of the heavy libraries."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from parsed import nodes

ROOT = Path(__file__).parents[1]

MODULES = {"google-auth": "google", "ruamel-yaml": "ruamel"}
"""Packages whose modules are called otherwise."""

FORBIDDEN = ("aiobotocore", "botocore", "kubernetes_asyncio", "google", "hypothesis", "pytest", "_pytest")
"""What only extras bring."""

LIGHT = """
import importlib.abc, sys

class Forbidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Forbidden())
import iriscw, iriscw.testing
from iriscw import blocking
for name in iriscw.__all__:
    getattr(iriscw, name)
from iriscw.cli.app import COMMANDS
for each in COMMANDS:
    assert each

def double(number):
    return 2 * number

small = iriscw.Resources(cpu="100m", memory="64MiB")
with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
    print(cluster.client.submit(double, 21, name="double", resources=small).result(60))
"""


def declared():
    """Return the modules of what pyproject.toml names: those of every installation, and those of extras and tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]

    def modules(requirements):
        names = [re.match(r"[A-Za-z0-9._-]+", each)[0].lower().replace(".", "-") for each in requirements]
        return {MODULES.get(name, name.replace("-", "_")) for name in names}

    more = [each for group in extras.values() for each in group] + project["dependency-groups"]["bench"]
    return modules(project["project"]["dependencies"]), modules(more)


def used(sources):
    """Return the top modules that our own import, wherever it stands."""
    found = set()
    for source in sources:
        for node in nodes(source.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"iriscw", "iriscw_sims"}


def test_what_is_declared_is_what_is_used(sources):
    """No library is installed for nobody, and none is there by chance."""
    always, more = declared()
    assert always | more == used(sources)
    assert not always & more


def test_the_heavy_ones_are_extras():
    """They are not part of every installation; that of CoreWeave has both."""
    _, more = declared()
    assert {"aiobotocore", "botocore", "kubernetes_asyncio", "google", "hypothesis", "pytest"} <= more
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(extras["coreweave"]) == sorted([*extras["s3"], *extras["kubernetes"]])


@pytest.mark.slow
def test_a_client_and_a_local_cluster_need_no_extra():
    """Every public name is there, and a job runs, where what extras bring cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(forbidden=set(FORBIDDEN))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("[42]\n", 0), done.stderr
