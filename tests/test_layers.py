"""The architecture as a test: who may import whom, and which module may import what.

``docs/design.md`` gives the reasons. Three tables say it all: ``VISIBLE`` (packages), ``ROOMS`` (the rooms
inside a feature) and ``LIBRARIES`` (other people's code). All imports count: inside functions and under
TYPE_CHECKING too. Every check is a function from a module's name and tree to violations, so that planted offences
can prove that it bites.
"""

import ast
import functools
import subprocess
import sys
from typing import NamedTuple

import pytest

from parsed import nodes

FEATURES = (
    "inspection",
    "cloud",
    "freeze",
    "objects",
    "checkpoint",
    "nodes",
    "fleet",
    "jobs",
    "hosted",
    "seats",
    "workload",
    "operator",
)
"""From low to high: a feature sees those before it."""

EVERYWHERE = ("_errors", "_version")
"""Seen by all: they import nothing of ours themselves."""

ANY_FEATURE = ("*",)
EDGE = ("files", "packages", "processes", "resources", "bundles", "plugs")
"""Small services that touch the machine; they know no feature but the object store's port."""

VISIBLE = {
    "_errors": (),
    "errors": ("**",),
    "_publishing": (),
    "_version": (),
    "runtime": (),
    "journal": ("runtime.vocabulary", "files"),
    "files": (),
    "plugs": (),
    "processes": ("files",),
    "packages": ("files", "processes"),
    "resources": ("config.quantities",),
    "bundles": ("files", "config.quantities", "objects.model", "objects.ports"),
    "config": ("resources", "proto", "files", "*.model", "cloud.catalogue"),
    "proto": (),
    "rpc": ("proto", "files", "config.quantities"),
    "dialling": ("runtime.vocabulary", "rpc", "proto"),
    "task": ("files", "processes", "resources", "rpc", "proto", "client", "hosted", "bundles"),
    "client": (*EDGE, "rpc", "proto", "task", "hosted", "*.model", "*.messages", "*.errors", "*.wire"),
    "controller": (*EDGE, "runtime", "journal", "config", "rpc", "proto", *ANY_FEATURE),
    "agent": (*EDGE, "runtime", "journal", "config", "rpc", "dialling", "proto", *ANY_FEATURE),
    "worker": (*EDGE, "runtime", "journal", "config", "rpc", "dialling", "proto", "task", *ANY_FEATURE),
    "cluster": (*EDGE, "runtime", "journal", "config", "rpc", "client", "controller", "worker", *ANY_FEATURE),
    "blocking": (
        *("client", "cluster", "kubernetes", "packages", "resources", "config", "fleet.policy"),
        "cloud.drivers.loading",
    ),
    "fray": ("blocking", "client", "cluster", "proto", "resources", "rpc", "task"),
    "testing": (*EDGE, "runtime", "journal", "config", "rpc", "dialling", "proto", "worker", "task", *ANY_FEATURE),
    "bench": (
        *(*EDGE, "runtime", "journal", "config", "rpc", "proto", "testing", "agent", "controller"),
        *("client.calls", "client.hosted", "task.hosting", "task.passing", *ANY_FEATURE),
    ),
    "deploy": (*EDGE, "config", "rpc", *ANY_FEATURE),
    "kubernetes": ("client", "config", "deploy", "rpc", *ANY_FEATURE),
    "doctor": (*EDGE, "config", "deploy", *ANY_FEATURE),
    "shim": ("agent", "freeze", "proto", "rpc"),
    "cli": ("**",),
}
"""What each package under ``iriscw`` sees beside itself and ``EVERYWHERE``: the beginning of a dotted name.

``*`` stands for any feature, ``**`` for everything. Features are not listed: ``ROOMS`` holds for them.
"""


class Room(NamedTuple):
    """What a room sees: rooms of its own feature, rooms of lower features, packages beside the features."""

    own: tuple[str, ...]
    lower: tuple[str, ...]
    packages: tuple[str, ...] = ("runtime.vocabulary",)


MODEL = ("traits", "model")
"""``traits`` are what a model's values are made of, where they would make it too long for one file."""

VALUES = (*MODEL, "messages", "effects")
"""Rooms of plain values that others pass on: ``effects`` are requests to a port, which a decision may return."""

DECIDING = ("lifecycle", "policy", "decision")
PURE_ROOMS = (*VALUES, "records", *DECIDING)

# A lower feature's lifecycle classifies what its world reports (quota, capacity, health); it is pure, and deciding
# above on raw conditions instead would classify twice.
_DECISION = Room((*VALUES, "records", *DECIDING), (*VALUES, "lifecycle"), ("runtime.vocabulary", "runtime.behavior"))
ROOMS = {
    "traits": Room((), ()),
    "model": Room(("traits",), ("model",), ("runtime.vocabulary", "config.quantities")),
    "messages": Room(MODEL, ("model",)),
    "effects": Room(MODEL, ("model",)),
    "records": Room(MODEL, ("model",), ("runtime.vocabulary", "journal.records")),
    **dict.fromkeys(DECIDING, _DECISION),
    "ports": Room(VALUES, ("model", "effects", "ports")),
    "fakes": Room((*VALUES, *DECIDING, "ports"), (*VALUES, "ports")),
    "wire": Room(VALUES, (*VALUES, "wire"), ("runtime.vocabulary", "resources", "proto", "rpc")),
    "actor": Room((*PURE_ROOMS, "ports"), (*VALUES, "ports", "actor"), ("runtime",)),
    "drivers": Room(
        (*VALUES, *DECIDING, "ports", "wire"),
        (*VALUES, "ports", "wire"),
        (*EDGE, "rpc", "proto", "runtime.vocabulary", "config.quantities"),
    ),
    "doors": Room(
        (*VALUES, "ports", "wire"),
        (*VALUES, "ports", "wire"),
        (*EDGE, "rpc", "proto", "runtime", "config.quantities"),
    ),
}
"""``decision`` is the room of a feature's modules with names of their own, such as ``cloud/reflector.py``.

Wider than a first reading of the design: a driver sees its feature's pure logic (watching, retrying, classifying are
decisions too), a door sees messages and the runtime (it turns calls into asks).
"""

OUTSIDE_FEATURES = ("drivers", "doors", "wire", "rpc", "cli", "config", "task", "client", "proto", "testing")
LIBRARIES = {
    "grpclib": (*OUTSIDE_FEATURES, "bench"),
    "betterproto2": OUTSIDE_FEATURES,
    "h2": ("rpc", "doors", "drivers"),
    "multidict": ("rpc",),
    "aiohttp": ("drivers", "doors", "client", "testing", "serve"),
    "aiobotocore": ("drivers",),
    "blake3": ("drivers",),
    "botocore": ("drivers",),
    "google": ("drivers",),
    "kubernetes_asyncio": ("drivers",),
    "click": ("cli",),
    "cryptography": ("drivers",),
    "rich": ("cli",),
    "prometheus_client": ("doors",),
    "packaging": ("packages",),
    "cloudpickle": ("client", "task", "worker"),
    "ruamel": ("config", "drivers"),
    "yarl": ("drivers",),
    "zstandard": ("drivers",),
    "hypothesis": ("testing", "iriscw_sims"),
    "pytest": ("testing", "iriscw_sims"),
    "boto3": ("bench",),
    "obstore": ("bench",),
    "pykka": ("bench",),
    "xoscar": ("bench",),
}
"""Where each library may be imported: packages or rooms. One that is not listed may be imported nowhere."""

BUDGET = (*(name for name in LIBRARIES if name not in ("hypothesis", "pytest")), "asyncio", "sqlite3")
"""What ``import iriscw`` must not load."""

IMPURE = (
    *("anyio", "asyncio", "concurrent", "http", "logging", "multiprocessing", "os", "queue", "sched"),
    *("secrets", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess"),
    *("sys", "tempfile", "threading", "time", "urllib.request", "uuid"),
)
"""Modules of the standard library that reach the clock, the machine or another thread."""

NOW = ("now", "utcnow", "today")


class Import(NamedTuple):
    """``module`` is what is imported from; ``target`` adds the name, if one is given."""

    line: int
    module: str
    target: str


def _name(called):
    """Return the last name of what is called: to write the source of each call would take as long as all else here."""
    return getattr(called, "attr", getattr(called, "id", ""))


@functools.cache
def imports(tree):
    """List every import in a module, wherever it stands; a relative one begins with a dot."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [Import(node.lineno, module, f"{module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and _name(node.func).endswith(("import_module", "__import__")):
            found += [
                Import(node.lineno, argument.value, argument.value)
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
    return found


def place(module):
    """Return the package and the room of a module: ``iriscw.jobs.doors.grpc`` is ``("jobs", "doors")``.

    A module of a feature with a name of its own (``cloud/reflector.py``) holds decisions. Outside of features, in the
    simulator too, only the names of rooms mean something.
    """
    top, *rest = module.split(".")[1:] or [""]
    for part in rest:
        if part in ROOMS:
            return top, part
        if part.endswith("_actor"):
            return top, "actor"
    return top, "decision" if top in FEATURES and rest and not module.startswith("iriscw_sims.") else ""


def _at_runtimes_edge(module):
    return f"{module}.".startswith("iriscw.runtime.edge.")


def is_pure(module):
    """Whether a module may only decide: a pure room, or the runtime but for its edge."""
    top, room = place(module)
    if top in ("journal", "testing", "proto", "client", "cli"):
        return False
    if top == "runtime":
        return not _at_runtimes_edge(module)
    return room in PURE_ROOMS


def _begins(target, patterns):
    parts = target.split(".")
    for pattern in patterns:
        if pattern == "**":
            return True
        wanted = pattern.split(".")
        pairs = zip(wanted, parts, strict=False)
        if len(parts) >= len(wanted) and all(w == p or (w == "*" and p in FEATURES) for w, p in pairs):
            return True
    return False


def check_own_imports(module, tree):
    """Find imports of ours that the layers forbid."""
    top, room = place(module)
    for line, source, target in imports(tree):
        if source.startswith("."):
            yield f"{module}:{line}: relative import; name the module in full"
        if target.partition(".")[0] not in ("iriscw", "iriscw_sims") or module.startswith("iriscw_sims"):
            continue
        if target.startswith("iriscw_sims"):
            if top not in ("cli", "testing", "bench"):
                yield f"{module}:{line}: {target}: only cli, bench and testing see the simulator"
            continue
        name = target.removeprefix("iriscw").removeprefix(".")
        other, other_room = place(target)
        if not name or other not in (*VISIBLE, *FEATURES):
            if top not in ("cli", "task"):
                yield f"{module}:{line}: {target}: import the defining module, not the facade"
        elif _begins(name, EVERYWHERE) or (top in ("", other) and top not in FEATURES):
            continue
        elif top not in FEATURES:
            if not _begins(name, VISIBLE.get(top, ())):
                yield f"{module}:{line}: {top} does not see {target}"
        else:
            yield from _check_room(module, line, target, (top, room), (other, other_room))


def _check_room(module, line, target, here, there):
    rules = ROOMS.get(here[1], Room((), (), ()))
    if there[0] not in FEATURES:
        allowed = _begins(target.removeprefix("iriscw."), rules.packages)
    elif there[0] == here[0]:
        allowed = there[1] in (*rules.own, here[1])
    elif FEATURES.index(there[0]) > FEATURES.index(here[0]):
        yield f"{module}:{line}: {target}: {there[0]} stands above {here[0]}"
        return
    else:
        allowed = there[1] in rules.lower
    if not allowed:
        yield f"{module}:{line}: the {here[1]} room of {here[0]} does not see {target}"


def check_libraries(module, tree):
    """Find libraries imported where they have no business."""
    own = module.split(".")
    for line, source, _ in imports(tree):
        library = source.partition(".")[0]
        if library in ("", "iriscw", "iriscw_sims", "attrs", "attr") or library in sys.stdlib_module_names:
            continue
        if library == "anyio":
            if own[1:2] == ["runtime"] and not _at_runtimes_edge(module):
                yield f"{module}:{line}: only the runtime's edge imports anyio"
        elif library not in LIBRARIES:
            yield f"{module}:{line}: no table lists {library}; say in LIBRARIES where it belongs"
        elif not any(part in LIBRARIES[library] for part in own):
            yield f"{module}:{line}: {library} belongs to {', '.join(LIBRARIES[library])} only"


def check_purity(module, tree):
    """Find, in a pure module, what reads a clock, draws randomness, waits or does I/O."""
    if not is_pure(module):
        return
    for line, source, target in imports(tree):
        if any(f"{target}.".startswith(f"{banned}.") for banned in IMPURE):
            yield f"{module}:{line}: {source} in a pure module"
        if source == "random" and target != "random.Random":
            yield f"{module}:{line}: of random only the type Random may be imported; ctx.rng is the stream"
    for node in nodes(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{module}:{node.lineno}: a pure module never waits"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("open", "input", "print"):
                yield f"{module}:{node.lineno}: {called}() in a pure module"
            if called.rpartition(".")[2] in NOW and "date" in called.rpartition(".")[0]:
                yield f"{module}:{node.lineno}: {called}() reads the clock"


def check_order(module, tree):
    """Find, in a pure module, what differs between processes: sets, ``id()`` and ``hash()``."""
    if not is_pure(module):
        return
    for node in nodes(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Set | ast.SetComp) or called in ("set", "frozenset"):
            yield f"{module}:{node.lineno}: a set in a pure module; its order is nobody's: use a dict or a tuple"
        elif called in ("id", "hash"):
            yield f"{module}:{node.lineno}: {called}() in a pure module"


CHECKS = (check_own_imports, check_libraries, check_purity, check_order)


@pytest.mark.parametrize("check", CHECKS)
def test_sources(check, sources):
    """No module of ours breaks the rule."""
    violations = [found for source in sources for found in check(source.module, source.tree)]
    assert not violations, "\n" + "\n".join(violations)


def test_every_package_has_a_place(sources):
    """Each package under iriscw is listed, so that a new one is thought about."""
    tops = {place(source.module)[0] for source in sources if source.module.startswith("iriscw.")}
    assert tops <= {*VISIBLE, *FEATURES}, "add the package to VISIBLE, or to FEATURES at its height"


def test_feature_packages_are_empty(sources):
    """The __init__ files of features hold nothing: importing one room never loads another."""
    full = [
        str(source.path)
        for source in sources
        if source.path.name == "__init__.py" and place(source.module)[0] in FEATURES and source.text.strip()
    ]
    assert not full


PLANTED = [
    # the order of features
    (check_own_imports, "iriscw.fleet.policy", "from iriscw.jobs.model import Job", "stands above"),
    (check_own_imports, "iriscw.cloud.model", "import iriscw.fleet.model", "stands above"),
    (
        check_own_imports,
        "iriscw.jobs.policy",
        "def f():\n    import iriscw.operator.model",
        "stands above",
    ),
    # the rooms
    (check_own_imports, "iriscw.fleet.model", "from iriscw.fleet.messages import Drain", "model room"),
    (check_own_imports, "iriscw.jobs.messages", "from iriscw.fleet.messages import Drain", "messages room"),
    (check_own_imports, "iriscw.jobs.records", "from iriscw.jobs.messages import Submit", "records room"),
    (check_own_imports, "iriscw.jobs.policy", "from iriscw.fleet.policy import choose", "policy room"),
    (check_own_imports, "iriscw.jobs.lifecycle", "from iriscw.jobs.wire import encode", "lifecycle room"),
    (
        check_own_imports,
        "iriscw.jobs.lifecycle",
        "from iriscw.runtime.dispatcher import Dispatcher",
        "lifecycle",
    ),
    (check_own_imports, "iriscw.jobs.scheduling.scheduler", "from iriscw.jobs.actor import jobs", "decision room"),
    (check_own_imports, "iriscw.cloud.ports", "from iriscw.cloud.drivers.local import Local", "ports room"),
    (check_own_imports, "iriscw.cloud.wire", "from iriscw.cloud.policy import choose", "wire room"),
    (check_own_imports, "iriscw.cloud.actor", "from iriscw.cloud.drivers import local", "actor room"),
    (check_own_imports, "iriscw.cloud.drivers.local", "from iriscw.cloud.actor import pool", "drivers room"),
    (check_own_imports, "iriscw.jobs.doors.grpc", "from iriscw.jobs.policy import fit", "doors room"),
    (check_own_imports, "iriscw.jobs.policy", "from iriscw.proto.iriscw.v1 import Job", "policy room"),
    # the packages
    (check_own_imports, "iriscw.runtime.cell", "from iriscw.journal.port import Journal", "does not see"),
    (check_own_imports, "iriscw.journal.codec", "from iriscw.jobs.records import Placed", "does not see"),
    (check_own_imports, "iriscw.task.bootstrap", "from iriscw.controller.tree import root", "does not see"),
    (check_own_imports, "iriscw.task.bootstrap", "from iriscw.jobs.model import Job", "does not see"),
    (check_own_imports, "iriscw.worker.tree", "from iriscw.controller.tree import root", "does not see"),
    (check_own_imports, "iriscw._errors", "from iriscw.runtime.vocabulary import Tell", "does not see"),
    (
        check_own_imports,
        "iriscw.client.job",
        "import importlib\nimportlib.import_module('iriscw.cli')",
        "not see",
    ),
    (check_own_imports, "iriscw.jobs.policy", "import iriscw", "facade"),
    (check_own_imports, "iriscw.jobs.policy", "from iriscw import MailboxFull", "facade"),
    (check_own_imports, "iriscw.jobs.policy", "from . import model", "relative"),
    (check_own_imports, "iriscw.jobs.actor", "from iriscw_sims import World", "simulator"),
    (
        check_own_imports,
        "iriscw.cloud.model",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from iriscw.jobs.model import Job",
        "stands above",
    ),
    # the libraries
    (check_libraries, "iriscw.jobs.actor", "from grpclib.client import Channel", "grpclib belongs to"),
    (check_libraries, "iriscw.client.job", "def f():\n    import rich.live", "rich belongs to cli"),
    (check_libraries, "iriscw.jobs.model", "import ruamel", "ruamel belongs to"),
    (check_libraries, "iriscw.config.load", "import yaml", "no table lists yaml"),
    (check_libraries, "iriscw.runtime.cell", "import anyio", "only the runtime's edge"),
    (check_libraries, "iriscw.runtime.edgeless", "import anyio", "only the runtime's edge"),
    # purity
    *(
        (check_purity, "iriscw.fleet.policy", f"import {banned}", "pure module")
        for banned in (
            "time",
            "uuid",
            "os",
            "asyncio",
            "threading",
            "logging",
            "socket",
            "subprocess",
            "os.path",
        )
    ),
    (check_purity, "iriscw.runtime.dispatcher", "from time import monotonic_ns", "pure module"),
    (check_purity, "iriscw.worker.lifecycle", "import time", "pure module"),
    (check_purity, "iriscw.cloud.reflector", "import time", "pure module"),
    (check_purity, "iriscw.fleet.policy", "import random", "only the type Random"),
    (check_purity, "iriscw.fleet.policy", "from random import choice", "only the type Random"),
    (check_purity, "iriscw.fleet.policy", "import datetime\ndatetime.datetime.now()", "reads the clock"),
    (check_purity, "iriscw.fleet.policy", "from datetime import date\ndate.today()", "reads the clock"),
    (check_purity, "iriscw.fleet.policy", "async def f(): pass", "never waits"),
    (check_purity, "iriscw.fleet.policy", "open('x')", "open() in"),
    (check_order, "iriscw.fleet.policy", "x = {1, 2}", "a set"),
    (check_order, "iriscw.jobs.scheduling.scheduler", "x = {y for y in z}", "a set"),
    (check_order, "iriscw.runtime.cell", "x = frozenset(y)", "a set"),
    (check_order, "iriscw.worker.lifecycle", "for x in set(y): pass", "a set"),
    (check_order, "iriscw.fleet.model", "x = sorted(y, key=lambda z: id(z))", "id() in"),
    (check_order, "iriscw.runtime.cell", "x = hash(y)", "hash() in"),
]


@pytest.mark.parametrize(("check", "module", "text", "complaint"), PLANTED)
def test_planted_offence_is_found(check, module, text, complaint):
    """Each rule finds the offence it is there for, once."""
    violations = list(check(module, ast.parse(text)))
    assert len(violations) == 1
    assert complaint in violations[0]


ALLOWED = [
    ("iriscw.jobs.policy", "from iriscw.fleet.messages import Drain\nfrom iriscw.jobs.model import Job"),
    ("iriscw.jobs.lifecycle", "from random import Random\nfrom iriscw.runtime.vocabulary import Tell"),
    ("iriscw.jobs.actor", "from iriscw.runtime.dispatcher import System\nfrom iriscw.jobs import policy"),
    ("iriscw.cloud.drivers.coreweave.watch", "import asyncio, kubernetes_asyncio\nfrom iriscw import _errors"),
    ("iriscw.controller.tree", "from iriscw.operator.actor import root\nimport anyio"),
    ("iriscw.runtime.edge.driver", "import time, asyncio, anyio, random\nx = {id(y)}"),
    ("iriscw.fleet.policy", "x = {1: 2, **y}\nsettle(y)"),
    ("iriscw.fleet.model", "from datetime import datetime\ndatetime.fromtimestamp(0)\nimport attrs"),
]


@pytest.mark.parametrize(("module", "text"), ALLOWED)
def test_what_is_allowed_passes(module, text):
    """The rules leave the intended imports alone."""
    assert [found for check in CHECKS for found in check(module, ast.parse(text))] == []


def _modules_after(statement):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_import_loads_no_client_library():
    """``import iriscw`` loads no client library, no event loop and no database."""
    loaded = {name.partition(".")[0] for name in _modules_after("import iriscw")}
    assert "iriscw" in loaded
    assert not loaded & {*BUDGET}


def test_import_budget_probe_sees_libraries():
    """The probe for the import budget does see a library that is loaded."""
    assert "rich" in _modules_after("import iriscw, rich")
