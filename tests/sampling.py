"""Of many cases of the same, a share is run where the test stands, drawn by the commit, and the rest one phase later.

It is a plugin of pytest that the topmost conftest.py registers. With ``@pytest.mark.sampled(3)`` a third of a test's
cases run for each commit (`--hypothesis-seed` names it). The others of a test of `make test` are slow tests of this
commit; the others of a slow test, for planted bugs and for cases that differ by a seed or a moment alone, are left to
the soak, and to the next commits. Where some cases of a test are slow and some are not, each kind is drawn from by
itself; so is each value of the parameter that ``by="moment"`` names, where cases differ in more. A soak has all of a
slow test. Whoever runs pytest by hand, without that option, runs all.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable

import pytest


def drawn(names: Iterable[str], share: int, seed: str) -> set[str]:
    """Draw one in ``share`` of the names, at least one: the same ones for the same seed, whatever their order."""
    names = {*names}

    def place(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    return {*sorted(names, key=place)[: math.ceil(len(names) / share)]}


@pytest.hookimpl(tryfirst=True)  # before ``-m`` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the next phase what is not drawn; a soak, which is not of a commit, has all."""
    seed, marks = config.getoption("--hypothesis-seed"), config.option.markexpr
    cases = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("sampled"):
            slow = item.get_closest_marker("slow") is not None
            kind = item.callspec.params[marker.kwargs["by"]] if marker.kwargs else None
            cases[item.nodeid.partition("[")[0], slow, *marker.args, str(kind)].append(item)
    for (_, slow, share, _), each in cases.items():
        names = {item.nodeid for item in each}
        if "soak" in marks and "not soak" not in marks:
            here = set()
        else:
            here = names if seed is None else drawn(names, share, str(seed))
        for item in each:
            if item.nodeid not in here:
                item.add_marker("soak" if slow else "slow")
