"""Reasons: one sentence, with counts."""

import pytest
from jobs_world import GIB, worker_info

from iriscw.cloud.model import Capacity, Constraint, Op
from iriscw.fleet.model import FREEZABLE, PACKAGES
from iriscw.jobs.scheduling.placement import Commitment, Inventory, PlacementWish
from iriscw.jobs.scheduling.reasons import explain, lacks_only_software


def fleet(*infos):
    """Return an inventory of usable workers."""
    inventory = Inventory()
    for info in infos:
        inventory.add(info).linked = True
    return inventory


def test_each_cause_is_counted():
    """Full, small, mismatched, drained, lost and connecting workers are told apart."""
    inventory = fleet(*(worker_info(number, zone="a") for number in range(8)), worker_info(8, cpus=1, zone="a"))
    inventory.add(worker_info(9, zone="b"))
    hosts = list(inventory.hosts.values())
    hosts[0].cordon = 1
    hosts[1].lost = True
    hosts[2].linked = False
    for number in (3, 4):
        inventory.commit(hosts[number], f"u{number}", Commitment("job-a", 0, Capacity(3000, GIB)))
    for number in (5, 6, 7):
        inventory.commit(hosts[number], f"u{number}", Commitment("job-a", 0, Capacity(1000, 3 * GIB)))
    wish = PlacementWish(Capacity(2000, 2 * GIB), (Constraint("zone", Op.EQ, ("a",)),))
    assert explain(inventory, wish) == (
        "of 10 workers: 1 is being drained, 1 is out of reach, 1 is connecting, 2 lack CPU, 3 lack memory, "
        "1 is too small (2 CPU asked, 1 there; 2GiB memory asked, 1GiB there), 1 fails the constraint zone=a"
    )


def test_workers_that_install_nothing_are_told_so():
    """In words, and not by the name of the attribute that the job never heard of."""
    wish = PlacementWish(Capacity(1000), (Constraint(PACKAGES, Op.EXISTS),))
    assert explain(fleet(worker_info(0), worker_info(1)), wish) == "of 2 workers: 2 install no packages"


def test_no_worker():
    """Without workers that is the reason."""
    assert explain(Inventory(), PlacementWish(Capacity(1000))) == "no worker is connected"


def test_room_is_no_reason():
    """A task that fits is about to be placed."""
    assert explain(fleet(worker_info(0)), PlacementWish(Capacity(1000))) == "about to be placed"


@pytest.mark.parametrize("wanted", [{"python": "3.12"}, {"constraints": (Constraint(FREEZABLE, Op.EXISTS),)}])
def test_software_alone(wanted):
    """Only a worker that would do but for its Python, or its version of iriscw, makes more of the same useless."""
    inventory = fleet(worker_info(0))
    assert lacks_only_software(inventory, PlacementWish(Capacity(1000), **wanted))
    assert not lacks_only_software(inventory, PlacementWish(Capacity(8000), **wanted))
    assert not lacks_only_software(inventory, PlacementWish(Capacity(1000), python="3.11"))
    assert not lacks_only_software(
        fleet(worker_info(0, freezable="true")), PlacementWish(Capacity(1000), **wanted | {"python": ""})
    )
