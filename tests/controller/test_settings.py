"""The configuration is what fleet and jobs are told."""

import attrs

from iriscw.config.load import build_config
from iriscw.controller import settings
from iriscw.runtime.vocabulary import SECOND

LOCAL = {
    "name": "test",
    "platform": {"local": {}, "timeouts": {"worker_timeout": "20s"}},
    "scale_groups": {
        "a": {"num_vms": 2, "max_slices": 3, "min_slices": 1, "buffer_slices": 1, "priority": 7, "quota_pool": "q"},
        "b": {"timeouts": {"worker_timeout": "5s"}, "attributes": {"zone": "z"}},
    },
}
COREWEAVE = {
    "platform": {"coreweave": {"region": "LGA1"}},
    "scale_groups": {
        "h100": {
            "accelerator_type": "gpu",
            "accelerator_variant": "H100",
            "resources": {"cpu": 128, "ram": "2048GB", "gpu_count": 8},
            "slice_template": {"preemptible": True, "coreweave": {"instance_type": "gd-8xh100ib-i128"}},
        }
    },
}


def test_local_groups() -> None:
    """Counts, priorities and timeouts of each group arrive; pauses that nobody named are short."""
    fleet = settings.fleet_config(build_config(LOCAL))
    first, second = fleet.groups
    assert (first.name, first.num_vms, first.min_slices, first.max_slices) == ("a", 2, 1, 3)
    assert (first.buffer_slices, first.priority, first.quota_pool, second.quota_pool) == (1, 7, "q", "")
    assert (first.timing.liveness_timeout, second.timing.liveness_timeout) == (20 * SECOND, 5 * SECOND)
    assert second.attributes.get("zone") == "z"
    assert first.attributes.get("device-type") == "cpu"
    assert first.timing.failure_backoff <= SECOND
    assert fleet.takeover_delay == 0


def test_coreweave_group() -> None:
    """A GPU group promises its GPUs, names its instance type and waits before it takes over."""
    fleet = settings.fleet_config(build_config(COREWEAVE))
    (group,) = fleet.groups
    assert (group.per_worker.gpu_count, group.per_worker.gpu_class) == (8, "H100")
    assert (group.instance_type, group.region, group.compute_class) == ("gd-8xh100ib-i128", "LGA1", "spot")
    assert (group.attributes.get("preemptible"), group.quota_pool) == ("true", "H100")
    assert fleet.takeover_delay > 0


def test_every_delay_is_one_that_people_notice() -> None:
    """In ns, as all durations within: seconds or milliseconds by mistake would be none at all, or go on for ever."""
    for values in (LOCAL, COREWEAVE):
        for group in settings.fleet_config(build_config(values)).groups:
            delays = attrs.asdict(group.timing)
            assert {name: ns for name, ns in delays.items() if not SECOND // 10 <= ns <= 7200 * SECOND} == {}


def test_clocks_agree() -> None:
    """Heartbeats fit the strictest group; a worker gives up before the controller gives it up."""
    leased = {**LOCAL, "platform": {"local": {}, "timeouts": {"worker_timeout": "20s", "worker_lease": "8h"}}}
    for values in (LOCAL, COREWEAVE, leased):
        config = build_config(values)
        strictest = min(group.timing.liveness_timeout for group in settings.fleet_config(config).groups)
        beats = settings.heartbeats(config)
        assert 0 < beats.shortest_ms < beats.longest_ms
        assert beats.longest_ms * 1_000_000 * 2 < strictest, "one may come with the next, however large the fleet"
        lease_ns = settings.lease_ms(config) * 1_000_000
        assert settings.worker_timeout(config) <= lease_ns < settings.jobs_config(config).settings.lease_grace_ns


def test_the_longest_lease_holds_for_all() -> None:
    """It is twice the longest timeout, unless some group asks for more: workers of all groups are told the same."""
    groups = {"a": {"timeouts": {"worker_timeout": "15s"}}, "b": {"timeouts": {"worker_lease": "10m"}}, "c": {}}
    config = build_config({"platform": {"local": {}}, "scale_groups": groups})
    assert settings.lease_ms(config) == 600_000
    assert settings.jobs_config(config).settings.lease_grace_ns == 615 * SECOND
    assert settings.lease_ms(build_config({"platform": {"local": {}}, "scale_groups": {"a": groups["a"]}})) == 30_000


def test_tasks_are_told_where_stores_are() -> None:
    """As every S3 client reads it, below what the configuration says for tasks itself, in secrets too."""

    def told(**defaults: object) -> dict[str, str]:
        there = {"object_storage_endpoint": "http://cwlota.com", "object_storage_region": "eu-1"}
        platform = {"coreweave": {"region": "LGA1", **there}}
        return settings.task_environment(build_config({**COREWEAVE, "platform": platform, "defaults": defaults}))

    region = {"AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "eu-1"}
    assert told() == {"AWS_ENDPOINT_URL_S3": "http://cwlota.com", **region}
    assert told(task_env={"A": "b", "AWS_ENDPOINT_URL": "http://mine"}) == {
        "A": "b",
        "AWS_ENDPOINT_URL": "http://mine",
        **region,
    }
    assert told(task_secrets={"AWS_ENDPOINT_URL": "there/url"}) == region
    assert settings.task_environment(build_config(LOCAL)) == {}
    assert settings.task_environment(build_config(COREWEAVE)) == {}
