"""What all tests share: which of them run by default, and the parsed sources."""

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "freeze" / "catalogue"))  # for catalogue_report

sys.path.insert(0, str(Path(__file__).parent))  # for skips and its kin

import catalogue_report

import parsed
import profiles
import sampling
import skips
from garbage import lasting

profiles.register()


def pytest_addoption(parser):
    """Take where the catalogue's result is written to."""
    parser.addoption("--catalogue-json", metavar="FILE", help="write the result of the freezing catalogue to FILE")


def pytest_configure(config):
    """Have Ctrl-C work in what tests start, even if whoever started this shuts it out (`&` in a script)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(catalogue_report, "catalogue_report")
    config.pluginmanager.register(sampling, "sampling")
    skips.registered(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Spare the garbage collector what lasts as long as the run: thirteen thousand tests and what they import.

    To look through all of it again and again is a quarter of what collecting takes.
    """
    with lasting():
        return (yield)


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


@pytest.fixture(scope="session")
def repository():
    """The folder of the checkout."""
    return parsed.ROOT


@pytest.fixture(scope="session")
def sources():
    """Every module of ours, parsed once; see `tests/parsed.py`."""
    return parsed.sources()
