"""What the pages show of ``iriscw sim`` is what it prints today; ``python tests/sims/test_pages.py`` writes it anew."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from iriscw.cli.sim.command import sim
from iriscw.testing.fleet import assert_holds

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^\$ iriscw sim run(.*)\n((?: +\d+  [0-9a-f]{32} .*\n)+)", re.MULTILINE)
STORY = re.compile(r"(?<=^\$ iriscw )(sim replay .*)\n```\n\n```text\n(    TIME .*?)(?=```)", re.MULTILINE | re.DOTALL)
PLANNED = re.compile(r"^\$ iriscw (sim plan .*) > plan\.json(?: &&|\n\$) iriscw (sim replay .*)$", re.MULTILINE)
WRONG = re.compile(r"```python\n((?:(?!```).)*)```(?:(?!```).)*```text\n(AssertionError: .*?)(?=```)", re.DOTALL)
COMMIT = re.compile(r"(?<=commit )[^)]+")

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}


def found(pattern):
    """Return what a pattern finds on all pages, each with the page's name."""
    return [pytest.param(*each, id=f"{name}:{each[0][:40]}") for name in PAGES for each in pattern.findall(PAGES[name])]


SHOWN = [
    pytest.param("--nodes" in command, line, id=f"{name}:{line.split()[0]}")
    for name, page in PAGES.items()
    for command, printed in BLOCK.findall(page)
    for line in printed.splitlines()
]
STORIES, PLANS = found(STORY), found(PLANNED)
FAILURES = [pytest.param(*each, id=name) for name in PAGES for each in WRONG.findall(PAGES[name])]


def line_of(nodes, line):
    """Return the line that a seed's run has today, for one that is shown."""
    words = ["run", "--seeds", "1", "--first", line.split()[0], *(["--nodes"] if nodes else [])]
    return CliRunner().invoke(sim, words).output.splitlines()[0]


def story_of(command):
    """Return the timeline that a replay tells, from its head on; lines end where their text does."""
    told = CliRunner().invoke(sim, shlex.split(command)[1:])
    assert told.exit_code == 0, told.output
    text = told.output[told.output.index("    TIME ") :]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def failure_of(code, shown):
    """Return what a policy's test says that fails with the plan that is shown, as far as it is shown."""
    plan = shown[shown.index("from iriscw.cloud.model import") : shown.index("\nwhat ")]
    names = {}
    exec(code + plan, names)
    (policy,) = re.findall(r"\nwhat (\w+) answered last:", shown)
    with pytest.raises(AssertionError) as failed:
        assert_holds(names["PLAN"], policy=names[policy])
    said = f"AssertionError: {failed.value}".splitlines()[: len(shown.splitlines())]
    return COMMIT.sub(COMMIT.search(shown)[0], "".join(f"{line}\n" for line in said))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("nodes", "line"), SHOWN)
def test_a_run_that_is_shown_is_as_it_is_shown(nodes, line):
    """Its trace, its time and its steps: whoever changes what a seed does shows that, too."""
    assert line_of(nodes, line) == line


@pytest.mark.parametrize(("command", "shown"), STORIES)
def test_a_story_is_told_as_it_is_shown(command, shown):
    """Each event with its moment and its reason. A story that is none any more wants another seed, and other words."""
    assert story_of(command) == shown


@pytest.mark.parametrize(("code", "shown"), FAILURES)
def test_a_failure_is_as_it_is_shown(code, shown):
    """With the very plan that is printed, which is how it is to be kept."""
    assert failure_of(code, shown) == shown


@pytest.mark.parametrize(("plan", "replayed"), PLANS)
def test_a_plan_that_is_written_is_replayed(plan, replayed, tmp_path, monkeypatch):
    """The two commands stand one behind the other, and the second one reads what the first one wrote."""
    monkeypatch.chdir(tmp_path)
    written = CliRunner().invoke(sim, shlex.split(plan)[1:])
    assert written.exit_code == 0, written.output
    Path("plan.json").write_text(written.output)
    told = CliRunner().invoke(sim, shlex.split(replayed)[1:])
    assert told.exit_code == 0, told.output
    assert " plan: held" in told.output


def test_something_is_shown():
    """The patterns find what they are meant to find."""
    assert len(SHOWN) >= 5
    assert (len(STORIES), len(FAILURES), len(PLANS)) == (1, 1, 2)


def written_anew(page):
    """Return a page with what the commands print today."""

    def lines(match):
        said = [line_of("--nodes" in match[1], line) for line in match[2].splitlines()]
        return f"$ iriscw sim run{match[1]}\n" + "".join(f"{line}\n" for line in said)

    def failure(match):
        return match[0].replace(match[2], failure_of(match[1], match[2]))

    page = BLOCK.sub(lines, page)
    page = STORY.sub(lambda match: match[0].replace(match[2], story_of(match[1])), page)
    return WRONG.sub(failure, page)


if __name__ == "__main__":
    for name, page in PAGES.items():
        if (anew := written_anew(page)) != page:
            (DOCS / name).write_text(anew, encoding="utf-8")
            sys.stdout.write(f"docs/{name} is written anew: read it\n")
