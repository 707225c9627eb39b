"""What a job may ask to be installed, and what it may not."""

from typing import Any

import pytest

from iriscw._errors import InvalidArgument
from iriscw.packages import requirements
from iriscw.packages.requirements import InvalidDependency, check_setup_timeout, check_steps, normal
from raised import that

HASH = "a" * 64


def test_what_means_the_same_is_the_same() -> None:
    """Order, spelling, spaces and repetitions make no other environment; versions, extras, markers and hashes do."""
    one = [
        "NumPy >= 2",
        "zope.interface",
        "requests[SOCKS,security]<3; python_version>'3'",
        f"a==1 --hash=sha256:{HASH}",
    ]
    other = [f"a == 1   --hash=sha256:{HASH}", "Requests[security,socks] <3 ; python_version > '3'", "numpy>=2"]
    assert normal(one) == normal([*other, "zope-interface", "numpy>=2"])
    assert normal(one) == (
        f"a==1 --hash=sha256:{HASH}",
        "numpy>=2",
        'requests[security,socks]<3 ; python_version > "3"',
        "zope-interface",
    )
    assert (
        len({normal([each]) for each in ("a", "a==1", "a[b]", "a; python_version>'3'", f"a --hash=sha256:{HASH}")}) == 5
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("--index-url https://elsewhere.example", "option"),
        ("-e .", "option"),
        ("-r /etc/passwd", "option"),
        ("numpy --no-binary :all:", "option"),
        ("numpy\n--index-url=https://elsewhere.example", "shown"),
        ("numpy @ file:///tmp/numpy.whl", "where it comes from"),
        ("numpy @ git+https://user:secret@elsewhere.example/numpy", "where it comes from"),
        ("./numpy", "not a requirement"),
        ("https://user:secret@elsewhere.example/numpy.whl", "not a requirement"),
        ("numpy>>2", "not a requirement"),
        ("", "not a requirement"),
    ],
)
def test_what_says_where_from_or_is_none_is_refused(text: str, word: str) -> None:
    """By name, before anything travels; an address of a repository is not repeated, for it may hold a password."""
    with pytest.raises(InvalidDependency, check=that(names=word)) as refused:
        normal(["ok", text])
    if "@ git" in text:
        assert "secret" not in str(refused.value)


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their number, their bytes, the steps, and the time."""
    monkeypatch.setattr(requirements, "MAX_DEPENDENCIES", 3)
    monkeypatch.setattr(requirements, "MAX_DEPENDENCY_BYTES", 20)
    assert normal(["a", "b", "c"]) == ("a", "b", "c")
    with pytest.raises(InvalidDependency, check=that(names=("4", "3"))):
        normal(["a", "b", "c", "d"])
    with pytest.raises(InvalidDependency, check=that(names="20")):
        normal(["a" * 20])
    wrongs: tuple[Any, ...] = (
        "make",
        [["make"], "make all"],
        [[]],
        [[""]],
        [["a", "b\0"]],
        [["make"]] * 65,
        [["x" * (128 << 10)]],
    )
    for wrong in wrongs:
        with pytest.raises(InvalidArgument, check=that(names="setup")):
            check_steps(wrong)
    assert check_steps([["make", "all"]]) == (("make", "all"),)
    for seconds in (0, 86_401, float("nan"), True, "1"):
        with pytest.raises(InvalidArgument, check=that(names="setup_timeout")):
            check_setup_timeout(seconds)
