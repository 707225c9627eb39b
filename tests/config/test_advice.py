"""What is unusual about a configuration is told, and refused by nobody."""

import pytest

from iriscw.cloud.catalogue import CATALOGUE
from iriscw.config.advice import advice
from iriscw.config.load import build_config, parse_config
from iriscw.config.reference import EXAMPLE


def of(instance_type, *, variant="H100", gpus=8):
    """Return the warnings of a group on a type of node, as (end of the key, text)."""
    group = {"resources": {"cpu": 1, "ram": "1GB", "gpu_count": gpus}, "num_vms": 18}
    if gpus:
        group |= {"accelerator_type": "gpu", "accelerator_variant": variant}
    group["slice_template"] = {"coreweave": {"instance_type": instance_type}}
    config = build_config({"platform": {"coreweave": {"region": "LGA1"}}, "scale_groups": {"g": group}})
    return [(each.path.rpartition(".")[2], each.text) for each in advice(config)]


def test_nothing_is_said_of_what_is_usual():
    """The documentation's example, and each known type with all of its GPUs; a local cluster has no types."""
    assert advice(parse_config(EXAMPLE)) == ()
    assert advice(parse_config("platform: {local: {}}\nscale_groups: {g: {}}\n")) == ()
    for node in CATALOGUE.values():
        if not node.arm:
            assert of(node.name, variant=node.gpu_class or "X", gpus=node.gpus) == []


@pytest.mark.parametrize(
    ("arguments", "key", "said"),
    [
        (("gd-9x",), "instance_type", "does not know"),
        (("gd-8xh100ib-i128", "H100", 4), "gpu_count", "4 of the 8"),
        (("gb200-4x", "GB200", 4), "instance_type", "arm64"),
    ],
)
def test_what_is_unusual(arguments, key, said):
    """A type that is not known, GPUs that are paid for and not used, a machine for which images must be built."""
    name, *more = arguments
    ((found, text),) = of(name, **dict(zip(("variant", "gpus"), more, strict=False)))
    assert found == key
    assert said in text


@pytest.mark.parametrize(
    ("controller", "platform", "said"),
    [
        ({"bundle_prefix": "s3://b/x"}, {}, ["controller.bundle_prefix"]),
        ({"bundle_prefix": "s3://b/x"}, {"object_storage_endpoint": "http://cwlota.com"}, []),
        ({"bundle_prefix": "gs://b/x"}, {}, []),
        ({"replica_prefix": "s3://b/x", "durability": "replicated"}, {}, ["controller.replica_prefix"]),
    ],
)
def test_a_bucket_that_is_amazons(controller, platform, said):
    """On CoreWeave nobody means that; what names the service is one key."""
    config = build_config({"platform": {"coreweave": {"region": "LGA1", **platform}}, "controller": controller})
    assert [each.path for each in advice(config)] == said
    assert all("http://cwlota.com" in each.text for each in advice(config))
