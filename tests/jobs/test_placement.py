"""First fit over the index, compared with a plain search; sums of room."""

from hypothesis import given, strategies as st
from jobs_world import GIB, worker_info

from iriscw.cloud.model import Capacity, Constraint, Mode, Op
from iriscw.jobs.scheduling.placement import MAX_ATTEMPTS_PER_WORKER, Commitment, Inventory, PlacementWish

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
    host.pool.freed(host)
    return host


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


def test_release_happens_once():
    """Room comes back once, whoever gives it back how often."""
    inventory = Inventory()
    host = add(inventory, 0)
    inventory.commit(host, "u", Commitment("job-a", 0, DEMANDS[0]))
    assert inventory.release("u") is host
    assert inventory.release("u") is None
    assert host.free == host.info.capacity


def test_preferred_pools_come_first():
    """A preference orders pools and excludes none."""
    inventory = Inventory()
    add(inventory, 0, zone="a")
    add(inventory, 1, zone="b")
    wish = PlacementWish(DEMANDS[0], (Constraint("zone", Op.EQ, ("b",), Mode.PREFERRED),))
    assert [pool.attributes.get("zone") for pool in inventory.pools_for(wish)] == ["b", "a"]


def test_unique_attributes_do_not_divide_pools():
    """Workers that differ in their ids only are one pool; a constraint on an id still holds."""
    inventory = Inventory()
    for number in range(5):
        add(inventory, number, slice_id=f"s{number % 2}")
    assert len(inventory.pools) == 1
    wish = PlacementWish(DEMANDS[0], (Constraint("slice-id", Op.EQ, ("s1",)),))
    host = inventory.find(wish, inventory.pools_for(wish))
    assert host is not None
    assert host.info.slice_id == "s1"


def test_python_must_match():
    """A callable meets its own Python only; a worker of unknown Python takes none."""
    inventory = Inventory()
    add(inventory, 0, python="3.11")
    assert len(inventory.pools_for(PlacementWish(DEMANDS[0], python="3.11"))) == 1
    assert inventory.pools_for(PlacementWish(DEMANDS[0], python="3.12")) == []
    assert len(inventory.pools_for(PlacementWish(DEMANDS[0]))) == 1


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
    wish = PlacementWish(DEMANDS[0])
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
    wish = PlacementWish(DEMANDS[0])
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
