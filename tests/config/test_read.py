"""What the file says, key by key, against the schema."""

import pytest

from iriscw.config.errors import ProblemKind
from iriscw.config.model import ClusterConfig, CoreweavePlatformConfig, LocalSliceConfig, PlatformConfig
from iriscw.config.read import GROUP_NAME_LIMIT, INVALID, NONE_CHOSEN, Findings, read
from iriscw.config.yaml_lines import parse


def tree_of(model, text):
    """Read a section; give the tree and what was found."""
    found = Findings()
    return read(model, parse(text, "x.yaml")[0], found), found


def test_only_what_was_said():
    """The tree holds the attributes of the model, and those only that the file names."""
    tree, found = tree_of(ClusterConfig, "platform: {local: {node_cpu: 0.5, boot_delay: 1s}}")
    assert tree == {"platform": {"local": {"node_cpu_milli": 500, "boot_delay": 10**9}}}
    assert found.problems == []
    assert found.lines["platform", "local", "node_cpu"] == 1


def test_a_refused_value_stays_as_invalid():
    """What was wrong is marked, so that no default takes its place."""
    tree, found = tree_of(CoreweavePlatformConfig, "namespace: UP\nregion: a\n")
    assert tree == {"namespace": INVALID, "region": "a"}
    assert [(one.path, one.line) for one in found.problems] == [("namespace", 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("regio: x", "did you mean region?"),
        ("name_space: x", "did you mean namespace?"),
        ("kubeconfig: x", "did you mean kubeconfig_path?"),
        ("zzz: x", "the keys here are region, namespace, kubeconfig_path, container_registry"),
        ("Region: x", "did you mean region?"),
        (f"{'x' * 500}: 1", "the keys here are"),
    ],
)
def test_unknown_keys_name_the_nearest(text, says):
    """An unknown key is answered with the nearest one, or with all there are."""
    tree, found = tree_of(CoreweavePlatformConfig, text)
    assert tree == {}
    assert [one.kind for one in found.problems] == [ProblemKind.UNKNOWN_KEY]
    assert says in found.problems[0].text


def test_a_section_without_keys_says_so():
    """Where no key is possible the message does not list any."""
    _, found = tree_of(LocalSliceConfig, "x: 1")
    assert found.problems[0].text.endswith("there are no keys here")


def test_of_two_members_none_stays():
    """Which of two platforms was meant is not clear, so the tree has neither."""
    tree, found = tree_of(PlatformConfig, "coreweave: {}\nlocal: {}\n")
    assert tree == {NONE_CHOSEN: INVALID}
    assert [(one.kind, one.path, one.line) for one in found.problems] == [(ProblemKind.CONTRADICTION, "local", 2)]


def test_the_longest_name():
    """A group's name may be as long as the limit says."""
    _, found = tree_of(ClusterConfig, f"scale_groups: {{{'g' * GROUP_NAME_LIMIT}: {{}}}}")
    assert found.problems == []


def test_a_problem_has_the_line_of_the_nearest_key():
    """A key that is missing is reported where its section begins."""
    found = Findings(lines={("a",): 3, ("a", "b"): 4})
    found.add(ProblemKind.MISSING_KEY, ("a", "b", "c"), "x")
    found.add(ProblemKind.MISSING_KEY, ("z",), "x")
    assert [(one.path, one.line) for one in found.problems] == [("a.b.c", 4), ("z", 0)]
