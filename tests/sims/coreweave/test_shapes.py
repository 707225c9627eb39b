"""What machines offer."""

from iriscw_sims.coreweave.shapes import GENERIC, SHAPES, amounts


def test_quantities_and_amounts_say_the_same():
    """For every type, in the API's words and as numbers."""
    for shape in [*SHAPES.values(), GENERIC]:
        found = shape.amounts
        assert found["cpu"] == shape.cpu * 1000
        assert found["memory"] == shape.memory_gib << 30
        assert found.get("nvidia.com/gpu", 0) == shape.gpus
        assert bool(shape.gpu) == bool(shape.gpus) == bool(shape.gpu_gib)
        assert ("rdma/ib" in found) == shape.infiniband


def test_racks_are_of_superchips():
    """The NVL72 types, and no others."""
    racks = [name for name, shape in SHAPES.items() if shape.rack]
    assert racks == ["verarubin-4x-e", "gb300-4x", "gb300-4x-e", "gb200-4x"]


def test_what_is_finer_than_a_unit_is_rounded_up():
    """Nobody gets more than there is."""
    assert amounts({"cpu": "1500u", "memory": "100m", "x/y": "3"}) == {"cpu": 2, "memory": 1, "x/y": 3}
