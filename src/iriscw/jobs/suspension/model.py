r"""Where an attempt stands that is suspended and resumed.

::

    RUNS --asked--> ASKED --freezing--> FREEZING --frozen--> FROZEN --suspended--> SUSPENDED --resuming--> RESUMING
     ^ ^              |                    |                                                                  |
     | '---undone-----+--------------------'                           ^--------------unplaced----------------+
     '--------------------------------------------resumed-----------------------------------------------------'

========== ========================================================================= ==========
stage      what is so                                                                told as
========== ========================================================================= ==========
RUNS       it is as any other: never suspended, or back, or it was undone            NONE
ASKED      its worker is told that it will be frozen; nobody may do so yet           SUSPENDING
FREEZING   somebody may be freezing it                                               SUSPENDING
FROZEN     it is a checkpoint; its worker has not said that nothing of it runs       SUSPENDING
SUSPENDED  it has no worker and takes no room; it may wait for a worker              SUSPENDED
RESUMING   one worker has a grant to bring it back                                     RESUMING
========== ========================================================================= ==========

From each of them it may end. One that is FREEZING may lose its worker: then it has none and takes no room, and what
becomes of it is what became of its freeze. One that was *given up* is being stopped because it can neither be suspended
nor go on: it ends as lost.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from iriscw.jobs.model import Suspension

Labels = tuple[tuple[str, str], ...]
"""Names and values, in order."""


class Stage(enum.Enum):
    """Where a suspension stands."""

    RUNS = "runs"
    ASKED = "asked"
    FREEZING = "freezing"
    FROZEN = "frozen"
    SUSPENDED = "suspended"
    RESUMING = "resuming"


TOLD: Mapping[Stage, Suspension] = {
    Stage.RUNS: Suspension.NONE,
    Stage.ASKED: Suspension.SUSPENDING,
    Stage.FREEZING: Suspension.SUSPENDING,
    Stage.FROZEN: Suspension.SUSPENDING,
    Stage.SUSPENDED: Suspension.SUSPENDED,
    Stage.RESUMING: Suspension.RESUMING,
}

SUSPENDING = (Stage.ASKED, Stage.FREEZING, Stage.FROZEN)
"""Its worker is to let it be frozen."""

MARKED = (Stage.FREEZING, Stage.FROZEN, Stage.SUSPENDED, Stage.RESUMING)
"""Its freeze has made a checkpoint, or may have."""
