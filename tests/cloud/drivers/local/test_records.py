"""Records of the local platform: what is saved is what is read, and the budget is never exceeded."""

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.local.records import (
    NodeRecord,
    PodRecord,
    PoolRecord,
    decode_pod,
    decode_pool,
    encode,
    lacking,
    place,
    pool_seen,
)
from iriscw.cloud.model import Capacity, NodePoolSpec, PodPhase, PodSpec

COUNTS = st.integers(0, 8)
CAPACITIES = st.builds(Capacity, COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from(["", "H100"]))
LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
NODES = st.builds(NodeRecord, st.text(max_size=5), st.text(max_size=5), st.integers(1, 60_000), st.booleans())
POOLS = st.builds(
    PoolRecord,
    st.builds(NodePoolSpec, st.text(), st.text(), st.integers(1, 3), LABELS, per_node=CAPACITIES),
    st.uuids().map(str),
    st.integers(0),
    granted=st.booleans(),
    lacking=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    deleting=st.booleans(),
    nodes=st.lists(NODES, max_size=3).map(tuple),
)
PODS = st.builds(
    PodRecord,
    st.builds(PodSpec, st.text(), st.text(), LABELS, CAPACITIES, environment=LABELS),
    st.uuids().map(str),
    st.integers(0),
    phase=st.sampled_from(PodPhase),
    exit_code=st.none() | st.integers(0, 255),
    grace_s=st.floats(0, 1000),
)


@given(POOLS, PODS)
def test_records_survive_the_disk(pool: PoolRecord, pod: PodRecord) -> None:
    """Every field comes back as it was."""
    assert decode_pool(encode(pool)) == pool
    assert decode_pod(encode(pod)) == pod


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"1", b'{"spec": {}}', b"\xff"])
def test_other_files_are_refused(data: bytes) -> None:
    """With one kind of error."""
    for decode in (decode_pool, decode_pod):
        with pytest.raises(ValueError):
            decode(data)


@given(CAPACITIES, st.lists(POOLS, max_size=5))
def test_granted_pools_stay_within_the_budget(budget: Capacity, pools: list[PoolRecord]) -> None:
    """Whatever asks, what is granted together fits."""
    granted: dict[str, PoolRecord] = {}
    for number, pool in enumerate(pools):
        if not lacking(budget, granted, attrs.evolve(pool, granted=False)):
            granted[str(number)] = attrs.evolve(pool, granted=True)
    assert sum(pool.total.cpu_milli for pool in granted.values()) <= budget.cpu_milli
    assert sum(pool.total.gpu_count for pool in granted.values()) <= budget.gpu_count


@given(POOLS, PODS)
def test_a_pod_goes_to_a_ready_node_with_room(pool: PoolRecord, pod: PodRecord) -> None:
    """Or to none."""
    node = place(pool, {}, pod)
    fits = pool.spec.per_node.fits(pod.spec.request)
    assert (node is not None) is (fits and any(each.ready for each in pool.nodes))


@given(st.integers(1, 60_000), st.integers(1, 60_000))
def test_each_node_has_an_address_of_its_own(one: int, two: int) -> None:
    """All of them on this machine's loopback."""
    first, second = (NodeRecord("n", "u", number).address for number in (one, two))
    assert (first == second) is (one == two)
    assert first.startswith("127.")
    assert all(0 <= int(part) <= 255 for part in first.split("."))


@given(POOLS)
def test_what_is_seen_adds_up(pool: PoolRecord) -> None:
    """Ready, booting and missing nodes are the target, where the pool is not over it."""
    seen = pool_seen(pool)
    assert seen.current_nodes + seen.in_progress_nodes + seen.queued_nodes == seen.target_nodes
    assert seen.ready_nodes == seen.current_nodes
