"""``docs/internals/map.md`` lists the forms in which it is told how an attempt ended: no other one comes by itself."""

import ast
import re
from pathlib import Path

from parsed import nodes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "map.md"
WORDS = ("jobs.model.Ending", "jobs.model.Suspension", "jobs.traits.Fault", "v1.Suspension")
"""That the section names beside the forms."""


PARTS = {"ending", "exit_code", "reason", "details", "fault"}
"""Of an ``AttemptEnd``: who holds one and any of these has them twice."""

MOST = 6
"""The forms that there may be: another one has to take the place of one of these."""


def forms_of(module, tree):
    """Name the classes of a module that say how an attempt or its process ended: the word for it, and its exit. One
    that holds an ``AttemptEnd`` says no more of it than that does.
    """
    for node in nodes(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        fields = {each.target.id: ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)}
        names = re.findall(r"\w+", " ".join(fields.values()))
        tells = "Ending" in names and "exit_code" in fields
        tells_again = "AttemptEnd" in names and PARTS & fields.keys()
        if tells or tells_again or {"code", "signal", "stopped"} <= fields.keys():
            yield f"{module}.{node.name}"


def messages_of(text):
    """Name the messages of a proto file that say it."""
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        if re.search(r"^  ProcessExit ", body, re.MULTILINE):
            yield f"v1.{name}"


def listed():
    """Return what the section of the page names in code, by the ends of the names."""
    section = PAGE.read_text().partition("## One life of an attempt")[2].partition("\n## ")[0]
    return re.findall(r"`([\w.]+)`", section)


def test_the_forms_are_those_of_the_page(sources):
    """Whoever adds a class or message that tells an end again says on the page what it is for; none is named that is
    gone.
    """
    ours = [source for source in sources if source.module.startswith("iriscw.")]
    found = [name.removeprefix("iriscw.") for source in ours for name in forms_of(source.module, source.tree)]
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        found += messages_of(path.read_text())
    named = listed()
    assert len(found) <= MOST
    assert [name for name in found if name not in named and name.rpartition(".")[2] not in named] == []
    assert [name for name in named if re.fullmatch(r"[\w.]+\.[A-Z]\w+", name) and name not in (*found, *WORDS)] == []


def test_a_planted_form_is_found():
    """The search sees a class that says an end once more."""
    text = "class Report:\n    ending: Ending | None\n    exit_code: int | None"
    assert list(forms_of("iriscw.jobs.model", ast.parse(text))) == ["iriscw.jobs.model.Report"]
    text = "class Report:\n    end: AttemptEnd | None\n    reason: str"
    assert list(forms_of("iriscw.jobs.model", ast.parse(text))) == ["iriscw.jobs.model.Report"]
    text = "class Report:\n    end: AttemptEnd | None\n    uid: str"
    assert list(forms_of("iriscw.jobs.model", ast.parse(text))) == []
    assert list(messages_of("message Gone {\n  ProcessExit exit = 1;\n}\n")) == ["v1.Gone"]
