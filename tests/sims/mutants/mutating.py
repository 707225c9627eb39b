"""Small bugs made from the source of decisions: one change of one place at a time.

A mutation is named by where it is and what it does: ``fleet/slices/slice.py:move:command:2`` is the second command that
``move`` can forget. The numbers count within a function, so that a change of another function renames nothing. Texts
(f-strings, reasons, docstrings, a choice between two) and assertions (``strict=True`` is one) are left alone: the first
decide nothing, the second are checks.

===========  =====================================================================================
operator     what it does
===========  =====================================================================================
``row``      a row of a table of transitions is dropped, leads elsewhere, or leads on where it should not
``entry``    an entry of another table is dropped (what is done on a message), or is its neighbour's (all others)
``guard``    a condition is negated
``compare``  a comparison is off by one, or negated where it is no condition that is negated as a whole
``command``  a command (a message, a timer set or cancelled, a call of the cloud) is not given
``record``   a record is not written
``assign``   a change of the state is forgotten
``count``    a counter, or a generation, is not increased
``call``     a step that is only there for its effect is left out
``flag``     True for False
``bound``    the larger for the smaller
``sign``     plus for minus
===========  =====================================================================================
"""

import ast
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

SOURCES = Path(__file__).resolve().parents[3] / "src" / "iriscw"

ROOMS = ("fleet", "fleet/groups", "fleet/slices", "jobs", "jobs/job", "jobs/links", "jobs/scheduling")

NO_DECISIONS = (
    *("__init__", "actor", "errors", "messages", "model", "ports", "reasons", "settings", "signals", "views"),
    "jobs/records",
)
"""Rooms that decide nothing: values, assembly, what only words things for people."""


def _modules() -> tuple[str, ...]:
    names = [f"{room}/{path.stem}" for room in ROOMS for path in sorted((SOURCES / room).glob("*.py"))]
    return tuple(f"{name}.py" for name in names if not {name, name.rpartition("/")[2]} & {*NO_DECISIONS})


MODULES = _modules()
"""What is mutated: everything that decides."""

SKIPPED_FUNCTIONS = ("check", "__repr__")
"""Assertions about a state stand in functions of these names."""

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn}
NEGATED[ast.NotIn] = ast.In


@attrs.frozen
class Mutation:
    """One small bug. ``text`` says what stands there and what it becomes."""

    module: str
    function: str
    operator: str
    number: int
    line: int
    text: str

    @property
    def name(self) -> str:
        """What it is called, in lists and on the command line."""
        return f"{self.module}:{self.function}:{self.operator}:{self.number}"


CONTROLS = tuple(
    Mutation(f"{feature}/lifecycle.py", "", "control", 0, 0, "no bug at all") for feature in ("fleet", "jobs")
)
"""Change nothing: whoever notices one is wrong about all others of its feature."""


@attrs.frozen
class Site:
    """A place that can be changed, in a tree that is there to be changed."""

    function: str
    operator: str
    line: int
    text: str
    change: Callable[[], None]


def mutations(module: str, text: str | None = None) -> list[Mutation]:
    """Return all mutations of a module, in the order of its lines."""
    return [*_of_source(module)] if text is None else _of_text(module, text)


@functools.cache
def _of_source(module: str) -> list[Mutation]:
    return _of_text(module, _text(module, None))


def _of_text(module: str, text: str) -> list[Mutation]:
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for site in _sites(ast.parse(text)):
        numbers[site.function, site.operator] += 1
        number = numbers[site.function, site.operator]
        found.append(Mutation(module, site.function, site.operator, number, site.line, site.text))
    return found


def all_mutations() -> list[Mutation]:
    """Return all mutations of all modules, always in the same order."""
    return [mutation for module in MODULES for mutation in mutations(module)]


def sample(seed: int, number: int) -> list[Mutation]:
    """Draw about ``number`` mutations: of each module in proportion to what it has, and at least one.

    Each stands in a line by its own name: who edits one function changes what is drawn there, and next to nothing else.
    A sample that was judged yesterday says something about today's.
    """
    every = {module: mutations(module) for module in MODULES}
    total = sum(map(len, every.values()))
    drawn = [
        mutation
        for found in every.values()
        for mutation in in_line(found, seed)[: max(1, round(number * len(found) / total))]
    ]
    return in_line(drawn, seed)


def in_line(found: list[Mutation], seed: int) -> list[Mutation]:
    """Put mutations in an order that depends on nothing but their names and the seed."""
    return sorted(found, key=lambda each: hashlib.sha256(f"{seed} {each.name}".encode()).digest())


def mutate(mutation: Mutation, text: str | None = None) -> ast.Module:
    """Give the tree of the module with this one bug in it.

    Raises:
        LookupError: the module has no such place.
    """
    tree = ast.parse(_text(mutation.module, text))
    if mutation in CONTROLS:
        return tree
    number = 0
    for site in _sites(tree):
        number += (site.function, site.operator) == (mutation.function, mutation.operator)
        if number == mutation.number:
            site.change()
            return ast.fix_missing_locations(tree)
    raise LookupError(mutation.name)


def _text(module: str, text: str | None) -> str:
    return (SOURCES / module).read_text(encoding="utf-8") if text is None else text


def _sites(tree: ast.Module) -> list[Site]:
    finder = _Finder(tree)
    finder.visit(tree)
    return sorted(finder.found, key=lambda site: site.line)


def _states_by_alias(tree: ast.Module) -> dict[str, list[str]]:
    """Return the members of enumerations that tables name, by the name of the enumeration there."""
    members: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr.isupper():
            known = members.setdefault(node.value.id, [])
            if node.attr not in known:
                known.append(node.attr)
    return members


class _Finder(ast.NodeVisitor):
    """Collects the places of one tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[Site] = []
        self._names: list[str] = []
        self._conditions: list[ast.expr] = []
        """Conditions, and parts of them, that are negated as a whole."""
        self._states = _states_by_alias(tree)

    def _add(self, operator: str, node: ast.AST, becomes: str, change: Callable[[], None]) -> None:
        before = ast.unparse(node).partition("\n")[0]
        function = ".".join(self._names) or "(module)"
        self.found.append(Site(function, operator, node.lineno, f"{before}  ->  {becomes}", change))

    # Where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Go into methods; the fields of values are no decisions."""
        self._names.append(node.name)
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                self.visit(each)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Go into the body; decorators and defaults stay as they are."""
        if node.name in SKIPPED_FUNCTIONS:
            return
        self._names.append(node.name)
        for index, each in enumerate(node.body):
            self._statement(node.body, index, each)
            self.visit(each)
        self._names.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave checks alone."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave ``strict`` alone: that what is zipped has one length is checked, not decided."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def generic_visit(self, node: ast.AST) -> None:
        """Look at the statements of each body, then at what is inside."""
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and self._names:
                for index, statement in enumerate(body):
                    self._statement(body, index, statement)
        super().generic_visit(node)

    # Statements

    def _statement(self, body: list[ast.stmt], index: int, node: ast.stmt) -> None:
        def drop() -> None:
            body[index] = ast.copy_location(ast.Pass(), node)

        operator = _operator_of(node)
        if operator == "row":
            assert isinstance(node, ast.Assign)
            self._row(node)
            if not isinstance(node.value, ast.Attribute):
                return  # the reason why nothing follows: without it another one stands there
        if operator:
            self._add(operator, node, "nothing", drop)

    def _row(self, node: ast.Assign) -> None:
        """A row of a table leads elsewhere, or on where it should not."""
        value = node.value
        state = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
        key = ast.unparse(node.targets[0])
        alias = value.value.id if state else next((name for name in self._states if f"{name}." in key), "")
        members = self._states.get(alias, [])
        if not members:
            return
        member = members[(members.index(value.attr) + 1) % len(members)] if state else members[0]
        becomes = ast.parse(f"{alias}.{member}", mode="eval").body

        def change() -> None:
            node.value = becomes

        self._add("row", node, ast.unparse(becomes), change)

    # Conditions

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition."""
        self._guard(node, "test")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition, unless it only chooses between two texts."""
        if _is_text(node.body) and _is_text(node.orelse):
            return
        self._guard(node, "test")
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        """Negate the guard."""
        if node.guard is not None:
            self._guard(node, "guard")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Negate the filter."""
        for index in range(len(node.ifs)):
            self._filter(node, index)
        self.generic_visit(node)

    def _filter(self, node: ast.comprehension, index: int) -> None:
        test = node.ifs[index]
        self._conditions.append(test)

        def change() -> None:
            node.ifs[index] = _not(test)

        self._add("guard", test, "its negation", change)

    def _guard(self, node: ast.AST, field: str) -> None:
        test = getattr(node, field)
        self._conditions.append(test)
        self._add("guard", test, "its negation", lambda: setattr(node, field, _not(test)))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Leave the parts of a condition to the negation of the whole."""
        if any(node is each for each in self._conditions):
            self._conditions += node.values
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Be off by one; negate what belongs to no condition that is negated."""
        for index, op in enumerate(node.ops):
            other = BOUNDARY.get(type(op)) or NEGATED[type(op)]
            if type(op) in BOUNDARY or not any(node is each for each in self._conditions):
                self._add(
                    "compare", node, other.__name__, lambda index=index, other=other: _set(node.ops, index, other())
                )
        self.generic_visit(node)

    # Values

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Forget a command of those that are given."""
        self._elements(node)
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        """Forget a command of those that are given."""
        self._elements(node)
        self.generic_visit(node)

    def _elements(self, node: ast.Tuple | ast.List) -> None:
        if not isinstance(node.ctx, ast.Load) or not self._names:
            return
        for element in node.elts:
            if isinstance(element, ast.Call | ast.Starred):
                operator = "record" if _is_record(element) else "command"
                self._add(operator, element, "nothing", lambda element=element: _without(node, element))

    def visit_Dict(self, node: ast.Dict) -> None:
        """Forget what is done on a message; take the neighbour's entry of any other table."""
        for index, key in enumerate(node.keys):
            other = node.values[(index + 1) % len(node.values)]
            becomes = ast.unparse(other).partition("\n")[0]
            if isinstance(key, ast.Name) and key.id[0].isupper():
                self._add("entry", key, "no entry", lambda index=index: _pop(node, index))
            elif isinstance(key, ast.Attribute) and ast.unparse(other) != ast.unparse(node.values[index]):
                self._add("entry", key, becomes, lambda index=index, other=other: _set(node.values, index, other))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Exchange True and False."""
        if isinstance(node.value, bool) and self._names:
            self._add("flag", node, str(not node.value), lambda: setattr(node, "value", not node.value))

    def visit_Call(self, node: ast.Call) -> None:
        """Exchange min and max."""
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("min", "max"):
            other = {"min": "max", "max": "min"}[function.id]
            self._add("bound", node, other, lambda: setattr(function, "id", other))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Exchange plus and minus between plain numbers."""
        plain = (ast.Name, ast.Attribute, ast.Constant)
        numbers = isinstance(node.left, plain) and isinstance(node.right, plain) and "commands" not in ast.unparse(node)
        if isinstance(node.op, ast.Add | ast.Sub) and numbers:
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            self._add("sign", node, type(other).__name__, lambda: setattr(node, "op", other))
        self.generic_visit(node)


def _operator_of(node: ast.stmt) -> str:
    """Say what it means to leave a statement out; empty if that is of no interest."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id="rows"))]):
            return "row"
        case ast.Assign(targets=[ast.Attribute(attr="reason")]):
            return ""  # a text
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            return "assign"
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Attribute(), *_])]):
            return "assign"
        case ast.AugAssign(target=target, value=ast.Constant()):
            return "count" if isinstance(target, ast.Attribute | ast.Subscript) else ""
        case ast.AugAssign(target=target):
            name = ast.unparse(target)
            return "record" if "record" in name else "command" if "command" in name else "assign"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            return "command"
        case ast.Expr(value=ast.Call(func=called)):
            name = ast.unparse(called)
            if "record" in name or (name.endswith("append") and _is_record(node.value.args[0])):
                return "record"
            return "command" if "command" in name else "call"
    return ""


RECORD_NAMES = ("Requested", "Created", "Doomed", "Deleted", "Accepted", "Shown", "Finished", "Superseded", "Forgotten")
JOB_RECORDS = ("AttemptPlaced", "AttemptAdvanced", "AttemptOverran", "AttemptEnded", "LogsSettled", "WorkerSuspected")
ALL_RECORDS = (*JOB_RECORDS, "WorkerReturned", "VerdictReached", "JobEnded")


def _is_record(node: ast.AST) -> bool:
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
    return name.endswith(RECORD_NAMES) or name.endswith(ALL_RECORDS) or "record" in name


def _is_text(node: ast.AST) -> bool:
    """Tell whether this is words for people: two words, or one that is put together; a single word may be a name."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and (" " in node.value or not node.value)
    )


def _not(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _set(values: list[ast.AST], index: int, value: ast.AST) -> None:
    values[index] = value


def _without(node: ast.Tuple | ast.List, element: ast.expr) -> None:
    node.elts = [each for each in node.elts if each is not element]


def _pop(node: ast.Dict, index: int) -> None:
    del node.keys[index]
    del node.values[index]


def by_name(names: list[str]) -> Iterator[Mutation]:
    """Yield the mutations of these names.

    Raises:
        LookupError: there is none of that name.
    """
    known = {mutation.name: mutation for mutation in all_mutations()}
    for name in names:
        if name not in known:
            raise LookupError(f"no mutation is called {name}")
        yield known[name]
