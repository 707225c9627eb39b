"""Which workers have a link."""

from jobs_world import job_context

from iriscw.jobs.links.links import Links, LinksDecisions
from iriscw.jobs.messages import LinkGone, LinkUnwanted, LinkWanted
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import ActorPath, Spawn, StopChild, StopReason, Tell, Terminated


class Supervisor:
    """``/jobs/links``, its decisions called directly."""

    def __init__(self):
        self.ctx = job_context(path=ActorPath("/jobs/links"))
        self.state = Links()
        self.made = []
        self.rules = LinksDecisions(self.child).rules()

    def child(self, worker_id, incarnation):
        """Note what is made."""
        self.made.append((worker_id, incarnation))
        return ChildSpec(worker_id, Behavior())

    def tell(self, message):
        """Decide; give the commands."""
        return self.rules[type(message)](self.state, message, self.ctx) or ()


def test_links_follow_incarnations():
    """A new incarnation's link starts when the old one is gone; an unwanted one is only stopped."""
    links = Supervisor()
    assert isinstance(links.tell(LinkWanted("w", "a"))[0], Spawn)
    assert isinstance(links.tell(LinkWanted("w", "b"))[0], StopChild)
    assert links.made == [("w", "a")]
    links.tell(Terminated(ActorPath("/jobs/links/w"), StopReason.NORMAL))
    assert links.made == [("w", "a"), ("w", "b")]
    assert links.tell(LinkUnwanted("w", "a")) == ()
    assert isinstance(links.tell(LinkUnwanted("w", "b"))[0], StopChild)
    assert links.tell(Terminated(ActorPath("/jobs/links/w"), StopReason.NORMAL)) == ()
    assert (links.state.running, links.state.wanted) == ({}, {})


def test_quarantined_link_is_reported():
    """The scheduler hears that a worker cannot be told anything."""
    links = Supervisor()
    links.tell(LinkWanted("w", "a"))
    (told,) = links.tell(Terminated(ActorPath("/jobs/links/w"), StopReason.QUARANTINED))
    assert told == Tell(ActorPath("/jobs/scheduler"), LinkGone("w", "a"))
