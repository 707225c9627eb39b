"""``/jobs/links``: which workers have a link, also when the scheduler, a link or a mailbox fails."""

from __future__ import annotations

from jobs_world import job_context

from iriscw.jobs.links.links import Links, LinksDecisions
from iriscw.jobs.messages import AnnounceLink, LinkGone, LinksAwake, LinkUnwanted, LinkWanted
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    ReviveChild,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)

LINKS, SCHEDULER = ActorPath("/jobs/links"), ActorPath("/jobs/scheduler")


CTX = job_context(path=LINKS)


DECISIONS = LinksDecisions(lambda worker_id, incarnation: ChildSpec(worker_id, Behavior()))


def tell(links, message):
    """Decide; give the commands."""
    return DECISIONS.rules()[type(message)](links, message, CTX) or ()


def test_a_new_one_asks_which_links_are_wanted():
    """It knows none: the scheduler says."""
    assert DECISIONS.resume(Links(), CTX) == (Tell(SCHEDULER, LinksAwake()),)


def test_a_link_that_is_there_announces_itself():
    """It is revived if it was put aside, and not started twice."""
    links = Links()
    assert [type(each) for each in tell(links, LinkWanted("w", "a"))] == [Spawn]
    assert tell(links, LinkWanted("w", "a")) == (ReviveChild("w"), Tell(LINKS / "w", AnnounceLink()))


def test_another_incarnation_waits_for_the_end_of_the_first():
    """Which is watched, and asked for once for each that comes."""
    links = Links()
    tell(links, LinkWanted("w", "a"))
    for incarnation in ("b", "c"):
        assert tell(links, LinkWanted("w", incarnation)) == (StopChild("w"), Watch(LINKS / "w"))
    (spawned,) = tell(links, Terminated(LINKS / "w", StopReason.NORMAL))
    assert (type(spawned), links.running) == (Spawn, {"w": "c"})


def test_a_link_that_nobody_wants_is_stopped_and_watched():
    """What is unwanted but not wanted any more anyway changes nothing; the end of a stranger neither."""
    links = Links()
    tell(links, LinkWanted("w", "b"))
    assert tell(links, LinkUnwanted("w", "a")) == ()
    assert tell(links, LinkUnwanted("w", "b")) == (StopChild("w"), Watch(LINKS / "w"))
    assert tell(links, LinkUnwanted("w", "b")) == ()
    assert tell(links, Terminated(LINKS / "x", StopReason.NORMAL)) == ()
    assert tell(links, Terminated(LINKS / "w", StopReason.NORMAL)) == ()
    assert (links.running, links.wanted) == ({}, {})


def test_a_quarantined_link_is_reported_and_still_there():
    """The scheduler hears that a worker cannot be told anything; the link is revived when it is wanted again."""
    links = Links()
    tell(links, LinkWanted("w", "a"))
    (told,) = tell(links, Terminated(LINKS / "w", StopReason.QUARANTINED))
    assert told == Tell(SCHEDULER, LinkGone("w", "a"))
    assert ReviveChild("w") in tell(links, LinkWanted("w", "a"))


def test_what_found_a_full_mailbox_is_asked_for_again():
    """All of it: the scheduler says anew which links are wanted."""
    (clock,) = tell(Links(), Undelivered(SCHEDULER, LinksAwake()))
    assert clock.delay == SECOND
    assert tell(Links(), clock.message) == (Tell(SCHEDULER, LinksAwake()),)
