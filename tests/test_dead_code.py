"""Nothing in the product is there for nobody: a name that is defined is used by something other than its test.

By names, not by types: cheap, and blind to a dead name that is spelt like a living one. What is used by others only (by
programs that embed iriscw, by a library that calls it) stands in ``ALIVE`` with the reason. The simulator is a tool of
tests, so there a test is a use.
"""

import ast
import re
from pathlib import Path

import pytest

from parsed import nodes

ROOT = Path(__file__).parents[1]

ALIVE = {
    "iriscw.cloud.drivers.fake.FakeCloud.lose_node": "for tests of users' own policies and drivers",
    "iriscw.cloud.drivers.kube.drivers.open_drivers": "for programs that talk to a cluster by our drivers alone",
    "iriscw.cloud.drivers.local.interruptions.resume_node": "for tests of local clusters",
    "iriscw.cloud.drivers.local.interruptions.vanish_node": "for tests of local clusters",
    "iriscw.cluster.Cluster.worker_processes": "for programs that embed a cluster",
    "iriscw.freeze.verdicts.VERDICTS": "tests make the tables of docs/freezing.md of it",
    "iriscw.rpc.buffer.MessageBuffer.eof": "grpclib calls it",
    "iriscw.rpc.buffer.MessageBuffer.unacked_size": "grpclib calls it",
    "iriscw.worker.runtimes.inline.InlineRuntime": "for tests: the task runtime without processes",
}
"""Names that the product itself does not use, and who does."""

READ_BY_OTHERS = (
    "iriscw.cloud.drivers.local.interruptions",
    "iriscw.freeze.drivers.cuda.caller",
    "iriscw.freeze.verdicts",
    "iriscw.journal.conformance",
    "iriscw.testing.conformance.connection",
    "iriscw.objects.drivers.fake",
    "iriscw.worker.runtimes.inline",
)
"""Modules that nothing in the product imports: fakes, suites for drivers of others, tables for the documentation, and
``caller``, a program that is started by its path."""

WORD = re.compile(r"[A-Za-z_]\w*")
PATH = re.compile(r"iriscw(?:\.\w+)+")
LONGEST = 120
"""Characters of a string constant that may name something: longer ones are texts."""


def mentions(tree):
    """Yield what a module mentions without defining it: names as often as it does, and paths of modules."""
    for node in nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                for each in names:
                    yield from (each.name, f"{module}.{each.name}")
            case ast.keyword(arg=str(name)):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Constant(value=str(text)) if len(text) <= LONGEST:
                yield from WORD.findall(text)
                yield from PATH.findall(text)


def defined(body, where):
    """Yield each name that is defined at a module's top or in a class of it, with where it is.

    What a decorator registers is used by that, and a method of a class with a base may be what the base asks for.
    """
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=inner, bases=bases):
                yield name, f"{where}.{name}"
                yield from () if bases else defined(inner, f"{where}.{name}")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if all(is_plain(each) for each in node.decorator_list):
                    yield name, f"{where}.{name}"
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if where.rpartition(".")[2][:1].islower():  # fields of a class are written by their order, too
                    yield name, f"{where}.{name}"


def is_plain(decorator):
    """Whether a decorator leaves the use of a function to its name."""
    name = decorator.id if isinstance(decorator, ast.Name) else ""
    return name in ("property", "staticmethod", "classmethod", "overload", "contextmanager", "asynccontextmanager")


def dead(modules, uses, of_tests=()):
    """Yield where the names are that nothing uses.

    Args:
        modules: name and syntax tree of each.
        uses: what is mentioned where it counts.
        of_tests: what tests mention: uses of the simulator.
    """
    for module, tree in modules:
        simulator = module.startswith("iriscw_sims")
        for name, where in defined(tree.body, module):
            if name not in uses and not is_for_others(name) and not (simulator and name in of_tests):
                yield where


def is_for_others(name):
    """Whether a name is known to be called by others: Python itself, or pytest."""
    return name.startswith(("__", "test_")) or name.endswith("Conformance")


def texts_of(folder, *suffixes):
    """Return the texts of a folder's files."""
    return [path.read_text("utf-8") for suffix in suffixes for path in sorted((ROOT / folder).rglob(f"*{suffix}"))]


@pytest.fixture(scope="module")
def used(sources):
    """Everything that the product and its documentation mention."""
    pages = "\n".join([*texts_of("docs", ".md"), (ROOT / "pyproject.toml").read_text("utf-8")])
    found = dict.fromkeys([*WORD.findall(pages), *PATH.findall(pages)])
    for source in sources:
        found.update(dict.fromkeys(mentions(source.tree)))
    return found


def test_nothing_is_dead(sources, used):
    """What only tests use, or nobody, goes; what others use says by whom."""
    of_tests = dict.fromkeys(word for text in texts_of("tests", ".py") for word in WORD.findall(text))
    modules = [(source.module, source.tree) for source in sources]
    assert sorted(dead(modules, used, of_tests)) == sorted(ALIVE)


def test_no_module_is_without_a_reader(sources, used):
    """Each is imported by another, or named in a text: an entry point, a table of commands, ``-m``."""
    names = [source.module for source in sources if source.module.startswith("iriscw.")]
    packages = dict.fromkeys(name.rpartition(".")[0] for name in names)
    lonely = [name for name in names if name not in used and name not in packages and "__main__" not in name]
    assert lonely == sorted(READ_BY_OTHERS)


def test_an_offence_is_found():
    """A function, a method, a constant and a class that nobody uses, and nothing else."""
    text = """
LIMIT = 3
UNUSED = 4
class Kept:
    field: int = 0
    def used(self): return LIMIT
    def lost(self): return 0
class Child(Kept):
    def asked_for(self): return self
def main(): return Kept().used(), Child
def forgotten(): return main
@command
def registered(): pass
"""
    tree = ast.parse(text)
    assert sorted(dead([("m", tree)], dict.fromkeys(mentions(tree)))) == ["m.Kept.lost", "m.UNUSED", "m.forgotten"]
