"""What all tests share: how hard Hypothesis tries, which tests run by default, and the parsed sources."""

import ast
import os
import signal
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = (ROOT / "src", ROOT / "sims")

# ci: the same examples on each machine, nothing left on disk, a failure printed as something to paste.
hypothesis.settings.register_profile("ci", derandomize=True, database=None, print_blob=True, deadline=None)
# dev: new examples each time, remembered in .hypothesis.
hypothesis.settings.register_profile("dev", print_blob=True, deadline=None)
# soak: fifty times as many.
hypothesis.settings.register_profile("soak", max_examples=5_000, print_blob=True, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


def pytest_configure(config):
    """Have Ctrl-C work in what tests start, even if whoever started this shuts it out (`&` in a script)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """Leave soak tests out unless ``-m`` names them: a bare ``pytest`` must end within minutes."""
    if "soak" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.fixture
def claims_of_ours(monkeypatch):
    """Claims of targets count on the whole machine: tests beside these name the same ones, and must not meet them.

    Not for tests of which some part runs in a process of its own.
    """
    from iriscw.agent import claims

    monkeypatch.setattr(claims, "PREFIX", f"iriscw-tests-{os.getpid()}-")


class Source(NamedTuple):
    """One module of ours: ``path`` is relative to the repository."""

    module: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self):
        """How many lines the file has."""
        return self.text.count("\n")


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.fixture(scope="session")
def repository():
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def sources():
    """Every module under src/ and sims/ that people wrote; what protoc wrote is left out."""
    found = []
    for root in SOURCE_ROOTS:
        for path in sorted(root.rglob("*.py")):
            module = _module_name(path, root)
            if module.startswith("iriscw.proto"):
                continue
            text = path.read_text(encoding="utf-8")
            found.append(Source(module, path.relative_to(ROOT), text, ast.parse(text, str(path))))
    assert len(found) > 10, "the checkout has more modules than this: the walk is broken"
    return found
