"""From a file to a configuration."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from iriscw._errors import UsageError
from iriscw.config.errors import (
    PROBLEMS_SHOWN,
    ConfigError,
    ConfigSyntaxError,
    ConfigTooLarge,
    ConfigUnreadable,
    Problem,
    ProblemKind,
)
from iriscw.config.load import FILE_LIMIT_BYTES, build_config, load_config, parse_config
from iriscw.config.model import AcceleratorType, Durability, PlatformKind
from raised import that

SECOND = 1_000_000_000
DATA = Path(__file__).parent / "data"


def problems(text):
    """Return what is wrong with a text, as (line, path, kind)."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return [(problem.line, problem.path, problem.kind) for problem in caught.value.problems]


def test_the_first_seeds_cluster():
    """The configuration in the first seed's ConfigMap loads unchanged."""
    config = load_config(DATA / "seed-000-cluster.yaml")
    group = config.scale_groups["h100_8x"]
    assert config.platform.kind is PlatformKind.COREWEAVE
    assert config.platform.coreweave.region == "LGA1"
    assert config.controller.coreweave.service_name == "iris-controller-svc"
    assert config.controller.port == 10000
    assert config.defaults.bootstrap.docker_image == "<registry>/iris-worker:latest"
    assert group.name == "h100_8x"
    assert group.accelerator_type is AcceleratorType.GPU
    assert group.resources.ram_bytes == 2048 * 10**9
    assert group.resources.cpu_milli == 128_000
    assert (group.min_slices, group.max_slices) == (0, 10)
    assert group.timeouts.boot_timeout == 1800 * SECOND
    assert group.autoscaler.startup_grace_period == 2400 * SECOND
    assert group.slice_template.coreweave.gpus_per_node == 8
    assert group.slice_template.coreweave.gpu_class == "H100"


def test_the_first_seeds_smoke_test():
    """The configuration of the first seed's test loads unchanged."""
    config = load_config(DATA / "seed-000-smoke.yaml")
    group = config.scale_groups["cpu_test"]
    assert config.platform.coreweave.namespace == "iris-test"
    assert group.autoscaler.scale_down_delay == 30 * SECOND
    assert group.slice_template.coreweave.instance_type == "<cpu-only-instance>"
    assert group.slice_template.coreweave.gpus_per_node == 0
    assert config.defaults.bootstrap.controller_address == "iris-controller-svc.iris-test.svc.cluster.local:10000"


def test_the_second_seeds_group():
    """The second seed's configuration loads unchanged; what it leaves out has the documented defaults."""
    config = load_config(DATA / "seed-001-h100.yaml")
    group = config.scale_groups["h100_8x"]
    assert config.platform.coreweave.kubeconfig_path == "~/.kube/coreweave-config"
    assert group.slice_template.coreweave.infiniband is True
    assert group.slice_template.num_vms == 1
    assert config.controller.coreweave.port == 10000
    assert config.controller.durability is Durability.LOCAL
    assert config.defaults.bootstrap.worker_port == 10001


def test_api_defaults_of_coreweave():
    """The delays are those that the documentation promises."""
    config = load_config(DATA / "seed-001-h100.yaml")
    timeouts, scaling = config.defaults.timeouts, config.defaults.autoscaler
    assert timeouts.init_timeout == timeouts.requesting_timeout == 1800 * SECOND
    assert timeouts.boot_timeout == 3600 * SECOND
    assert (timeouts.worker_health_timeout, timeouts.api_timeout) == (120 * SECOND, 60 * SECOND)
    assert scaling.startup_grace_period == 5400 * SECOND
    assert scaling.evaluation_interval == 10 * SECOND
    assert (scaling.scale_up_delay, scaling.scale_down_delay) == (60 * SECOND, 300 * SECOND)
    assert config.platform.coreweave.namespace == "iris"
    assert config.controller.coreweave.service_name == "iris-controller-svc"


def test_local_has_seconds_where_coreweave_has_minutes():
    """Each delay of the local platform is at least 10 times shorter, but for the call of an API."""
    local = build_config({"platform": {"local": {}}}).defaults
    far = load_config(DATA / "seed-001-h100.yaml").defaults
    assert local.autoscaler.scale_up_delay * 10 <= far.autoscaler.scale_up_delay
    assert local.autoscaler.scale_down_delay * 10 <= far.autoscaler.scale_down_delay
    assert local.timeouts.boot_timeout * 10 <= far.timeouts.boot_timeout
    assert local.timeouts.init_timeout * 10 <= far.timeouts.init_timeout


def test_all_problems_at_once():
    """One error names every wrong key with its line, and the nearest valid one."""
    text = """\
platform:
  coreweave:
    regio: LGA1
    namespace: UP
scale_group: {}
scale_groups:
  h100:
    num_vms: 0
    max_slices: many
    resources: {cpu: 1, ram: 5gb}
    slice_template:
      coreweave: {region: LGA1, instance_type: x}
"""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="my.yaml")
    error = caught.value
    assert isinstance(error, UsageError)
    assert [(problem.line, problem.path) for problem in error.problems] == [
        (3, "platform.coreweave.regio"),
        (4, "platform.coreweave.namespace"),
        (5, "scale_group"),
        (8, "scale_groups.h100.num_vms"),
        (9, "scale_groups.h100.max_slices"),
        (10, "scale_groups.h100.resources.ram"),
    ]
    assert "my.yaml: line 3: platform.coreweave.regio: unknown key; did you mean region?" in str(error)
    assert "did you mean scale_groups?" in str(error)
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


def test_an_error_is_bounded():
    """A text that is wrong everywhere gives every problem, and a message that ends."""
    text = "platform: {local: {}}\n" + "".join(f"k{n}: 1\n" for n in range(500))
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert len(caught.value.problems) == 500
    assert str(caught.value).count("\n") == PROBLEMS_SHOWN
    assert "and 450 more" in str(caught.value)


@pytest.mark.parametrize("name", ["gcp", "manual"])
@pytest.mark.parametrize(
    "text",
    [
        "platform: {NAME: {project_id: x}}",
        "platform: {local: {}}\ncontroller: {NAME: {zone: a}}",
        "platform: {local: {}}\nscale_groups: {g: {slice_template: {NAME: {hosts: [a]}}}}",
    ],
)
def test_what_iris_has_and_iriscw_does_not(name, text):
    """gcp and manual are known by name, and refused as not supported: once, and as nothing else."""
    assert [kind for _, _, kind in problems(text.replace("NAME", name))] == [ProblemKind.NOT_SUPPORTED]


@pytest.mark.parametrize("text", ["", "{}", "name: x", "platform:", "platform: {}"])
def test_a_platform_must_be_said(text):
    """Nothing can be guessed from an empty file."""
    assert [kind for _, _, kind in problems(text)] == [ProblemKind.MISSING_KEY]


@pytest.mark.parametrize(
    "text",
    ["5", "platform: 5", "platform: [local]", "platform: {local: 3}", "platform: {local: {}}\ndefaults: 1",
     "platform: {local: {}}\nscale_groups: [a]", "platform: {local: {}}\nscale_groups: {a: 1}",
     "platform: {local: {}}\ncontroller: x", "platform: {local: {}}\ndefaults: {timeouts: 5}",
     "platform: {local: {}, timeouts: []}\nscale_groups: {a: {}}", "platform: {local: {boot_delay: }}",
     "platform: {local: {}}\nscale_groups: {a: {resources: 1, slice_template: {local: 1}}}"],
)  # fmt: skip
def test_wrong_shapes(text):
    """A value where a section belongs is named as such, and nothing is concluded from it."""
    kinds = [kind for _, _, kind in problems(text)]
    assert kinds
    assert set(kinds) == {ProblemKind.INVALID_VALUE}


def test_a_missing_platform_hides_no_other_problem():
    """A slip in the platform's name is reported beside the rest."""
    found = problems("platfrom: {local: {}}\nname: UP\n")
    assert sorted(path for _, path, _ in found) == ["name", "platform", "platfrom"]


def test_sections_may_be_empty():
    """A section without keys is what its defaults are."""
    assert parse_config("platform: {local: }") == parse_config("platform: {local: {}}")


def test_a_key_that_occurs_twice():
    """The later of two equal keys is refused, with both lines."""
    text = "platform: {local: {}}\nname: a\nname: b\n"
    assert problems(text) == [(3, "name", ProblemKind.DUPLICATE_KEY)]


def test_limits(tmp_path):
    """Size and number of groups are bounded by named errors."""
    groups = "".join(f"  g{n}: {{}}\n" for n in range(1001))
    text = f"platform: {{local: {{}}}}\nscale_groups:\n{groups}"
    assert [kind for _, _, kind in problems(text)] == [ProblemKind.LIMIT_EXCEEDED]
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (FILE_LIMIT_BYTES + 1))
    with pytest.raises(ConfigTooLarge, check=that(comes_from="load.load_config", names="1048576")):
        load_config(large)
    with pytest.raises(ConfigTooLarge):
        parse_config("#" * (FILE_LIMIT_BYTES + 1))


@pytest.mark.parametrize("name", ["H100", "-a", "a_", "a.b", "ä", "a" * 41, '""'])
def test_group_names(name):
    """A group's name becomes part of a machine's name, so it must be able to."""
    text = f"platform: {{local: {{}}}}\nscale_groups:\n  {name}: {{}}\n"
    assert [kind for _, _, kind in problems(text)] == [ProblemKind.INVALID_NAME]


def test_unreadable_files(tmp_path):
    """A missing file, a folder, a pipe and a file of another encoding are refused by name, and none of them waits."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"name: \xff")
    for name, says in (
        ("absent", that(names=os.strerror(errno.ENOENT))),
        (".", that(names=os.strerror(errno.EISDIR))),
        ("pipe", that(comes_from="load.load_config")),
        ("latin", that(comes_from="load.load_config")),
        ("\0", that(comes_from="load.load_config")),
    ):
        with pytest.raises(ConfigUnreadable, check=says):
            load_config(os.path.join(tmp_path, name))  # noqa: PTH118 - Path would refuse the last one


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [", 1), ("a: &x 1", 1), ("a: 1\nb: *a", 2), ("a: !!python/object:os.system x", 1), ("a: 1\n---\nb: 2", 3),
     ("[" * 100, 1), ("? [a]\n: 1", 1), ("a: \x01", 0)],
)  # fmt: skip
def test_yaml_that_a_configuration_may_not_use(text, line):
    """Broken YAML, aliases, tags, second documents and deep nesting are refused with their line."""
    with pytest.raises(ConfigSyntaxError) as caught:
        parse_config(text)
    assert [problem.line for problem in caught.value.problems] == [line]


def test_problems_read_well():
    """A problem without a line or without a key shows what it has."""
    assert str(Problem(ProblemKind.INVALID_VALUE, "a.b", 3, "no")) == "line 3: a.b: no"
    assert str(Problem(ProblemKind.INVALID_VALUE, "", 0, "no")) == "no"


@pytest.mark.parametrize(
    ("endpoint", "region", "wrong"),
    [
        ("http://cwlota.com", "US-EAST-04A", ""),
        ("https://[fd00::1]:65535", "auto", ""),
        ("http://10.0.0.1:9000", "eu-1", ""),
        ("cwlota.com", "", "object_storage_endpoint"),
        ("ftp://cwlota.com", "", "object_storage_endpoint"),
        ("http://cwlota.com/", "", "object_storage_endpoint"),
        ("http://cwlota.com:65536", "", "object_storage_endpoint"),
        ("http://cwlota.com:0", "", "object_storage_endpoint"),
        ("http://me:key@cwlota.com", "", "object_storage_endpoint"),
        ("http://cwlota.com?x", "", "object_storage_endpoint"),
        ("", "eu 1", "object_storage_region"),
    ],
)
def test_where_an_object_store_is(endpoint, region, wrong):
    """A scheme, a host and perhaps a port; what is wrong is refused by its key."""
    keys = f"object_storage_endpoint: '{endpoint}', object_storage_region: '{region}'"
    text = f"platform:\n  coreweave: {{region: LGA1, {keys}}}\n"
    if wrong:
        assert problems(text) == [(2, f"platform.coreweave.{wrong}", ProblemKind.INVALID_VALUE)]
    else:
        found = parse_config(text).platform.coreweave
        assert (found.object_storage_endpoint, found.object_storage_region) == (endpoint, region)
