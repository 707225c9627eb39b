"""How a model class says what its keys are."""

import attrs

from iriscw.config.kinds import Size, Whole
from iriscw.config.model import ControllerVmConfig, PlatformConfig, TimeoutConfig
from iriscw.config.schema import UNSUPPORTED, key, keys, members, oneof


@attrs.frozen(kw_only=True)
class Part:
    """A section of a test."""

    size_bytes: int = key(Size(), "How much.", written="size")
    derived: int = 3


@attrs.frozen(kw_only=True)
class Choice:
    """A section with a oneof."""

    part: Part | None = oneof(Part, "which", "The part.")  # noqa: RUF009 - it gives an attrs field
    count: int = key(Whole(), "How many.", otherwise="elsewhere")


def test_keys_are_by_their_written_names():
    """An attribute that is no key is not among them."""
    assert list(keys(Part)) == ["size"]
    assert keys(Part)["size"].name == "size_bytes"
    assert keys(Part) is keys(Part)


def test_members_are_those_of_the_oneof():
    """Only members of a oneof may be absent."""
    assert [member.name for member in members(Choice)] == ["part"]
    assert members(Part) == ()
    assert Choice(count=1).part is None


def test_every_oneof_of_the_model_knows_what_is_not_supported():
    """The names of Iris's other platforms are not keys of the model."""
    for model in (PlatformConfig, ControllerVmConfig):
        assert members(model)
        assert not set(UNSUPPORTED) & set(keys(model))
    assert members(TimeoutConfig) == ()
