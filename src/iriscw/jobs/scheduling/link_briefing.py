"""How the scheduler sees to links: there is one for each worker, and it knows which jobs to hear.

A new scheduler, and new links, have all of them to do at once: some are done at a time (INV-R10).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from iriscw.jobs.job.ledger import Place
from iriscw.jobs.messages import LinkExpects, LinkNeedsDesired, LinkRest, LinkWanted
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.step_limits import STEP_WORKERS
from iriscw.runtime.vocabulary import ActorPath, Command, Context, Continue, Tell


def links_of(ctx: Context) -> ActorPath:
    """Return where the links stand, as the scheduler sees it."""
    return ctx.path.parent / "links"


def link_some(state: Scheduler, ctx: Context) -> Iterator[Command]:
    """Have some links again, or tell some whom to hear; go on at the next turn."""
    for worker_id in list(islice(state.unlinked, STEP_WORKERS)):
        del state.unlinked[worker_id]
        host = state.inventory.hosts.get(worker_id)
        if host is not None:
            yield Tell(links_of(ctx), LinkWanted(worker_id, host.info.incarnation))
    if not state.syncing:
        for place in list(islice(state.links, STEP_WORKERS)):
            del state.links[place]
            yield from brief(state, place, ctx)
    if state.unlinked or (state.links and not state.syncing):
        yield Continue(LinkRest())


def brief(state: Scheduler, place: Place, ctx: Context) -> Iterator[Command]:
    """Tell a link which jobs have attempts on its worker, and these jobs to tell it which."""
    host = state.inventory.hosts.get(place[0])
    if host is None or host.info.incarnation != place[1]:
        return
    host.linked = False
    job_ids = tuple(dict.fromkeys(each.job_id for each in host.commitments.values()))
    yield Tell(links_of(ctx) / place[0], LinkExpects(place[1], job_ids))
    for job_id in job_ids:
        yield Tell(ctx.path.parent / job_id, LinkNeedsDesired(*place))
