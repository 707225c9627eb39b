"""The model is what the proto says."""

import typing
from collections.abc import Mapping

import attrs
import pytest

import iriscw.proto.iriscw.v1 as proto
from iriscw.config import model
from iriscw.config.kinds import Choice, Section, Sections
from iriscw.config.schema import UNSUPPORTED, keys

CLASSES = [
    each for each in vars(model).values()
    if isinstance(each, type) and attrs.has(each) and each.__module__ == model.__name__
]  # fmt: skip
UNITS = ("_milli", "_bytes")


def fields(message):
    """Return a message's fields by name, as the generated code knows them."""
    return message._betterproto.meta_by_field_name


def type_name(message, name):
    """Return the proto's name for a field's type."""
    field = fields(message)[name]
    if field.map_meta is not None:
        key, value = field.map_meta
        within = (
            typing.get_args(typing.get_type_hints(message, vars(proto))[name])[1].__name__
            if value.proto_type == "message"
            else value.proto_type
        )
        return f"map<{key.proto_type}, {within}>"
    if field.proto_type not in ("message", "enum"):
        return field.proto_type
    hint = typing.get_type_hints(message, vars(proto))[name]
    return next(part.__name__ for part in (*typing.get_args(hint), hint) if part is not type(None))


def test_classes_are_the_protos_messages():
    """Each section of the model is a message of the same name, and none is missing."""
    ours = {each.__name__ for each in CLASSES}
    assert "ClusterConfig" in ours
    config = {name for name in proto.__all__ if name.endswith(("Config", "GroupResources"))}
    assert ours == {name for name in config if not name.startswith(("Gcp", "Manual"))}


@pytest.mark.parametrize("section", CLASSES, ids=lambda each: each.__name__)
def test_keys_are_the_protos_fields(section):
    """Names, types and oneofs of a section are those of its message; gcp and manual stand in the proto only."""
    message = getattr(proto, section.__name__)
    ours = {known.name: known for known in keys(section).values()}
    theirs = {name: field for name, field in fields(message).items() if not (field.group and name in UNSUPPORTED)}
    assert set(ours) == set(theirs)
    for name, known in ours.items():
        assert known.kind.proto == type_name(message, name), name
        expected = known.kind.oneof if isinstance(known.kind, Section) else ""
        assert (theirs[name].group or "") == expected, name


@pytest.mark.parametrize("section", CLASSES, ids=lambda each: each.__name__)
def test_attributes_have_the_type_that_their_kind_reads(section):
    """The annotation of an attribute agrees with its kind."""
    hints = typing.get_type_hints(section)
    for known in keys(section).values():
        if isinstance(known.kind, Section):
            expected = known.kind.model | None if known.kind.oneof else known.kind.model
        elif isinstance(known.kind, Sections):
            expected = Mapping[str, known.kind.model]
        elif isinstance(known.kind, Choice):
            expected = known.kind.options
        else:
            expected = {"string": str, "bool": bool, "map<string, string>": Mapping[str, str]}.get(
                known.kind.proto, int
            )
        assert hints[known.name] == expected, known.name


@pytest.mark.parametrize("section", CLASSES, ids=lambda each: each.__name__)
def test_keys_are_written_as_the_proto_names_them(section):
    """A key is its field's name, without the unit."""
    for written, known in keys(section).items():
        stem = next((known.name.removesuffix(unit) for unit in UNITS if known.name.endswith(unit)), known.name)
        assert written == stem


@pytest.mark.parametrize("options", [model.AcceleratorType, model.Durability])
def test_enums_are_the_protos(options):
    """An enum has the proto's members but for UNSPECIFIED, and is written in lower case."""
    theirs = getattr(proto, options.__name__)
    assert [option.name for option in options] == [option.name for option in theirs if option.name != "UNSPECIFIED"]
    assert all(option.value == option.name.lower() for option in options)


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("CoreweavePlatformConfig", {"region": 1, "namespace": 2, "kubeconfig_path": 3, "container_registry": 4}),
        (
            "CoreweaveSliceConfig",
            {"region": 1, "instance_type": 2, "gpus_per_node": 3, "gpu_class": 4, "infiniband": 5},
        ),
        ("CoreweaveControllerConfig", {"port": 1, "service_name": 2}),
        ("Duration", {"milliseconds": 1}),
    ],
)
def test_numbers_of_the_seed(message, numbers):
    """Messages that the first seed spells out have its numbers, and what was added has others; the registry, which
    only the second has, is 4.
    """
    found = {name: field.number for name, field in fields(getattr(proto, message)).items()}
    assert {name: found[name] for name in numbers} == numbers
    assert len(set(found.values())) == len(found)


def test_the_seeds_oneof():
    """The kinds of controller have the seed's numbers, in one oneof."""
    controller = {
        name: field.number for name, field in fields(proto.ControllerVmConfig).items() if field.group == "controller"
    }
    assert controller == {"gcp": 1, "manual": 2, "local": 3, "coreweave": 4}


def test_every_key_is_explained():
    """Each key of the model has a sentence about it."""
    for section in CLASSES:
        for known in keys(section).values():
            assert known.doc.endswith("."), (section.__name__, known.name)


def test_a_configuration_is_a_value():
    """Sections cannot be changed."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        model.LocalControllerConfig(port=1, host="x").port = 2
