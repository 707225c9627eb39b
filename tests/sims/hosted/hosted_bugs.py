"""Bugs planted in the layer of hosted calls: each is a function in which one text stands for another, and a seed."""

import inspect
import textwrap
from contextlib import ExitStack, contextmanager
from unittest import mock

import attrs

from iriscw.client import hosted as client
from iriscw.hosted.drivers import link, streams
from iriscw.task import hosting


@attrs.frozen
class HostedBug:
    """What is planted. ``edits`` are an owner, the name of its function, what stands there, and what does then."""

    name: str
    edits: tuple[tuple[object, str, str, str], ...]
    seed: int
    """One that has shown it."""


@contextmanager
def planted(bug):
    """Have the bug in a block."""
    with ExitStack() as stack:
        for owner, name, before, after in bug.edits:
            found = inspect.getattr_static(owner, name)
            source = textwrap.dedent(inspect.getsource(found.fget if isinstance(found, property) else found))
            assert source.count(before) == 1, f"{bug.name}: {name} has {before!r} {source.count(before)} times"
            module = inspect.getmodule(owner)
            space = dict(vars(module))
            exec(compile(source.replace(before, after), f"<{bug.name}>", "exec"), space)
            changed = space[name]
            changed = getattr(changed, "__func__", changed) if isinstance(found, staticmethod) else changed
            # What the world makes small it makes small in the module: the function looks there.
            if inspect.isfunction(changed):
                changed = type(changed)(changed.__code__, vars(module), name, changed.__defaults__, changed.__closure__)
                changed.__kwdefaults__ = getattr(found, "__kwdefaults__", None)
            elif isinstance(changed, property):
                changed = property(type(changed.fget)(changed.fget.__code__, vars(module), name))
            if isinstance(found, staticmethod):
                changed = staticmethod(changed)
            stack.enter_context(mock.patch.object(owner, name, changed))
        yield


def _bug(name, owner, function, before, after, *more, seed=0):
    return HostedBug(name, ((owner, function, before, after), *more), seed)


HOST, LINK = hosting.ActorHost, hosting.HostedLink
BUGS = (
    _bug("taken-back-and-run", LINK, "withdraw", "call.withdrawn = True", "call.withdrawn = call.begun"),
    _bug("withdrawn-calls-begin", HOST, "_work_off", "elif not call.withdrawn:", "else:"),
    _bug("calls-of-the-gone-begin", LINK, "ended", "self.withdraw(number, lost=True)", "pass", seed=2),
    _bug("cancelled-without-a-word", client._Outgoing, "over", "link.send(FrameKind.CANCEL, number)", "pass", seed=20),
    _bug("an-answered-key-runs-again", HOST, "put_keyed", "known = running or kept", "known = running"),
    _bug("a-running-key-runs-again", HOST, "put_keyed", "self._keyed.get(call.key), self", "None, self", seed=2),
    _bug("a-lost-key-is-cancelled", HOST, "keep_on", "(call.begun and lost)", "not lost", seed=2),
    _bug("a-key-taken-back-stays", HOST, "keep_on", "self._keyed.pop(call.key, None)", "pass"),
    _bug("one-of-a-key-is-answered", HOST, "_answer_keyed", "call.waiters or ()", "(call.waiters or [])[:1]", seed=10),
    _bug("errors-of-keys-are-values", hosting, "_kept", "FrameKind.FAILED if kept.failed else ", "", seed=12),
    _bug("room-is-not-given-back", HOST, "_take", "self._free(call.size_bytes)", "pass"),
    _bug("what-is-half-read-counts-for-ever", HOST, "leave", "freed = admitted_bytes + ", "freed = ", seed=2),
    _bug("a-mailbox-without-end", HOST, "has_room", "self._waiting_bytes + size_bytes > W", "size_bytes > W", seed=2),
    _bug("the-held-are-forgotten", HOST, "_free", "link.go_on()", "pass", seed=2),
    _bug("one-call-too-many", client._CallLink, "has_room", "< WINDOW", "<= WINDOW", seed=5),
    _bug("the-last-is-first", client.ActorCalls, "_begin", "_line.append(call)", "_line.appendleft(call)"),
    _bug(
        "lost-calls-are-sent-again",
        client.ActorCalls,
        "_lose",
        "if call.patience is not None and",
        "if",
        (client._CallLink, "post", "if call.patience is None:", "if False:"),
        seed=1,
    ),
    _bug(
        "nobody-is-told-of-a-break",
        client._CallLink,
        "ended",
        "self._lose([each for each in waiting.values() if not each.future.done()], why)",
        "pass",
        seed=1,
    ),
    _bug(
        "a-refused-dial-is-the-end",
        client.ActorCalls,
        "_dialled",
        "(OSError, TimeoutError, CallRefused)",
        "TimeoutError",
        seed=2,
    ),
    _bug(
        "tags-are-not-compared",
        link.ActorLink,
        "_deliver",
        "if not self._receiving.holds([text, body], tag):",
        "if self._receiving.holds([text, body], tag) is None:",
        seed=2,
    ),
    _bug(
        "any-attempt-is-believed",
        link.ServerLink,
        "take_greeting",
        "if not hmac.compare_digest(",
        "if None is hmac.compare_digest(",
        (link.CallerLink, "take_greeting", "if not hmac.compare_digest(", "if None is hmac.compare_digest("),
        seed=7,
    ),
    _bug("a-header-in-pieces", link.ActorLink, "_take", "if have < length:", "if have < HEADER_BYTES:"),
    _bug("one-more-at-once", HOST, "serve", "range(self._concurrency)", "range(self._concurrency + 1)"),
    _bug(
        "answers-of-others",
        HOST,
        "_answer",
        "call.link.send(kind, call.number, parts)",
        "call.link.send(kind, max([call.number, *call.link.calls]), parts)",
    ),
    _bug(
        "a-tell-of-a-gone-caller-is-dropped",
        LINK,
        "ended",
        "for number in [*self.calls]:",
        "for a in self._host._mailbox:\n        a.withdrawn |= a.link is self\n    for number in [*self.calls]:",
        seed=49,
    ),
    _bug("a-stream-runs-ahead", streams.StreamSender, "room", "not self._window.has_room", "False"),
    _bug("nobody-says-what-was-read", streams.StreamArrivals, "next", "self._more(count)", "pass"),
    _bug("a-lost-stream-ends-well", client.ActorCalls, "begin_stream", "arrivals.end()", "None"),
)
