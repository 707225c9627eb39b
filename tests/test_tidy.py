"""The house rules as a test: what no source of ours does, however well it works.

As in ``test_layers.py``, which has the rules about imports and purity, every rule is a function from a module's
name and tree to violations, and planted offences prove that it bites.
"""

import ast
import functools
import re

import pytest

from garbage import lasting
from parsed import nodes

FILE_LIMIT = 700
"""Lines of a source file. The normal case is 150 to 300; the largest file of trio's core has 2,900."""

FUNCTION_LIMIT = 80
"""Lines of a function, docstring included: what fits on a tall screen. TigerBeetle's limit is 70."""

OWN_BOUNDS = (
    "tests/profiles.py",
    "tests/test_profiles.py",
    "tests/runtime/mutants/hunt.py",
    "tests/sims/mutants/judging.py",
)
"""Where a bound of Hypothesis is set: for all tests, and in two programs that try bugs by the hundred."""

MATCHERS = ("raises", "warns", "RaisesExc", "RaisesGroup", "group_contains", "deprecated_call")
"""What compares the text of an error, or of a warning, if it is given ``match``."""

VAGUE_NAME = re.compile(r"(^|_)(manager|handler|helper|util|common|misc)s?(_|$)")
ONE_MACHINE = re.compile(r"(?<![\w.])/(root|work)/")
GIVES = re.compile(r"Give (?:what|who|how|where|which|when|(?:the|all|each)\b(?![\w ]* (?:to|its|his|back|up)\b))\b")
UNUSED = re.compile(
    r"(?<!there )\b(?:is|was) no (?:name|id|folder|file|plain|address|number|program|token|plan|pod|list|object)\b"
    r"(?! (?:any|at|left))|\b(?:a|the|its|this|no|another) leave(?= (?:to|is|was|that|of|by|for)\b)"
    r"|\bleave (?:to (?:go on|come back)|for one thaw)\b",
    re.IGNORECASE,
)
FRAGMENT = re.compile(r"\d{3,}\.(added|changed|deprecated|removed|fixed|security)\.md")


def _is_below(module, package):
    return f"{module}.".startswith(f"{package}.")


# A dozen rules ask about each of two thousand files, one file after the other: what is found in one is kept that long.
_kept = functools.lru_cache(maxsize=500)


@_kept
def _nodes(tree):
    return nodes(tree)


def _dotted(called):
    """Return what is called: names with dots between them, as written; what else stands before them is left out."""
    names = []
    while isinstance(called, ast.Attribute):
        names.append(called.attr)
        called = called.value
    return ".".join((called.id if isinstance(called, ast.Name) else "", *reversed(names)))


@_kept
def _calls(tree):
    return [(node, _dotted(node.func)) for node in _nodes(tree) if isinstance(node, ast.Call)]


@_kept
def _functions(tree):
    return [node for node in _nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _is_message_class(node):
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(decorator).partition("(")[0].rpartition(".")[2] == "message" for decorator in node.decorator_list
    )


def message_classes(trees):
    """Return the names of all classes declared with ``@message``."""
    return {node.name for tree in trees for node in _nodes(tree) if _is_message_class(node)}


def check_message_assignment(module, tree, messages=()):
    """Find assignments to a message: its sender, a trace and a journal may still hold it."""
    messages = {*messages, *message_classes([tree])}
    for function in _functions(tree):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        watched = {
            argument.arg
            for argument in arguments
            if argument.arg in ("message", "command", "event")
            or (argument.annotation and messages & {*re.findall(r"\w+", ast.unparse(argument.annotation))})
        }
        if not watched:
            continue
        for node in _nodes(function):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) in watched:
                    yield f"{module}:{node.lineno}: assignment to the message {ast.unparse(target)}"
        for node, called in _calls(function):
            if called in ("setattr", "object.__setattr__") and ast.unparse(node.args[0]) in watched:
                yield f"{module}:{node.lineno}: assignment to a message through {called}"


def check_assert_true(module, tree):
    """Find assertions that cannot fail."""
    for node in _nodes(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            yield f"{module}:{node.lineno}: an assertion that cannot fail"


def _is_nothing(statement):
    if isinstance(statement, ast.Pass | ast.Continue):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def check_swallowed(module, tree):
    """Find errors that vanish: a bare except, or a broad one whose body does nothing."""
    broad = ("Exception", "BaseException")
    for node in _nodes(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = re.findall(r"\w+", ast.unparse(node.type)) if node.type else []
            if node.type is None:
                yield f"{module}:{node.lineno}: a bare except"
            elif {*broad} & {*caught} and all(map(_is_nothing, node.body)):
                yield f"{module}:{node.lineno}: a swallowed exception"
    for node, called in _calls(tree):
        if called.endswith("suppress") and {*broad} & {ast.unparse(argument) for argument in node.args}:
            yield f"{module}:{node.lineno}: a swallowed exception"


def check_shell(module, tree):
    """Find commands given as a shell string."""
    for node, called in _calls(tree):
        shell = any(word.arg == "shell" and getattr(word.value, "value", 1) for word in node.keywords)
        if shell or called in ("os.system", "os.popen") or called.endswith("create_subprocess_shell"):
            yield f"{module}:{node.lineno}: a shell string; pass a list of arguments"


def check_sleep(module, tree):
    """Find ``time.sleep``: there is an event to wait for."""
    for node, called in _calls(tree):
        if called == "time.sleep":
            yield f"{module}:{node.lineno}: time.sleep"
    for node in _nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in [n.name for n in node.names]:
            yield f"{module}:{node.lineno}: time.sleep"


def check_pickle(module, tree):
    """Find unpickling outside ``task``: it runs the sender's code, and only the user's process may."""
    if _is_below(module, "iriscw.task"):
        return
    for node, called in _calls(tree):
        if re.fullmatch(r"(c?loud)?pickle\.(loads?|Unpickler)", called):
            yield f"{module}:{node.lineno}: {called} outside of iriscw.task"
    for node in _nodes(tree):
        names = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else []
        if names and node.module in ("pickle", "cloudpickle") and {"load", "loads", "Unpickler"} & {*names}:
            yield f"{module}:{node.lineno}: unpickling outside of iriscw.task"


def check_environment(module, tree):
    """Find writes to ``os.environ``: the host's environment is the host's."""
    changing = r"(os\.)?environ(b)?\.(update|setdefault|pop|popitem|clear|__setitem__)|os\.(putenv|unsetenv)"
    for node in _nodes(tree):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.AST) and re.match(r"(os\.)?environb?\[|os\.environb?$", ast.unparse(target)):
                yield f"{module}:{node.lineno}: a write to os.environ"
    for node, called in _calls(tree):
        if re.fullmatch(changing, called):
            yield f"{module}:{node.lineno}: a write to os.environ"


def check_print(module, tree):
    """Find ``print`` outside of the command line: a library's host owns the terminal."""
    if _is_below(module, "iriscw.cli"):
        return
    for node, called in _calls(tree):
        if called == "print":
            yield f"{module}:{node.lineno}: print() outside of iriscw.cli"


def check_module_docstring(module, tree):
    """Find modules that do not say what they are for; private and empty ones need not."""
    if tree.body and not module.rpartition(".")[2].startswith("_") and not ast.get_docstring(tree):
        yield f"{module}: no docstring"


def check_one_machine(module, tree):
    """Find paths that exist on one machine only."""
    for node in _nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ONE_MACHINE.search(node.value):
            yield f"{module}:{node.lineno}: a path of one machine"


def check_function_length(module, tree):
    """Find functions that do not fit on a screen; what is said of their arguments does not count."""
    for function in _functions(tree):
        length = function.end_lineno - function.lineno + 1
        if ast.get_docstring(function) is not None:
            length -= function.body[0].end_lineno - function.body[0].lineno + 1
        if length > FUNCTION_LIMIT:
            yield f"{module}:{function.lineno}: {function.name} has {length} lines, limit {FUNCTION_LIMIT}"


def check_file_name(module, tree):
    """Find names that say nothing."""
    if any(VAGUE_NAME.search(part) for part in module.split(".")):
        yield f"{module}: a vague name; say what it does"


def check_test_docstring(module, tree):
    """Find tests that do not state the behaviour they check."""
    for function in _functions(tree):
        if function.name.startswith("test_") and not ast.get_docstring(function):
            yield f"{module}:{function.lineno}: {function.name} has no docstring"


def check_words(module, tree):
    """Find words that docs/internals/glossary.md replaces: in docstrings, and in whatever else is text."""
    for function in _functions(tree):
        said = ast.get_docstring(function) or ""
        if GIVES.match(said) and any(
            isinstance(each, ast.Return | ast.Yield) and each.value for each in _nodes(function)
        ):
            yield f"{module}:{function.lineno}: {said.splitlines()[0]!r}: say what it returns or yields"
    for node in _nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := UNUSED.search(node.value)):
            yield f"{module}:{node.lineno}: {found[0]!r}: see docs/internals/glossary.md"


def check_bounds(module, tree):
    """Find bounds of tests that hold in a soak as well, and state machines that no soak runs."""
    if module in OWN_BOUNDS:
        return
    for node, called in _calls(tree):
        if any(word.arg == "max_examples" for word in node.keywords):
            yield f"{module}:{node.lineno}: {called}(max_examples=...); say profiles.examples(...)"
    for function in _functions(tree):
        marks = {ast.unparse(decorator) for decorator in function.decorator_list}
        calls = {called for _, called in _calls(function)}
        if "run_state_machine_as_test" in calls and not marks & {"pytest.mark.hypothesis", "pytest.mark.soak"}:
            yield f"{module}:{function.lineno}: {function.name} runs a state machine without pytest.mark.hypothesis"


def check_prose(module, tree):
    """Find tests that compare prose: errors are told apart by class, attributes, and what ``raised.that`` can ask."""
    for node, called in _calls(tree):
        words = {word.arg: word.value for word in node.keywords}
        if called.rpartition(".")[2] in MATCHERS and "match" in words:
            yield f"{module}:{node.lineno}: {called}(match=...) compares prose; say check=raised.that(...)"
        if called == "that" and "names" in words:
            for each in _nodes(words["names"]):
                if isinstance(each, ast.Constant) and " " in str(each.value):
                    yield f"{module}:{node.lineno}: {each.value!r} is prose, and not what an error names"


OWN_UNITS = (
    "iriscw.runtime.vocabulary",
    *("iriscw.config.defaults", "iriscw.config.quantities", "iriscw.client.submission", "iriscw.client.wire"),
)
"""The one place, and those that must not see it."""


def check_units(module, tree):
    """Find units of time that are defined anew: ``runtime.vocabulary`` has them."""
    for node in tree.body if module not in OWN_UNITS else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and value.value in (10**6, 10**9):
            for target in targets:
                if isinstance(target, ast.Name) and re.search(r"SECOND|NS_PER", target.id):
                    yield f"{module}:{node.lineno}: {target.id} is in runtime.vocabulary"


CHECKS = (
    check_units,
    check_assert_true,
    check_swallowed,
    check_shell,
    check_sleep,
    check_pickle,
    check_environment,
    check_print,
    check_module_docstring,
    check_one_machine,
    check_function_length,
    check_file_name,
    check_words,
)


def _fail_with(violations):
    assert not violations, "\n" + "\n".join(violations)


def test_sources(sources):
    """No module of ours breaks a rule."""
    _fail_with([found for source in sources for check in CHECKS for found in check(source.module, source.tree)])


def test_messages_are_left_alone(sources):
    """No function assigns to a message it was given, whichever module declared its class."""
    messages = message_classes(source.tree for source in sources)
    assert {"Tell", "Completed"} <= messages, "the search for messages is broken"
    _fail_with([f for s in sources for f in check_message_assignment(s.module, s.tree, messages)])


def test_file_lengths(sources):
    """No source file is longer than the limit."""
    _fail_with([f"{s.path}: {s.lines} lines, limit {FILE_LIMIT}" for s in sources if s.lines > FILE_LIMIT])


NAMED_ALIKE = (
    *("Client", "Cluster", "Connecting", "Job"),  # of iriscw.blocking: each is the other one, for scripts
    *("ControllerStream", "Session", "Due", "Resync"),
    *("Attempt", "AttemptEnded", "AttemptEquipped", "AttemptSuspended", "CheckpointDropped"),
    *("Finding", "Order", "Orders", "Reply", "ResultMissing", "StopOrder", "Unavailable"),
)
"""What several classes are called: twins of the links of workers and agents, and of records on either side of one.
None comes to it: a reader who finds a name has to know which class is meant."""


def test_no_two_classes_of_one_name(sources):
    """Each class has a name of its own, but for those that are listed."""
    homes = {}
    for source in sources:
        if not source.module.startswith("iriscw.") or ".proto." in source.module:
            continue
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(source.module)
    alike = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert {name: modules for name, modules in alike.items() if name not in NAMED_ALIKE} == {}
    assert {*NAMED_ALIKE} <= {*alike}, "a name that is one's own by now leaves the list"


def test_tests(repository):
    """The tests keep the rules that are about tests."""
    checks = (check_test_docstring, check_assert_true, check_swallowed, check_bounds, check_prose)
    found = []
    with lasting():  # nothing of a tree is garbage for the collector
        for path in sorted((repository / "tests").rglob("*.py")):
            name, tree = str(path.relative_to(repository)), ast.parse(path.read_text(encoding="utf-8"))
            found += [each for check in checks for each in check(name, tree)]
    _fail_with(found)


def test_no_path_of_one_machine(repository):
    """No text of the repository names a path that exists on one machine only."""
    kinds = ("*.py", "*.md", "*.toml", "*.yaml", "*.yml", "*.proto", "Makefile", "run", "Dockerfile*")
    folders = [repository / name for name in ("src", "sims", "protos", "docs", "tests", ".ci")]
    files = {path for folder in folders for kind in kinds for path in folder.rglob(kind)}
    files |= {path for kind in kinds for path in repository.glob(kind)}
    files -= {repository / "tests" / "test_tidy.py"}
    found = [
        f"{path.relative_to(repository)}:{number}: {line.strip()[:80]}"
        for path in sorted(files)
        if "_build" not in path.parts and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ONE_MACHINE.search(line)
    ]
    _fail_with(found)


def test_changelog_fragments(repository):
    """Each fragment under docs/changes is named number.kind.md, as docs/changes/README.md says."""
    names = [path.name for path in (repository / "docs" / "changes").iterdir() if path.name != "README.md"]
    _fail_with([name for name in names if not FRAGMENT.fullmatch(name)])


LONG = "def f():\n" + "    x = 1\n" * FUNCTION_LIMIT
PLANTED = [
    (check_message_assignment, "m", "def f(state, message, ctx): message.x = 1"),
    (check_message_assignment, "m", "def f(event): event.x += 1"),
    (check_message_assignment, "m", "def f(command): del command.x"),
    (check_message_assignment, "m", "@message\nclass Drain: pass\ndef f(it: Drain | None): it.x = 1"),
    (check_message_assignment, "m", "@v.message\nclass Drain: pass\ndef f(it: 'Drain'): it.x: int = 1"),
    (check_message_assignment, "m", "def f(message): object.__setattr__(message, 'x', 1)"),
    (check_assert_true, "m", "assert True"),
    (check_assert_true, "m", "assert 1, 'x'"),
    (check_swallowed, "m", "try: f()\nexcept: raise"),
    (check_swallowed, "m", "try: f()\nexcept Exception: pass"),
    (check_swallowed, "m", "try: f()\nexcept (ValueError, BaseException): ..."),
    (check_swallowed, "m", "for x in y:\n    try: f()\n    except Exception as e: continue"),
    (check_swallowed, "m", "with contextlib.suppress(Exception): f()"),
    (check_shell, "m", "subprocess.run('ls', shell=True)"),
    (check_shell, "m", "subprocess.run('ls', shell=flag)"),
    (check_shell, "m", "os.system('ls')"),
    (check_shell, "m", "asyncio.create_subprocess_shell('ls')"),
    (check_units, "m", "_SECOND = 1_000_000_000"),
    (check_units, "m", "MILLISECOND: Final = 1_000_000"),
    (check_sleep, "m", "time.sleep(1)"),
    (check_sleep, "m", "from time import monotonic, sleep"),
    (check_pickle, "iriscw.jobs.wire", "pickle.loads(x)"),
    (check_pickle, "iriscw.client.job", "cloudpickle.load(x)"),
    (check_pickle, "iriscw.journal.codec", "from pickle import loads"),
    (check_environment, "m", "os.environ['X'] = '1'"),
    (check_environment, "m", "del os.environ['X']"),
    (check_environment, "m", "os.environ |= {}"),
    (check_environment, "m", "os.environ.update(x)"),
    (check_environment, "m", "environ.setdefault('X', '1')"),
    (check_environment, "m", "os.putenv('X', '1')"),
    (check_print, "iriscw.client.job", "print(1)"),
    (check_module_docstring, "m", "import x"),
    (check_one_machine, "m", "x = '/root/x'"),
    (check_one_machine, "m", "def f():\n    'see /work/x'"),
    (check_function_length, "m", LONG),
    (check_file_name, "iriscw.fleet.slice_manager", ""),
    (check_file_name, "iriscw.utils.text", ""),
    (check_words, "m", "def f():\n    'Give the sum.'\n    return 1"),
    (check_words, "m", "raise ValueError(f'{x} is no folder')"),
    (check_words, "m", "'Take the leave to go on.'"),
    (check_test_docstring, "m", "async def test_x(): assert y"),
    (check_prose, "m", "with pytest.raises(ValueError, match='is not a number'): f()"),
    (check_prose, "m", "x = raises(ValueError, match=why, check=that(names='n9'))"),
    (check_prose, "m", "assert caught.group_contains(ValueError, match='mine')"),
    (check_prose, "m", "with pytest.raises(ValueError, check=that(names=('n9', 'not a number'))): f()"),
    (check_bounds, "m", "@settings(max_examples=5)\ndef test_x(): f()"),
    (check_bounds, "m", "x = hypothesis.settings(QUICK, max_examples=few)"),
    (check_bounds, "m", "@pytest.mark.slow\ndef test_x(): run_state_machine_as_test(Model)"),
]


@pytest.mark.parametrize(("check", "module", "text"), PLANTED)
def test_planted_offence_is_found(check, module, text):
    """Each rule finds the offence it is there for, once."""
    assert len(list(check(module, ast.parse(text)))) == 1


ALLOWED = [
    (check_words, "m", "def f(bank):\n    'Give the money back.'\n    return bank.undo()\nx = 'there is no folder'"),
    (check_message_assignment, "m", "def f(state, message): state.x = message.x"),
    (check_swallowed, "m", "try: f()\nexcept Exception as e: report(e)"),
    (check_swallowed, "m", "try: f()\nexcept FileNotFoundError: pass"),
    (check_shell, "m", "subprocess.run(['ls'], shell=False)"),
    (check_sleep, "m", "anyio.sleep(1)"),
    (check_pickle, "iriscw.task.bootstrap", "cloudpickle.loads(x)"),
    (check_environment, "m", "x = os.environ['X']\nenviron = {**os.environ}"),
    (check_print, "iriscw.cli.demo", "print(1)"),
    (check_module_docstring, "m", ""),
    (check_one_machine, "m", "x = 'https://host/root/page'\ny = '/workspace/x'"),
    (check_function_length, "m", "def f():\n" + "    x = 1\n" * (FUNCTION_LIMIT - 1)),
    (check_function_length, "m", 'def f():\n    """Do.\n\n    It."""\n' + "    x = 1\n" * (FUNCTION_LIMIT - 1)),
    (check_file_name, "iriscw.jobs.commands", ""),
    (check_prose, "m", "with pytest.raises(ValueError, check=that(names=('n9', str(path)))): f()\nx = f(match='a b')"),
    (check_bounds, "m", "@examples(5)\ndef test_x(): f(settings(deadline=None))"),
    (check_bounds, "m", "@pytest.mark.hypothesis\ndef test_x(): run_state_machine_as_test(Model)"),
    (check_bounds, "tests/profiles.py", "settings(max_examples=5)"),
]


@pytest.mark.parametrize(("check", "module", "text"), ALLOWED)
def test_what_is_allowed_passes(check, module, text):
    """The rule leaves the neighbouring good case alone."""
    assert list(check(module, ast.parse(text))) == []


@pytest.mark.parametrize(("name", "good"), [("012.added.md", 1), ("12.added.md", 0), ("012.news.md", 0)])
def test_fragment_names(name, good):
    """The pattern for fragments takes number.kind.md with a known kind."""
    assert bool(FRAGMENT.fullmatch(name)) == bool(good)


def test_modules_beside_tests_have_names_of_their_own(repository):
    """They are imported by their bare names, from whichever folder comes first."""
    names = [path.name for path in (repository / "tests").rglob("*.py")]
    helpers = [name for name in names if not name.startswith(("test_", "__", "conftest")) and "_program" not in name]
    assert len(helpers) > 20
    assert [name for name in helpers if helpers.count(name) > 1] == []
