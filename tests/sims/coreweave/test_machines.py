"""Machines and addresses."""

from iriscw_sims.coreweave.machines import Addresses, Machine
from iriscw_sims.coreweave.shapes import GENERIC


def machine(**changes):
    """Return a machine."""
    return Machine("n", "p", "uid", 0, GENERIC, "10.0.0.1", 0, dict(GENERIC.amounts), **changes)


def test_amounts_are_taken_and_given_back():
    """Exactly."""
    found = machine()
    before = dict(found.free)
    found.take({"cpu": 5, "pods": 1})
    assert not found.idle
    assert found.free["cpu"] == before["cpu"] - 5
    found.give({"cpu": 5, "pods": 1})
    assert found.free == before
    assert found.idle


def test_what_lacks_is_named():
    """Also what the machine never had."""
    found = machine()
    assert found.lacking({"cpu": 1}) == ()
    assert found.lacking({"cpu": 10**9, "nvidia.com/gpu": 1}) == ("cpu", "nvidia.com/gpu")


def test_usable_is_ready_not_leaving_and_not_cordoned():
    """Taints apart."""
    assert not machine().usable
    assert machine(ready=True).usable
    assert not machine(ready=True, leaving=True).usable
    assert not machine(ready=True, item={"spec": {"unschedulable": True}}).usable


def test_up_needs_power_and_a_network():
    """Both."""
    assert machine().up
    assert not machine(powered=False).up
    assert not machine(reachable=False).up


def test_addresses_are_used_again_soon():
    """The last one first; otherwise each is new."""
    addresses = Addresses()
    first, second = addresses.take(), addresses.take()
    assert first != second
    addresses.give(first)
    assert addresses.take() == first
    many = [addresses.take() for _ in range(70_000)]
    assert len({*many}) == 70_000
    assert all(int(part) < 256 for each in many[::997] for part in each.split("."))


def test_clusters_side_by_side_begin_at_other_addresses():
    """Or workers on one machine would listen where others do."""
    assert Addresses().take() == "10.0.0.1"
    assert Addresses(first=0x51001).take() == "10.5.16.1"
