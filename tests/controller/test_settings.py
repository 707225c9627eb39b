"""The configuration is what fleet and jobs are told."""

from iriscw.config.load import build_config
from iriscw.controller import settings
from iriscw.runtime.vocabulary import SECOND

LOCAL = {
    "name": "test",
    "platform": {"local": {}, "timeouts": {"worker_timeout": "20s"}},
    "scale_groups": {
        "a": {"num_vms": 2, "max_slices": 3, "min_slices": 1, "buffer_slices": 1, "priority": 7},
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
    assert (first.buffer_slices, first.priority) == (1, 7)
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
    assert group.attributes.get("preemptible") == "true"
    assert fleet.takeover_delay > 0


def test_clocks_agree() -> None:
    """Heartbeats fit the strictest group; a worker gives up before the controller gives it up."""
    for values in (LOCAL, COREWEAVE):
        config = build_config(values)
        strictest = min(group.timing.liveness_timeout for group in settings.fleet_config(config).groups)
        assert settings.heartbeat_interval_ms(config) * 1_000_000 * 2 < strictest
        lease_ns = settings.lease_ms(config) * 1_000_000
        assert settings.worker_timeout(config) <= lease_ns < settings.jobs_config(config).settings.lease_grace_ns
