"""The index of workers: first fit compared with a plain search, sums of room, and what is remembered for how long."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given, strategies as st
from jobs_world import GIB, worker_info

from iriscw.cloud.model import Capacity, Constraint, Mode, Op
from iriscw.jobs.scheduling.placement import (
    HEAPS_KEPT,
    LOG_LIMIT,
    MAX_ATTEMPTS_PER_WORKER,
    Commitment,
    Inventory,
    PlacementWish,
)

SMALL = Capacity(1000, GIB)


DEMANDS = [Capacity(cpu, cpu // 1000 * GIB) for cpu in (1000, 2000, 3000)]
ZONES = ["a", "b"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4), st.sampled_from(ZONES)),
        st.tuples(st.just("place"), st.sampled_from(DEMANDS), st.sampled_from([None, *ZONES])),
        st.tuples(st.just("release"), st.integers(0, 99), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 99), st.none()),
        st.tuples(st.just("cordon"), st.integers(0, 99), st.booleans()),
    ),
    max_size=60,
)


def add(inventory, number, **fields):
    """Have a worker that may be used."""
    host = inventory.add(worker_info(number, **fields))
    host.linked = True
    inventory.freed(host)
    return host


def find(inventory, wish):
    """Return the worker for a wish."""
    return inventory.find(wish, inventory.pools_for(wish))


def wish_for(demand, zone):
    """Want a demand, and a zone perhaps."""
    return PlacementWish(demand, () if zone is None else (Constraint("zone", Op.EQ, (zone,)),))


@given(STEPS)
def test_first_fit_and_sums(steps):
    """INV-J3; a place is found exactly when a search of all workers finds one, and is the first of its pool."""
    inventory = Inventory()
    uids = []
    for number, (kind, one, other) in enumerate(steps):
        hosts = list(inventory.hosts.values())
        if kind == "add":
            add(inventory, number, cpus=one, zone=other)
        elif kind == "place":
            wish = wish_for(one, other)
            host = inventory.find(wish, inventory.pools_for(wish))
            fitting = [
                each
                for each in hosts
                if each.takes(one) and all(c.satisfied(each.info.attributes) for c in wish.constraints)
            ]
            assert (host is None) == (not fitting)
            if host is not None:
                assert host in fitting
                assert not any(each.pool is host.pool and each.rank < host.rank for each in fitting)
                inventory.commit(host, f"u{number}", Commitment("job-a", number, one))
                uids.append(f"u{number}")
        elif kind == "release" and uids:
            assert inventory.release(uids.pop(one % len(uids))) is not None
        elif kind == "drop" and hosts:
            inventory.drop(hosts[one % len(hosts)])
        elif kind == "cordon" and hosts:
            host = hosts[one % len(hosts)]
            host.cordon = 1 if other else None
            host.pool.freed(host)
    for host in [*inventory.hosts.values(), *inventory.where.values()]:
        left = host.info.capacity
        for commitment in host.commitments.values():
            left = left.minus(commitment.demand)
        assert left == host.free
        assert min(left.cpu_milli, left.memory_bytes) >= 0
    assert set(inventory.where) == set(uids)


def test_preferred_pools_come_first():
    """A preference orders pools and excludes none."""
    inventory = Inventory()
    add(inventory, 0, zone="a")
    add(inventory, 1, zone="b")
    wish = PlacementWish(SMALL, (Constraint("zone", Op.EQ, ("b",), Mode.PREFERRED),))
    assert [pool.attributes.get("zone") for pool in inventory.pools_for(wish)] == ["b", "a"]


def test_unique_attributes_do_not_divide_pools():
    """Workers that differ in their ids only are one pool."""
    inventory = Inventory()
    for number in range(5):
        add(inventory, number, slice_id=f"s{number % 2}")
    assert len(inventory.pools) == 1


def test_constraints_on_one_worker_or_slice_hold():
    """They are looked at worker by worker; a preference for one does not exclude the others."""
    inventory = Inventory()
    hosts = [add(inventory, number) for number in range(3)]
    for key, value in (("worker-id", hosts[2].info.worker_id), ("slice-id", "slice-2")):
        assert find(inventory, PlacementWish(SMALL, (Constraint(key, Op.EQ, (value,)),))) is hosts[2]
        liked = PlacementWish(SMALL, (Constraint(key, Op.EQ, (value,), Mode.PREFERRED),))
        assert find(inventory, liked) is hosts[0]


def test_python_must_match():
    """A callable meets its own Python only; a worker of unknown Python takes none."""
    inventory = Inventory()
    add(inventory, 0, python="3.11")
    assert len(inventory.pools_for(PlacementWish(SMALL, python="3.11"))) == 1
    assert inventory.pools_for(PlacementWish(SMALL, python="3.12")) == []
    assert len(inventory.pools_for(PlacementWish(SMALL))) == 1


def test_attempts_per_worker_are_bounded():
    """Tiny tasks do not pile up on one worker without bound."""
    inventory = Inventory()
    host = add(inventory, 0)
    wish = PlacementWish(Capacity(cpu_milli=1))
    for number in range(MAX_ATTEMPTS_PER_WORKER):
        assert inventory.find(wish, inventory.pools_for(wish)) is host
        inventory.commit(host, f"u{number}", Commitment("job-a", number, wish.demand))
    assert inventory.find(wish, inventory.pools_for(wish)) is None


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), max_size=8), st.integers(1, 8))
def test_gangs(workers, size):
    """INV-J4: a gang gets a place for each member in one group, exactly when some group has room for all."""
    inventory = Inventory()
    room = {}
    for number, (cpus, group) in enumerate(workers):
        add(inventory, number, cpus=cpus, slice_id=f"s{group}")
        room[group] = room.get(group, 0) + cpus
    wish = PlacementWish(SMALL)
    found = inventory.find_gang(wish, inventory.pools_for(wish), "slice-id", size)
    assert (found is not None) == any(number >= size for number in room.values())
    if found is not None:
        assert len(found) == size
        assert len({host.info.slice_id for host in found}) == 1
        assert all(found.count(host) <= host.info.capacity.cpu_milli // 1000 for host in found)


GANG_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("place"), st.integers(1, 4)),
        st.tuples(st.just("release"), st.integers(0, 99)),
        st.tuples(st.just("drop"), st.integers(0, 99)),
        st.tuples(st.just("cordon"), st.integers(0, 99)),
        st.tuples(st.just("uncordon"), st.integers(0, 99)),
    ),
    max_size=40,
)


@given(GANG_STEPS)
def test_remembered_misses_hide_no_room(steps):
    """INV-J4: that gangs of a kind found no room is forgotten as soon as room is added, in whatever way."""
    inventory = Inventory()
    uids = []
    wish = PlacementWish(SMALL)
    for number, (kind, one) in enumerate(steps):
        hosts = list(inventory.hosts.values())
        if kind == "add":
            inventory.freed(add(inventory, number, cpus=2, slice_id=f"s{one}"))
        elif kind == "place":
            for index, host in enumerate(inventory.find_gang(wish, inventory.pools_for(wish), "slice-id", one) or ()):
                inventory.commit(host, f"u{number}-{index}", Commitment("job-a", index, wish.demand))
                uids.append(f"u{number}-{index}")
        elif kind == "release" and uids:
            inventory.release(uids.pop(one % len(uids)))
        elif kind == "drop" and hosts:
            inventory.drop(hosts[one % len(hosts)])
        elif kind == "cordon" and hosts:
            hosts[one % len(hosts)].cordon = 1
        elif kind == "uncordon" and hosts:
            hosts[one % len(hosts)].cordon = None
            inventory.freed(hosts[one % len(hosts)])
        room = {}
        for host in inventory.hosts.values():
            if host.placeable:
                group = host.info.slice_id
                room[group] = room.get(group, 0) + host.free.times(wish.demand)
        for size in (4, 3, 2, 1):
            found = inventory.find_gang(wish, inventory.pools_for(wish), "slice-id", size)
            assert (found is not None) == any(free >= size for free in room.values())


def test_a_gang_counts_the_attempts_that_a_worker_may_still_take():
    """Not only its room."""
    inventory = Inventory()
    host = add(inventory, 0)
    wish = PlacementWish(Capacity(cpu_milli=1))
    for number in range(MAX_ATTEMPTS_PER_WORKER - 2):
        inventory.commit(host, f"u{number}", Commitment("job-a", number, wish.demand))
    assert inventory.find_gang(wish, inventory.pools_for(wish), "slice-id", 3) is None
    assert inventory.find_gang(wish, inventory.pools_for(wish), "slice-id", 2) == [host, host]


def test_a_gang_keeps_to_its_constraints_and_topology():
    """A worker without the attribute that members share takes none of them."""
    inventory = Inventory()
    hosts = [add(inventory, number, cpus=2, slice_id="s", rack="r") for number in range(2)]
    add(inventory, 2, cpus=9)
    wish = PlacementWish(SMALL)
    assert inventory.find_gang(wish, inventory.pools_for(wish), "rack", 4) == [hosts[0], hosts[0], hosts[1], hosts[1]]
    assert inventory.find_gang(wish, inventory.pools_for(wish), "rack", 5) is None
    only = PlacementWish(SMALL, (Constraint("worker-id", Op.EQ, (hosts[1].info.worker_id,)),))
    assert inventory.find_gang(only, inventory.pools_for(only), "rack", 2) == [hosts[1], hosts[1]]
    assert inventory.find_gang(only, inventory.pools_for(only), "rack", 3) is None


# Workers that go, and what is remembered of them


def test_a_dropped_worker_is_used_no_more_and_its_room_comes_back():
    """It keeps what is committed on it, while another of its id takes its place."""
    inventory = Inventory()
    old = add(inventory, 0)
    inventory.commit(old, "u", Commitment("job-a", 0, SMALL))
    inventory.drop(old)
    assert (old.lost, old.placeable, inventory.hosts, inventory.pools) == (True, False, {}, {})
    new = add(inventory, 0, incarnation="b")
    assert inventory.hosts == {new.info.worker_id: new}
    assert (inventory.release("u"), inventory.release("u")) == (old, None), "it comes back once"
    assert old.free == old.info.capacity
    assert find(inventory, PlacementWish(SMALL)) is new


def test_a_pool_goes_with_its_last_worker():
    """Pools of kinds that nobody has any more are not looked at, nor kept."""
    inventory = Inventory()
    first, second = add(inventory, 0, zone="a"), add(inventory, 1, zone="a")
    before = inventory.generation
    inventory.drop(first)
    assert (len(inventory.pools), inventory.generation) == (1, before)
    inventory.drop(second)
    assert (inventory.pools, inventory.generation > before) == ({}, True)


def test_a_pool_that_is_gone_is_remembered_by_nobody():
    """Nor that a search found no room in it: fleets come and go for years."""
    inventory = Inventory()
    host = add(inventory, 0)
    assert find(inventory, PlacementWish(Capacity(4_000, 1))) is host
    inventory.commit(host, "u", Commitment("job-a", 0, Capacity(4_000, 1)))
    assert find(inventory, PlacementWish(SMALL)) is None
    gone = weakref.ref(host.pool)
    inventory.release("u")
    inventory.drop(host)
    del host
    gc.collect()
    assert gone() is None


def test_ranks_are_never_given_twice():
    """A worker that comes back stands behind all others."""
    inventory = Inventory()
    hosts = [add(inventory, number) for number in range(3)]
    inventory.drop(hosts[0])
    back = add(inventory, 0)
    assert find(inventory, PlacementWish(SMALL)) is hosts[1]
    assert back.rank > hosts[2].rank


def test_the_log_of_a_pool_begins_anew_beyond_its_bound():
    """Not at it: each time it does, all that was known of the pool's room is read again."""
    inventory = Inventory()
    host = add(inventory, 0)
    pool = host.pool
    while len(pool._log) < LOG_LIMIT + 1:
        inventory.freed(host)
    assert pool.freeings == LOG_LIMIT + 1
    inventory.freed(host)
    assert pool._log == []


def test_room_that_comes_back_is_found_after_the_log_began_anew():
    """However often it did: what is full is looked at again when it has room."""
    inventory = Inventory()
    host = add(inventory, 0, cpus=1)
    wish = PlacementWish(SMALL)
    for number in range(LOG_LIMIT + 10):
        assert find(inventory, wish) is host
        inventory.commit(host, f"u{number}", Commitment("job-a", 0, SMALL))
        assert find(inventory, wish) is None
        inventory.release(f"u{number}")
        assert len(host.pool._log) <= LOG_LIMIT + 2
    assert find(inventory, wish) is host


def test_a_search_is_not_begun_anew_for_each_worker_that_has_room_again():
    """What was learned of a full pool is kept: only the worker that was noted is looked at again."""
    inventory = Inventory()
    hosts = [add(inventory, number, cpus=1) for number in range(50)]
    wish = PlacementWish(SMALL)
    for host in hosts:
        inventory.commit(host, f"u{host.rank}", Commitment("job-a", 0, SMALL))
    assert find(inventory, wish) is None
    inventory.release("u30")
    looked = []
    kept, type(hosts[0]).takes = type(hosts[0]).takes, lambda host, demand: looked.append(host) or kept(host, demand)
    try:
        assert find(inventory, wish) is hosts[30]
    finally:
        type(hosts[0]).takes = kept
    assert looked == [hosts[30]]


def test_more_demands_than_heaps_are_served_all_the_same():
    """The heap that was made first is forgotten, and made again."""
    inventory = Inventory()
    host = add(inventory, 0, cpus=4)
    for turn in range(2):
        for size in range(1, HEAPS_KEPT + 3):
            assert find(inventory, PlacementWish(Capacity(size, GIB))) is host, turn
    (pool,) = inventory.pools.values()
    assert len(pool._heaps) <= HEAPS_KEPT


def test_misses_are_remembered_of_so_many_demands_and_no_more():
    """Also of demands that each come once: what was learned first is forgotten, and learned again."""
    inventory = Inventory()
    host = add(inventory, 0)
    inventory.commit(host, "u", Commitment("job-a", 0, host.info.capacity))
    for size in range(1, HEAPS_KEPT + 3):
        assert find(inventory, PlacementWish(Capacity(size, GIB))) is None
        assert len(inventory._misses) == min(size, HEAPS_KEPT)
    assert [key[0].cpu_milli for key in inventory._misses] == list(range(3, HEAPS_KEPT + 3))
