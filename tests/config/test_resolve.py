"""Defaults, overrides and inheritance."""

import pytest

from iriscw.config.errors import ConfigError
from iriscw.config.load import build_config
from iriscw.config.read import INVALID
from iriscw.config.resolve import overlay
from raised import that

SECOND = 1_000_000_000
CLOUD = {"coreweave": {"region": "LGA1"}}


def pool(**said):
    """Return a slice template for a pool on CoreWeave."""
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
    assert config.scale_groups["h100"].quota_pool == "H100"
    own = build_config({"platform": CLOUD, "scale_groups": {"h100": {**group, "quota_pool": ""}}})
    assert own.scale_groups["h100"].quota_pool == ""


def test_a_template_may_be_left_out_where_nothing_must_be_said():
    """A local group needs no template."""
    config = build_config({"platform": {"local": {}}, "scale_groups": {"a": {}}})
    assert config.scale_groups["a"].slice_template.local is not None
    assert (config.scale_groups["a"].accelerator_variant, config.scale_groups["a"].quota_pool) == ("cpu", "")


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


def on_h100(template=None, **more):
    """Return a group's pool; ``template`` is what the file says of it."""
    said = {"instance_type": "gd-8xh100ib-i128", **(template or {})}
    gpus = {"accelerator_type": "gpu", "accelerator_variant": "H100"}
    group = {
        **gpus,
        "resources": {"cpu": 1, "ram": "1GB", "gpu_count": 8},
        "slice_template": {"coreweave": said},
        **more,
    }
    return build_config({"platform": CLOUD, "scale_groups": {"a": group}}).scale_groups["a"]


def test_infiniband_is_what_the_type_of_node_has():
    """Unless the file says that pods do without; a type that is not known has none."""
    assert on_h100().slice_template.coreweave.infiniband
    assert not on_h100({"infiniband": False}).slice_template.coreweave.infiniband
    assert not on_h100({"instance_type": "new-type"}).slice_template.coreweave.infiniband
    assert on_h100({"instance_type": "new-type", "infiniband": True}).slice_template.coreweave.infiniband


def test_gpus_may_be_said_once():
    """Of the pool or of the group: the other one follows."""
    assert on_h100().slice_template.coreweave.gpus_per_node == 8
    group = on_h100({"gpus_per_node": 4}, resources={"cpu": 1, "ram": "1GB"})
    assert (group.resources.gpu_count, group.slice_template.coreweave.gpus_per_node) == (4, 4)


def test_pods_of_preemptible_groups_stay_while_the_node_does():
    """Unless the file says otherwise."""
    spot = {"preemptible": True, "coreweave": {"instance_type": "x"}}
    assert not on_h100().slice_template.coreweave.interruptable
    assert on_h100(slice_template=spot).slice_template.coreweave.interruptable
    spot["coreweave"]["interruptable"] = False
    assert not on_h100(slice_template=spot).slice_template.coreweave.interruptable


def test_taints_and_secrets_have_a_form():
    """What Kubernetes would refuse, or could not find, is refused here."""
    assert on_h100({"node_taints": {"x/y": "v:NoSchedule"}}).slice_template.coreweave.node_taints == {
        "x/y": "v:NoSchedule"
    }
    for wrong in ({"x": "v"}, {"x": ":Never"}, {"-": ":NoExecute"}):
        with pytest.raises(ConfigError, check=that(comes_from="load._build", names="node_taints")):
            on_h100({"node_taints": wrong})
    for wrong in ({"A": "name"}, {"A": "Name/key"}, {"IRIS_A": "name/key"}, {"A": "name/"}):
        with pytest.raises(ConfigError, check=that(comes_from="load._build", names="task_secrets")):
            build_config({"platform": CLOUD, "defaults": {"task_secrets": wrong}})
