"""Pairs of keys that cannot both be meant."""

import copy

import pytest

from iriscw.cloud.catalogue import RACK_NODES
from iriscw.config.errors import ConfigError, ProblemKind
from iriscw.config.load import build_config

GPU = {
    "platform": {"coreweave": {"region": "LGA1"}},
    "scale_groups": {
        "g": {
            "accelerator_type": "gpu",
            "accelerator_variant": "H100",
            "num_vms": 2,
            "max_slices": 3,
            "resources": {"cpu": 128, "ram": "2048GB", "gpu_count": 8},
            "slice_template": {"coreweave": {"instance_type": "gd-8xh100ib-i128"}},
        }
    },
}
L40S = copy.deepcopy(GPU)
L40S["scale_groups"]["g"] |= {
    "accelerator_variant": "L40S",
    "resources": {"cpu": 128, "ram": "1TB", "gpu_count": 8},
    "slice_template": {"coreweave": {"instance_type": "gd-8xl40s-i128"}},
}
LOCAL = {"platform": {"local": {}}, "scale_groups": {"g": {}}}
PLUGIN = {
    "platform": {"plugin": {"name": "mycloud", "settings": {"zone": "a"}}},
    "scale_groups": {"g": {"resources": {"cpu": 1, "ram": "1GiB"}}},
}


def changed(base, changes):
    """Return a configuration with the values at some dotted paths changed; None removes one."""
    values = copy.deepcopy(base)
    for path, value in changes.items():
        *above, last = path.replace("g.", "scale_groups.g.", 1).split(".") if path.startswith("g.") else path.split(".")
        section = values
        for name in above:
            section = section.setdefault(name, {})
        if value is None:
            del section[last]
        else:
            section[last] = value
    return values


def problems(values):
    """Return what is wrong, as (path, kind)."""
    with pytest.raises(ConfigError) as caught:
        build_config(values)
    return [(problem.path, problem.kind) for problem in caught.value.problems]


def test_the_bases_can_work():
    """The configurations that these tests spoil are good."""
    assert build_config(GPU).scale_groups["g"].num_vms == 2
    assert build_config(LOCAL).scale_groups["g"].num_vms == 1
    plugged = build_config(PLUGIN).platform
    assert (plugged.kind.value, plugged.name, plugged.plugin.settings) == ("plugin", "mycloud", {"zone": "a"})


@pytest.mark.parametrize(
    ("base", "changes", "path"),
    [
        (GPU, {"g.timeouts": {"worker_lease": "59s"}}, "timeouts.worker_lease"),
        (GPU, {"g.min_slices": 4}, "min_slices"),
        (GPU, {"g.buffer_slices": 4}, "buffer_slices"),
        (GPU, {"g.resources.gpu_count": 0}, "accelerator_type"),
        (GPU, {"g.accelerator_type": "cpu", "g.accelerator_variant": None}, "resources.gpu_count"),
        (GPU, {"g.slice_template.num_vms": 1}, "slice_template.num_vms"),
        (GPU, {"g.slice_template.accelerator_type": "cpu"}, "slice_template.accelerator_type"),
        (GPU, {"g.slice_template.accelerator_variant": "A100"}, "slice_template.accelerator_variant"),
        (GPU, {"g.slice_template.coreweave.gpus_per_node": 4}, "slice_template.coreweave.gpus_per_node"),
        (GPU, {"g.slice_template.coreweave.gpu_class": "A100"}, "slice_template.coreweave.gpu_class"),
        (GPU, {"g.slice_template.coreweave.instance_type": "gb200-new"}, "slice_template.coreweave.instance_type"),
        (GPU, {"g.slice_template.coreweave.instance_type": "b200-8x"}, "slice_template.coreweave.instance_type"),
        (GPU, {"g.resources.gpu_count": 9}, "resources.gpu_count"),
        (GPU, {"g.resources.cpu": 129}, "resources.cpu"),
        (GPU, {"g.resources.ram": "2049GB"}, "resources.ram"),
        (L40S, {"g.slice_template.coreweave.infiniband": True}, "slice_template.coreweave.infiniband"),
        (
            GPU,
            {"g.slice_template.coreweave.instance_type": "gb300-new", "g.num_vms": RACK_NODES + 9},
            "slice_template.coreweave.instance_type",
        ),
        (GPU, {"g.slice_template": {"local": {}}}, "slice_template.local"),
        (
            LOCAL,
            {"g.slice_template": {"coreweave": {"region": "LGA1", "instance_type": "x"}}},
            "slice_template.coreweave",
        ),
        (LOCAL, {"g.resources": {"cpu": 5}}, "resources.cpu"),
        (LOCAL, {"g.resources": {"ram": "9GiB"}}, "resources.ram"),
    ],
)
def test_contradictions_in_a_group(base, changes, path):
    """Each impossible pair is named once, at the key that should change."""
    assert problems(changed(base, changes)) == [(f"scale_groups.g.{path}", ProblemKind.CONTRADICTION)]


@pytest.mark.parametrize(
    ("base", "changes", "path"),
    [
        (LOCAL, {"controller": {"coreweave": {}}}, "controller.coreweave"),
        (LOCAL, {"platform.timeouts": {"worker_lease": "9s"}}, "platform.timeouts.worker_lease"),
        (
            LOCAL,
            {"defaults": {"timeouts": {"worker_timeout": "1h", "worker_lease": "59m"}}},
            "platform.timeouts.worker_lease",
        ),
        (GPU, {"controller": {"local": {}}}, "controller.local"),
        (GPU, {"platform.local": {}}, "platform.local"),
        (
            GPU,
            {"controller": {"local": {}, "coreweave": {}}, "defaults": {"bootstrap": {"controller_address": "a:1"}}},
            "controller.coreweave",
        ),
        (GPU, {"controller": {"durability": "replicated"}}, "controller.durability"),
        (GPU, {"defaults": {"bootstrap": {"worker_port": 0}}}, "defaults.bootstrap.worker_port"),
        (LOCAL, {"defaults": {"task_secrets": {"KEY": "name/key"}}}, "defaults.task_secrets"),
        (GPU, {"defaults": {"task_secrets": {"K": "a/b"}, "task_env": {"K": "x"}}}, "defaults.task_secrets.K"),
        (LOCAL, {"g.task_runtime": "pod"}, "scale_groups.g.task_runtime"),
        (GPU, {"g.task_runtime": "docker"}, "scale_groups.g.task_runtime"),
        (PLUGIN, {"g.task_runtime": "docker"}, "scale_groups.g.task_runtime"),
        (PLUGIN, {"g.task_runtime": "pod"}, "scale_groups.g.task_runtime"),
        (PLUGIN, {"controller": {"coreweave": {}}}, "controller.coreweave"),
        (PLUGIN, {"agent": {"enabled": True}}, "agent.enabled"),
        (PLUGIN, {"defaults": {"task_secrets": {"KEY": "name/key"}}}, "defaults.task_secrets"),
        (PLUGIN, {"g.slice_template": {"local": {}}}, "scale_groups.g.slice_template.local"),
        (LOCAL, {"g.slice_template": {"plugin": {}}}, "scale_groups.g.slice_template.plugin"),
        (
            GPU,
            {"g.task_runtime": "pod", "platform.coreweave": {"region": "LGA1", "node_cache_dir": ""}},
            "scale_groups.g.task_runtime",
        ),
    ],
)
def test_contradictions_elsewhere(base, changes, path):
    """The controller fits the platform, and what it promises can be kept."""
    assert problems(changed(base, changes)) == [(path, ProblemKind.CONTRADICTION)]


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (GPU, {"g.min_slices": 3, "g.buffer_slices": 3}),
        (GPU, {"g.task_runtime": "pod", "g.task_image": "iris-task:7"}),
        (LOCAL, {"g.task_runtime": "docker", "g.task_image": "iris-task:7"}),
        (GPU, {"g.slice_template.coreweave.infiniband": False, "g.resources.gpu_count": 4}),
        (
            GPU,
            {
                "g.slice_template.coreweave": {"instance_type": "gd-8xa100-i128", "infiniband": True},
                "g.accelerator_variant": "A100",
            },
        ),
        (GPU, {"defaults": {"task_secrets": {"K": "a/b"}, "task_env": {"L": "x"}}}),
        (GPU, {"g.slice_template.num_vms": 2, "g.slice_template.coreweave.gpu_class": "H100"}),
        (GPU, {"g.slice_template.coreweave.instance_type": "gb200-new", "g.num_vms": 2 * RACK_NODES}),
        (GPU, {"controller": {"durability": "replicated", "replica_prefix": "s3://bucket/journal"}}),
        (GPU, {"controller": {"local": {}}, "defaults": {"bootstrap": {"controller_address": "10.0.0.1:10000"}}}),
        (LOCAL, {"g.resources": {"cpu": 8, "ram": "9GiB"}, "platform.local": {"node_cpu": 8, "node_memory": "9GiB"}}),
    ],
)
def test_pairs_at_the_edge(base, changes):
    """What just fits is taken."""
    assert build_config(changed(base, changes)).scale_groups


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"g.num_vms": 0}, "num_vms"),
        ({"g.resources.gpu_count": -1}, "resources.gpu_count"),
        ({"g.resources.ram": "x", "g.resources.cpu": 0}, "resources.ram resources.cpu"),
        ({"g.max_slices": "3", "g.min_slices": 9}, "max_slices"),
        ({"g.accelerator_variant": None}, "accelerator_variant"),
        ({"g.slice_template.coreweave.instance_type": None}, "slice_template.coreweave.instance_type"),
        ({"platform.coreweave": {}}, "slice_template.coreweave.region"),
        ({"g.resources": None}, "resources.cpu resources.ram accelerator_type"),
    ],
)
def test_nothing_follows_from_what_was_refused(changes, path):
    """A value that is refused or missing is named itself; no contradiction is built upon it."""
    assert sorted(where for where, _ in problems(changed(GPU, changes))) == sorted(
        f"scale_groups.g.{part}" for part in path.split()
    )


def test_groups_that_mean_the_same_machines():
    """Two names that become one in names of machines exclude each other."""
    values = {"platform": {"local": {}}, "scale_groups": {"a_b": {}, "a-b": {}}}
    assert problems(values) == [("scale_groups.a-b", ProblemKind.INVALID_NAME)]


def test_one_quota_is_written_in_one_way():
    """A pool that differs only in case would be shared by nobody; variants are the cloud's own words."""
    groups = {"a": {"quota_pool": "ours"}, "b": {"quota_pool": "ours"}, "c": {"quota_pool": "Ours"}}
    values = {"platform": {"local": {}}, "scale_groups": groups}
    assert problems(values) == [("scale_groups.c.quota_pool", ProblemKind.CONTRADICTION)]
    del groups["c"]
    assert build_config(values).scale_groups["b"].quota_pool == "ours"
    assert problems(changed(GPU, {"g.quota_pool": "h 100"})) == [
        ("scale_groups.g.quota_pool", ProblemKind.INVALID_VALUE)
    ]


def test_names_fit_a_host_name():
    """The cluster's and the group's name together leave room for the rest of a worker's name."""
    assert build_config({"name": "c" * 20, "platform": {"local": {}}, "scale_groups": {"g" * 24: {}}}).name
    values = {"name": "c" * 20, "platform": {"local": {}}, "scale_groups": {"g" * 25: {}}}
    assert problems(values) == [(f"scale_groups.{'g' * 25}", ProblemKind.INVALID_NAME)]
