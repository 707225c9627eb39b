"""Write the signatures of ``iriscw.blocking`` anew, from those of the asynchronous names that they stand for.

``python tests/blocking_signatures.py`` rewrites the functions of ``PAIRS`` in ``blocking.py``, and in the files of
``APART``: parameters, annotations and defaults are those of the original, the first line of the docstring and what
becomes of the result stay. A test compares them (``tests/test_blocking_signatures.py``), so that a new option cannot be
forgotten.
"""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "iriscw"
BLOCKING = SOURCE / "blocking.py"
APART = {"Job": SOURCE / "client" / "blocking_job.py"}
"""Classes that have a file of their own."""

PAIRS = {
    ("Client", "submit"): "client/client.py",
    ("Client", "map"): "client/arrays.py:ArrayJobs",
    ("Client", "create_actor"): "client/creating.py:ActorCreation",
    ("Client", "create_actor_group"): "client/creating.py:ActorCreation",
    ("Client", "checkpoint"): "client/freezing.py:FreezingCalls",
    ("Client", "suspend"): "client/freezing.py:FreezingCalls",
    ("Client", "resume"): "client/freezing.py:FreezingCalls",
    ("Client", "restore"): "client/freezing.py:FreezingCalls",
    ("Client", "move"): "client/freezing.py:FreezingCalls",
    ("Client", "verify"): "client/freezing.py:FreezingCalls",
    ("Client", "checkpoints"): "client/freezing.py:FreezingCalls",
    ("Client", "call"): "client/client.py",
    ("Job", "exec"): "client/job.py",
    ("Job", "logs"): "client/job.py",
    ("Job", "tasks"): "client/job.py",
    ("Cluster", "local"): "cluster.py",
    ("Cluster", "open"): "cluster.py",
    ("", "connect_kubernetes"): "kubernetes.py",
}
"""Which function of the blocking module, by its class, stands for the one of the same name in which file (and class,
where that is called otherwise)."""

RENAMED = {"Checkpoint": "_nodes.Checkpoint"}
"""Names that are written otherwise in the blocking module."""

TARGETS = {
    "Client": "self._client",
    "Job": "self._job",
    "Cluster": "_cluster.Cluster",
    "": "_kubernetes",
}
"""On what the original is called."""


class _Renaming(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.parse(RENAMED[node.id], mode="eval").body if node.id in RENAMED else node


def find(path, owner, name):
    """Return the definition of a function, or of a method of a class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if owner:
        body = next(each for each in body if isinstance(each, ast.ClassDef) and each.name == owner).body
    return next(each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name)


def wanted(owner, name):
    """Return the parameters that the blocking function should have."""
    file, _, its_owner = PAIRS[owner, name].partition(":")
    return _Renaming().visit(find(SOURCE / file, its_owner or owner, name).args)


def call(owner, name):
    """Return the call of the original with all that the blocking function was given."""
    its = wanted(owner, name)
    first = [] if not owner else its.args[:1]
    plain = [each.arg for each in its.args[len(first) :]]
    plain = [f"{each}._job if isinstance({each}, Job) else {each}" if each == "job" else each for each in plain]
    words = [*plain, *([f"*{its.vararg.arg}"] if its.vararg else [])]
    words += [f"{each.arg}={each.arg}" for each in its.kwonlyargs]
    words += [f"**{its.kwarg.arg}"] if its.kwarg else []
    return f"{TARGETS[owner]}.{name}({', '.join(words)})"


class _Calling(ast.NodeTransformer):
    """Replace the call of the original, wherever the function makes it."""

    def __init__(self, owner, name):
        self.function, self.made = f"{TARGETS[owner]}.{name}", call(owner, name)

    def visit_Call(self, node):
        if ast.unparse(node.func) == self.function:
            return ast.parse(self.made, mode="eval").body
        return self.generic_visit(node)


def rewritten(owner, name):
    """Return the blocking function as it should be, and as it is."""
    file = APART.get(owner, BLOCKING)
    there = find(file, owner, name)
    made = _Calling(owner, name).visit(find(file, owner, name))
    made.args = wanted(owner, name)
    return made, there


def main():
    """Rewrite the files."""
    for owner, name in PAIRS:
        made, there = rewritten(owner, name)
        file = APART.get(owner, BLOCKING)
        lines = file.read_text(encoding="utf-8").splitlines()
        begin = min([there.lineno, *(each.lineno for each in there.decorator_list)]) - 1
        indent = " " * there.col_offset
        text = [indent + line for line in ast.unparse(made).splitlines()]
        file.write_text("\n".join([*lines[:begin], *text, *lines[there.end_lineno :], ""]), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", BLOCKING, *APART.values()], check=True)


if __name__ == "__main__":
    main()
