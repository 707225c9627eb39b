"""Reading values by the built-in types."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.core_kinds import CORE_KINDS
from iriscw_sims.kube.core_types import TYPES
from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.schema import Unreadable, core_schema, read

POD, EVENT = core_schema("Pod"), core_schema("Event")


def reads(schema, value):
    """Return a value as it is read, and the unknown fields."""
    unknown = []
    return read(schema, value, "", unknown), unknown


def test_what_go_leaves_out_is_left_out():
    """Empty strings, lists, maps and null; not the zero of a pointer."""
    value = {
        "metadata": {"labels": {}, "name": "", "finalizers": None},
        "spec": {"hostNetwork": False, "containers": []},
    }
    result, _ = reads(POD, value)
    assert result == {"metadata": {}, "spec": {"containers": []}, "status": {}}
    kept, _ = reads(
        POD, {"spec": {"containers": [], "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}}
    )
    assert kept["spec"]["terminationGracePeriodSeconds"] == 0
    assert kept["spec"]["automountServiceAccountToken"] is False


def test_what_go_always_writes_is_written():
    """Structs are, times as null, and strings that are never omitted."""
    event, _ = reads(EVENT, {})
    assert event["firstTimestamp"] is None
    assert event["reportingComponent"] == ""
    assert event["involvedObject"] == {}
    assert reads(POD, {})[0]["spec"] == {"containers": None}


def test_unknown_fields_are_told_with_their_path():
    """And dropped."""
    result, unknown = reads(POD, {"spec": {"containers": [{"name": "a", "foo": 1}], "bar": 2}, "baz": 3})
    assert sorted(unknown) == ["baz", "spec.bar", "spec.containers[0].foo"]
    assert "foo" not in result["spec"]["containers"][0]


def test_values_are_written_as_the_server_writes_them():
    """Quantities canonical, times to the second in UTC."""
    limits = {"resources": {"limits": {"cpu": "1000m", "nvidia.com/gpu": 8}}, "name": "c"}
    result, _ = reads(POD, {"spec": {"containers": [limits]}, "status": {"startTime": "2026-01-01T01:00:00.5+01:00"}})
    assert result["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "nvidia.com/gpu": "8"}
    assert result["status"]["startTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "value",
    [
        {"metadata": {"name": 1}}, {"metadata": {"labels": []}}, {"metadata": {"labels": {"a": 1}}}, {"spec": "x"},
        {"spec": {"containers": {}}}, {"spec": {"hostNetwork": "yes"}}, {"spec": {"priority": 1.5}},
        {"spec": {"priority": True}}, {"spec": {"containers": [{"resources": {"limits": {"cpu": "much"}}}]}},
        {"spec": {"containers": [{"resources": {"limits": {"cpu": True}}}]}}, {"status": {"startTime": "now"}},
        {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 1.5}}}]}},
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused(value):
    """With Go's own words, roughly."""
    with pytest.raises(Unreadable):
        reads(POD, value)


def test_frozen_branches_are_not_read_again():
    """What the store wrote is taken as it is."""
    labels = freeze({"a": "1"})
    assert reads(POD, {"metadata": {"labels": labels}})[0]["metadata"]["labels"] is labels


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["", "a"]),
                "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from(["", "1"])),
            },
        ),
        "spec": st.fixed_dictionaries(
            {
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from("ab")},
                        optional={"stdin": st.booleans(), "args": st.lists(st.just("x"), max_size=2)},
                    ),
                    max_size=2,
                )
            },
            optional={"priority": st.integers(-1, 1), "hostPID": st.booleans()},
        ),
    },
)


@given(VALUES)
def test_reading_is_idempotent(value):
    """Law: what was read once reads as itself."""
    once, _ = reads(POD, value)
    assert reads(POD, once) == (once, [])


def test_every_type_of_the_table_is_understood():
    """Each paragraph parses, and each built-in kind has its type."""
    for paragraph in TYPES.strip("\n").split("\n"):
        if not paragraph.startswith(" "):
            core_schema(paragraph.split(" ")[0].partition("@")[0])
    for kind in CORE_KINDS:
        assert kind.schema is core_schema(kind.kind)
        assert "metadata" in kind.schema.fields
