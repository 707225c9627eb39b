"""The demo's course, as far as it needs no cluster: what its checks and its warnings tell the view."""

import logging

from iriscw.cli.demo import story
from iriscw.cli.demo.story import Checks
from iriscw.cli.demo.view import PlainView

LOG = logging.getLogger("iriscw.client")


def said(capsys):
    """Return the lines that were written, without the seconds."""
    return [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()]


def test_a_claim_that_does_not_hold_is_kept(capsys):
    """It fails the demo at its end; what was found instead is told, and only then."""
    checks = Checks(PlainView())
    checks.that(True, "it is there", "nonsense")
    checks.that(False, "it is right", 7)
    assert checks.failed == ["it is right"]
    assert said(capsys) == ["ok: it is there", "NOT SO: it is right (7)"]


def test_what_a_client_warns_of_is_a_step_of_the_story(capsys):
    """That no controller answers is on the screen where it happens, once, and not on standard error."""
    with story._warnings_told(PlainView()):
        LOG.warning("iriscw: cannot reach %s", "a:1")
        LOG.info("nothing")
    assert said(capsys) == ["iriscw: cannot reach a:1"]
    assert not any(isinstance(each, story._Teller) for each in LOG.handlers)
