"""What a newcomer reads first: what iriscw is for, when something else is better, and what is not there yet."""

import inspect
import re
import tomllib
from pathlib import Path

import click
import pytest

import iriscw
from iriscw.cli.app import app
from iriscw.fleet.model import TASK_RUNTIMES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "iriscw"
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
SHOWN = 1500
"""Characters of a page that are read before anybody scrolls."""


def options():
    """Return what can be said of a job that is submitted."""
    return {*inspect.signature(iriscw.Client.submit).parameters}


IS_THERE = {
    "suspended jobs that go on on another machine": (SOURCE / "freeze" / "carried.py").exists(),
    "policies that move checkpoints": (SOURCE / "checkpoint" / "tiering").exists(),
    "servers that scale to zero by themselves": (SOURCE / "workload").exists(),
    "hosted actors": (SOURCE / "hosted").exists(),
    "dependencies for each job": bool(options() & {"dependencies", "packages", "requirements", "extras"}),
    "preemption between priority bands": any("class Preempt" in path.read_text() for path in SOURCE.glob("jobs/*.py")),
    "a dashboard": bool({"dashboard", "top"} & {*app.list_commands(click.Context(app))}),
    "tasks in containers of their own": "pod" in TASK_RUNTIMES,
    "checkpoints of jobs": hasattr(iriscw.Client, "checkpoint"),
    "checkpoints in S3 and on other machines": (SOURCE / "checkpoint" / "repository").exists(),
}
"""Whether it is there, of what the README says, or said, is not: the packages have the names of the design."""


def missing():
    """Return what the README says is not there yet."""
    said = re.search(r"^- Not there yet: (.*?)\.$", README, re.MULTILINE | re.DOTALL)[1]
    return [" ".join(each.split()) for each in said.split(",")]


@pytest.mark.parametrize("what", missing())
def test_what_the_readme_says_is_missing_is_missing(what):
    """What has been made since is taken out of the list; what is added to the list gets its line above."""
    assert not IS_THERE[what]


def test_what_is_there_is_found():
    """The list is judged by things that it once had, and that were made."""
    assert [what for what, there in IS_THERE.items() if there] == [
        "suspended jobs that go on on another machine",
        "policies that move checkpoints",
        "hosted actors",
        "dependencies for each job",
        "preemption between priority bands",
        "tasks in containers of their own",
        "checkpoints of jobs",
        "checkpoints in S3 and on other machines",
    ]


def test_the_readme_begins_with_the_problem():
    """Then says for whom it is, what sets it apart, and, in a table, when something else is better."""
    heads = ["**The problem.**", "**Who it is for.**", "**What sets it apart:**", "## When to use something else"]
    assert sorted(heads, key=README.index) == heads
    assert README.index(heads[2]) < SHOWN
    table = README[README.index(heads[3]) :].partition("\n## ")[0]
    others = re.findall(r"^\| \[(\w+)\]\(https://\S+\) \| \S.* \|$", table, re.MULTILINE)
    assert {"Ray", "SkyPilot", "Slurm", "Kueue"} <= {*others}


def test_the_documentation_begins_with_what_it_is_for():
    """Its first page has a picture, says for whom it is, and leads on by what a reader wants to do."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    before, _, links = page.partition("```{toctree}")
    assert links
    (picture,) = re.findall(r"```\{image\} (\S+)", before[:SHOWN])
    assert (DOCS / picture).is_file()
    assert "CoreWeave" in before[:SHOWN]
    wants = re.findall(r"^\| (.+?) \| (\{doc\}.+) \|$", before, re.MULTILINE)
    assert len(wants) > 8
    led = [name for _, targets in wants for name in re.findall(r"\{doc\}`([\w-]+)`", targets)]
    assert [name for name in led if not (DOCS / f"{name}.md").is_file()] == []


def test_the_page_of_drivers_counts_their_kinds():
    """The number that it begins with is that of the rows below it."""
    page = (DOCS / "drivers.md").read_text(encoding="utf-8")
    word, table = re.search(r"asks for (\w+) kinds:\n\n(.*?)\n\n", page, re.DOTALL).groups()
    assert word == ("no", "one", "two", "three", "four", "five", "six")[len(table.splitlines()) - 2]


def test_extras_that_pages_name_exist():
    """What a page has a reader install is declared; what CoreWeave needs is an extra, and its page says which."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *DOCS.glob("*.md")]}
    named = {path.name: re.findall(r"pip install '\.\[([\w,-]+)\]'", text) for path, text in pages.items()}
    assert {extra for each in named.values() for extras in each for extra in extras.split(",")} <= {*declared}
    assert {name: named[name] for name in ("coreweave.md", "policies.md")} == {
        "coreweave.md": ["coreweave"],
        "policies.md": ["testing"],
    }
