"""How the scheduler hears which machine has which repository: by a session, opened for as long as it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iriscw.jobs.messages import Due
from iriscw.jobs.suspension.messages import FollowRepositories, NodeRepositories
from iriscw.runtime.vocabulary import SECOND, Arrived, Closed, Command, Context, Open, Outcome, SetTimer

if TYPE_CHECKING:
    from iriscw.jobs.scheduling.resuming import Returns
    from iriscw.jobs.scheduling.state import Scheduler

REPOSITORIES = "repositories"

AGAIN = 1 * SECOND
"""Before a session that ended is opened again."""


def follow() -> Command:
    """Have it told from now on."""
    return Open(REPOSITORIES, FollowRepositories())


def follow_again(state: Scheduler, message: Closed, ctx: Context) -> Outcome:
    """Nobody tells any more: what was told holds until somebody tells again."""
    return (SetTimer(REPOSITORIES, AGAIN, Due(REPOSITORIES)),)


def take_note(returns: Returns, message: Arrived) -> None:
    """Look for workers where the repositories of suspended attempts are by now."""
    assert isinstance(message.item, NodeRepositories)
    returns.share(message.item.nodes)
