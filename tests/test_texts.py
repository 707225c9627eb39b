"""The texts of errors, in one file for people to read: ``python tests/test_texts.py`` writes it anew.

No other test compares prose. A changed word is a changed line of ``texts.txt``, and is reviewed there as text.
"""

import ast
import difflib
import functools
import itertools
from pathlib import Path

from parsed import nodes, of_package

GOLDEN = Path(__file__).with_name("texts.txt")
HEAD = """\
What errors say, by module; `python tests/test_texts.py` writes this file from the source.
{name} is filled in, {} as well, and {a|b} is one of two.

"""


def _name_of(node):
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def modules():
    """Return the tree of each module that people wrote, by its name below ``iriscw``."""
    return {source.module.removeprefix("iriscw."): source.tree for source in of_package()}


@functools.cache
def errors():
    """Return the names of all classes of errors: ours, and click's."""
    bases = {}
    for tree in modules().values():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(map(_name_of, node.bases))
    found = {"IriscwError", "ClickException", "UsageError", "BadParameter"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def templates(node, texts):
    """Return what an expression may read as: one template for each text that it names or chooses."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(filled(part, texts) for part in parts)]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if templates(left, texts):
            ends = templates(right, texts) or [f"{{{_name_of(right)}}}"]
            return [begin + end for begin in templates(left, texts) for end in ends]
        case ast.BinOp(left=left, op=ast.Mod()):
            return templates(left, texts)
        case ast.IfExp(body=one, orelse=other):
            return [*templates(one, texts), *templates(other, texts)]
        case ast.Name(id=name):
            return texts.get(name, [])
        case _:
            return []


def filled(part, texts):
    """Return how a part of a template is written."""
    match part:
        case ast.Constant(value=text):
            return text
        case ast.FormattedValue(value=ast.IfExp() as choice):
            return f"{{{'|'.join(templates(choice, texts))}}}"
        case ast.FormattedValue(value=value):
            return f"{{{_name_of(value)}}}"


def texts_in(scope, known):
    """Return the templates that the names of a scope are assigned, by name, beside those already known."""
    found = {}
    for node in nodes(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.setdefault(_name_of(target), []).extend(templates(node.value, known))
    return {**known, **{name: said for name, said in found.items() if said}}


def said_in(tree):
    """Yield who says it and what it says, for each text of an error in a module.

    That is each error that is made, raised or not, and whatever else a ``raise`` calls to make one.
    """
    at_top = ast.Module([node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)], [])
    known = texts_in(at_top, {})
    functions = [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in (tree, *functions):
        texts = texts_in(scope, known) if scope is not tree else known
        for node in nodes(scope):
            raised = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(raised, ast.Call):
                continue
            name = _name_of(raised.func)
            if isinstance(node, ast.Raise) or name in errors():
                for said in itertools.chain(raised.args, (word.value for word in raised.keywords)):
                    yield from ((name, text) for text in templates(said, texts) if " " in text)


def written():
    """Return what the file has to say."""
    parts = []
    for module, tree in modules().items():
        if lines := sorted({f"  {name}: {' '.join(text.split())}" for name, text in said_in(tree)}):
            parts.append("\n".join((module, *lines)))
    return HEAD + "\n\n".join(parts) + "\n"


def test_the_texts_of_errors_are_as_reviewed():
    """What errors say is what the file says; a change shows as one, for whoever reads it."""
    then, now = GOLDEN.read_text(encoding="utf-8"), written()
    assert len(now.splitlines()) > 1000, "the search for texts is broken"
    changes = difflib.unified_diff(then.splitlines(), now.splitlines(), "texts.txt", "the source", lineterm="", n=1)
    assert then == now, "\n".join((*changes, "if that is what users shall read: python tests/test_texts.py"))


def test_texts_are_found_as_they_are_written():
    """Names, choices, sums and texts that a name has; what is one word is a value, not a text."""
    module = """
WHY = "because of it"
def f(self, name):
    text = f"no {name!r} in {self.place} of {g(1)}"
    kept = Gone(WHY)
    raise Gone(text + tail) if name else Gone("a", f"it {'is' if name else 'was'} so")
    raise _refused(404, "a choice" if name else "another choice")
"""
    errors().add("Gone")
    try:
        found = {*said_in(ast.parse(module))}
    finally:
        errors().discard("Gone")
    assert found == {
        ("Gone", "because of it"),
        ("Gone", "no {name} in {place} of {}{tail}"),
        ("Gone", "it {is|was} so"),
        ("_refused", "a choice"),
        ("_refused", "another choice"),
    }


if __name__ == "__main__":
    GOLDEN.write_text(written(), encoding="utf-8")
