"""Orphans: found, asked for within the rate, repeated until gone."""

from __future__ import annotations

from random import Random

import pytest

from iriscw.cloud.effects import DeleteNodePool, DeletePod
from iriscw.cloud.model import Gone, NodePool, Pod, Unavailable
from iriscw.fleet.orphans import Orphans
from iriscw.runtime.vocabulary import Run, SetTimer

POOL = NodePool("p", "u1", "1", {})
POD = Pod("p", "u2", "1", {})


def test_each_is_asked_for_once_by_name_and_uid():
    """Found twice, asked once; a pool and a pod of one name are two orphans."""
    orphans = Orphans()
    for thing in (POOL, POD, POOL):
        orphans.found(thing)
    assert orphans.names == ("pod:p", "pool:p")
    assert orphans.ask(1) == [Run(("orphan", "pool:p"), DeleteNodePool("p", "u1"))]
    assert orphans.ask(5) == [Run(("orphan", "pod:p"), DeletePod("p", "u2"))]
    assert orphans.ask(5) == []


def test_a_successor_is_another_orphan(timing):
    """The removal of the old uid does not end the new one."""
    orphans = Orphans()
    orphans.found(POOL)
    orphans.ask(1)
    orphans.found(NodePool("p", "u9", "1", {}))
    assert not orphans.gone(POOL)
    assert orphans.ask(1) == [Run(("orphan", "pool:p"), DeleteNodePool("p", "u9"))]


@pytest.mark.parametrize("error", [None, Unavailable("x")])
def test_deletion_is_repeated_until_gone(timing, error):
    """An acknowledged deletion is as little believed as a failed one."""
    orphans = Orphans()
    orphans.found(POOL)
    orphans.ask(1)
    (timer,) = orphans.answered("pool:p", error, timing(), Random(1))
    assert isinstance(timer, SetTimer)
    orphans.try_again(timer.message.what)
    assert len(orphans.ask(5)) == 1
    assert orphans.gone(POOL)
    assert orphans.answered("pool:p", error, timing(), Random(1)) == []


def test_absence_ends_it(timing):
    """`Gone` is what was wanted."""
    orphans = Orphans()
    orphans.found(POOL)
    orphans.ask(1)
    assert orphans.answered("pool:p", Gone("x"), timing(), Random(1)) == []
    assert orphans.names == ()


def test_a_list_drops_what_is_not_in_it():
    """Lists of pools say nothing about pods."""
    orphans = Orphans()
    orphans.found(POOL)
    orphans.found(POD)
    orphans.listed(NodePool, ())
    assert orphans.names == ("pod:p",)


def test_the_controllers_pool_is_never_an_orphan():
    """A pool marked for the controller trips an assertion before it is lost."""
    with pytest.raises(AssertionError):
        Orphans().found(NodePool("c", "u", "1", {"iris-role": "controller"}))
