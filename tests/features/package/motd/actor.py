"""``/motd``, durable: the text, and how often it was set. Decisions are pure."""

import attrs

from iriscw.journal.records import record
from iriscw.runtime import Behavior, ChildSpec, Decision, Reply
from iriscw.runtime.vocabulary import message


@message
class SetText:
    """Have another text; answered with the ``TextSet``, once that is on disk."""

    text: str


@message
class GetText:
    """Asks for the last ``TextSet``."""


@record("motd.text_set")
@message
class TextSet:
    """There is another text."""

    text: str = ""
    count: int = 0


@attrs.define
class Motd:
    now: TextSet = attrs.field(factory=TextSet)


def set_text(motd, message, ctx):
    taken = TextSet(message.text, motd.now.count + 1)
    return Decision(records=(taken,), commands=(Reply(taken),))


def get_text(motd, message, ctx):
    return (Reply(motd.now),)


def evolve(motd, record):
    motd.now = record


def motd_child():
    rules = {SetText: set_text, GetText: get_text}
    return ChildSpec("motd", Behavior(initial=Motd, on=rules, evolve=evolve, compact=lambda motd: (motd.now,)))
