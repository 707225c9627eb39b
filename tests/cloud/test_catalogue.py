"""The catalogue is of one piece, and agrees with the simulated cloud, which has a table of its own."""

from iriscw.cloud.catalogue import CATALOGUE, instance_type
from iriscw_sims.coreweave.shapes import SHAPES


def test_entries_make_sense():
    """Who has GPUs has a class of them, if it is published, and pods get less than the machine has."""
    for name, node in CATALOGUE.items():
        assert node.name == name == name.lower()
        assert bool(node.gpus) == (node.gpu_class != "")
        assert 0 < node.for_pods.cpu_milli < node.vcpu * 1000
        assert 0 < node.for_pods.memory_bytes < node.memory_gb * 10**9


def test_names_are_not_guessed():
    """What is not in the table is not known."""
    assert instance_type("gd-8xh100ib-i128").gpus == 8
    assert instance_type("GD-8XH100IB-I128") is None


def test_the_simulated_cloud_has_the_same_machines():
    """As far as both know a type: GPUs, their class, CPU, memory, InfiniBand and architecture."""
    for name, shape in SHAPES.items():
        node = CATALOGUE[name]
        assert (node.gpus, node.vcpu, node.memory_gb) == (shape.gpus, shape.cpu, shape.memory_gib)
        assert node.gpu_class in (None, shape.gpu)
        assert node.infiniband in (None, shape.infiniband)
        assert node.arm == shape.arm
