"""In CI a test is skipped only for a reason that stands here: a skip that nobody expects is a part that is missing.

It is a plugin of pytest that the topmost conftest.py registers. Outside of CI, whoever has no API server or no CRIU
runs what can be run. In CI a part is made, or ``IRISCW_LACKS`` names it beforehand: ``IRISCW_LACKS="dockerd kubelet"``.
"""

import os
import re
from collections.abc import Iterable

LACKS = "IRISCW_LACKS"

EXPECTED = (
    r"(there is )?no Python 3\.\d+",  # the other ones that a machine may have
    r"this kernel('s userfaultfd)? (has|gives) no ",
    r"no userfaultfd here",
    r"the kernel or this CRIU has no nftables",
    r"huge pages: ",
    r"control group.*: no control group can be made",
    r"(Go|JVM).*: there is no (Go|java with a compiler)",  # they take minutes to fetch: those of the machine are used
    r".* is older than 1\.19\.5",
    r"no moto_server is installed here",  # it has some forty dependencies; its answers are recorded
    r"IRIS_COREWEAVE_URL names no controller",
    r"the module k8s\.io/",  # what was built is kept for longer than what it was built from
    r"(futures|futures and tasks) of asyncio.s|asyncio takes it out of the loop",  # on trio
    r"somebody else took the controller's port meanwhile",
)
"""What no machine has to have, or what is decided while a test runs: the beginning of a reason."""

PARTS = {
    "apiserver": r"no real API server",
    "kubectl": r"no kubectl",
    "kubelet": r"no kubelet",
    "controller": r"no controller: ",
    "emulator": r"no emulator",
    "criu": r"(CriuMissing|CriuUnfit|RightsMissing): |.*criu|.*CRIU",
    "programs": r".*tests/freeze/programs/install-programs",
    "runc": r".*runc",
    "dockerd": r".*Docker engine|install-dockerd",
}
"""What ``.ci/run`` makes, as it names it, and the reasons of tests that go without."""


def lacking(variable: str) -> tuple[str, ...]:
    """Return the parts that a machine lacks, by the value of ``IRISCW_LACKS``.

    Raises:
        ValueError: it names what is no part.
    """
    names = tuple(variable.replace(",", " ").split())
    if unknown := [name for name in names if name not in PARTS]:
        raise ValueError(f"{LACKS} names {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return names


def unexpected(skipped: Iterable[tuple[str, str]], lacks: Iterable[str]) -> list[tuple[str, str]]:
    """Return those tests, each with its reason, that are skipped for a reason that stands nowhere."""
    patterns = [re.compile(each, re.DOTALL) for each in (*EXPECTED, *(PARTS[name] for name in lacks))]
    return [(test, reason) for test, reason in skipped if not any(each.match(reason) for each in patterns)]


def reason_of(report) -> str:
    """Return why a test was skipped; pytest writes a word before it."""
    return report.longrepr[2].removeprefix("Skipped: ")


class Skips:
    """Collects what is skipped, and fails the run where a reason is not expected."""

    def __init__(self, lacks: tuple[str, ...]) -> None:
        self.lacks = lacks
        self.found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report) -> None:
        """Note a skip; one that was marked to fail is none."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.found.append((report.nodeid, reason_of(report)))

    def pytest_collectreport(self, report) -> None:
        """Likewise for a whole file."""
        if report.skipped:
            self.found.append((report.nodeid, reason_of(report)))

    def pytest_sessionfinish(self, session) -> None:
        """Fail a run that would have passed."""
        if unexpected(self.found, self.lacks) and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter) -> None:
        """Say what was not expected."""
        for test, reason in unexpected(self.found, self.lacks):
            terminalreporter.section("skipped, and tests/skips.py expects no such reason", red=True)
            terminalreporter.write_line(f"{test}: {reason}")


def registered(config) -> None:
    """Watch over skips in CI. A worker of pytest-xdist leaves it to the process that tells the result."""
    if "CI" in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(lacking(os.environ.get(LACKS, ""))), "skips")
