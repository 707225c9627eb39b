"""The tables of slices and places, written out a second time, by hand: whoever changes one has to mean it."""

from iriscw.fleet.lifecycle import POD_TABLE, SLICE_TABLE, PodEvent, SliceEvent
from iriscw.fleet.model import PodState, SliceState

SLICES = """
requested     ASKED            creating
requested     ACKNOWLEDGED     booting
requested     POOL_GONE        failed
requested     GAVE_UP          failed
requested     DISMISSED        draining
creating      ACKNOWLEDGED     booting
creating      GAVE_UP          failed
creating      DISMISSED        draining
booting       NODES_READY      initializing
booting       POOL_GONE        failed
booting       GAVE_UP          failed
booting       DISMISSED        draining
initializing  NODES_MISSING    booting
initializing  WORKERS_READY    ready
initializing  POOL_GONE        failed
initializing  GAVE_UP          failed
initializing  DISMISSED        draining
ready         WORKERS_MISSING  initializing
ready         POOL_GONE        failed
ready         GAVE_UP          failed
ready         DISMISSED        draining
failed        DISMISSED        draining
draining      PODS_OVER        deleting
deleting      ALL_GONE         gone
"""

PLACES = """
vacant      ASKED         creating
vacant      ACKNOWLEDGED  starting
vacant      DISMISSED     removed
creating    ACKNOWLEDGED  starting
creating    REGISTERED    registered
creating    GIVEN_UP      ending
creating    DISMISSED     removing
starting    REGISTERED    registered
starting    GIVEN_UP      ending
starting    DISMISSED     removing
starting    POD_GONE      vacant
registered  GIVEN_UP      ending
registered  DISMISSED     removing
registered  POD_GONE      vacant
ending      DISMISSED     removing
ending      POD_GONE      vacant
removing    POD_GONE      removed
"""


def written_out(text, states, events):
    """Read a table."""
    rows = [line.split() for line in text.strip().splitlines()]
    return {(states(state), events[event]): states(following) for state, event, following in rows}


def leading_on(table, states):
    """Return the rows of a table that lead to a state."""
    return {key: following for key, following in table.items() if isinstance(following, states)}


def test_slices():
    """Exactly these events move a slice; every other pair says why it does not."""
    assert leading_on(SLICE_TABLE, SliceState) == written_out(SLICES, SliceState, SliceEvent)
    assert len(SLICE_TABLE) == len(SliceState) * len(SliceEvent)
    assert all(SLICE_TABLE.values())


def test_places():
    """Exactly these events move a place; every other pair says why it does not."""
    assert leading_on(POD_TABLE, PodState) == written_out(PLACES, PodState, PodEvent)
    assert len(POD_TABLE) == len(PodState) * len(PodEvent)
    assert all(POD_TABLE.values())
