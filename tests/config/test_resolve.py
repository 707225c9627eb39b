"""Defaults, overrides and inheritance."""

from iriscw.config.load import build_config
from iriscw.config.read import INVALID
from iriscw.config.resolve import overlay

SECOND = 1_000_000_000
CLOUD = {"coreweave": {"region": "LGA1"}}


def pool(**said):
    """Give a slice template for a pool on CoreWeave."""
    return {"coreweave": {"instance_type": "gd-8xh100ib-i128", **said}}


def test_the_nearest_layer_wins():
    """A group's delay wins over the platform's, that over the defaults', that over the built-in one; key by key."""
    config = build_config(
        {
            "platform": {"local": {}, "timeouts": {"boot_timeout": "2s", "init_timeout": "2s"}},
            "defaults": {"timeouts": {"boot_timeout": "1s", "init_timeout": "1s", "api_timeout": "1s"}},
            "scale_groups": {"a": {"timeouts": {"boot_timeout": "3s"}}, "b": {}},
        }
    )
    of = config.scale_groups["a"].timeouts
    assert (of.boot_timeout, of.init_timeout, of.api_timeout) == (3 * SECOND, 2 * SECOND, SECOND)
    assert of.requesting_timeout == config.defaults.timeouts.requesting_timeout
    assert config.scale_groups["b"].timeouts == config.platform.timeouts
    assert config.defaults.timeouts.boot_timeout == SECOND


def test_a_template_inherits_from_its_group():
    """What a slice template does not say is its group's; the region is the platform's."""
    group = {
        "accelerator_type": "gpu", "accelerator_variant": "H100", "num_vms": 2, "max_slices": 3,
        "resources": {"cpu": 128, "ram": "2048GB", "gpu_count": 8}, "slice_template": pool(),
    }  # fmt: skip
    config = build_config({"platform": CLOUD, "scale_groups": {"h100": group}})
    template = config.scale_groups["h100"].slice_template
    assert (template.accelerator_variant, template.num_vms, template.preemptible) == ("H100", 2, False)
    assert (template.coreweave.region, template.coreweave.gpus_per_node, template.coreweave.gpu_class) == (
        "LGA1",
        8,
        "H100",
    )
    assert template.local is None


def test_a_template_may_be_left_out_where_nothing_must_be_said():
    """A local group needs no template."""
    config = build_config({"platform": {"local": {}}, "scale_groups": {"a": {}}})
    assert config.scale_groups["a"].slice_template.local is not None
    assert config.scale_groups["a"].accelerator_variant == "cpu"


def test_the_controller_is_of_the_platforms_kind():
    """Without a word about it, the controller runs where the workers do."""
    assert build_config({"platform": {"local": {}}}).controller.local.host == "127.0.0.1"
    assert build_config({"platform": CLOUD}).controller.coreweave.port == 10000


def test_the_controllers_address():
    """Workers find a controller by its Service; an address that was said wins; a local one is known later."""
    far = {"platform": CLOUD, "controller": {"coreweave": {"port": 1234, "service_name": "ctl"}}}
    assert build_config(far).defaults.bootstrap.controller_address == "ctl.iris.svc.cluster.local:1234"
    said = {**far, "defaults": {"bootstrap": {"controller_address": "there:1"}}}
    assert build_config(said).defaults.bootstrap.controller_address == "there:1"
    assert build_config({"platform": {"local": {}}}).defaults.bootstrap.controller_address == ""


def test_overlay():
    """Sections merge, values and maps of texts replace, a refusal stays."""
    assert overlay({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}, "e": {}}) == {
        "a": 1,
        "b": {"c": 3, "d": 2},
        "e": {},
    }
    assert overlay({"task_env": {"A": "1"}}, {"task_env": {"B": "2"}}) == {"task_env": {"B": "2"}}
    assert overlay({"a": {"b": 1}}, {"a": INVALID}) == {"a": INVALID}
    assert overlay(INVALID, {"a": 1}) is INVALID
