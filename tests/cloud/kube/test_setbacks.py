"""Failures in a row make pauses longer until something moves; silence lasts until somebody is heard."""

from random import Random

from kube_shell import SECOND
from kube_watcher import SETTINGS

from iriscw.cloud.kube.setbacks import Setbacks


def test_a_row_ends_with_progress_only():
    """Not with an answer."""
    setbacks = Setbacks(SETTINGS)
    for number in range(SETTINGS.relist_after):
        assert not setbacks.many
        assert setbacks.row == number
        setbacks.failed(0)
        setbacks.heard()
    assert setbacks.many
    setbacks.progress()
    assert setbacks.row == 0


def test_silence_begins_with_the_first_failure_and_ends_with_any_answer():
    """Whatever the answer is."""
    setbacks = Setbacks(SETTINGS)
    assert setbacks.silence(SECOND) == 0
    setbacks.failed(10)
    setbacks.failed(20)
    assert setbacks.silence(30) == 20
    assert not setbacks.too_long(9 + SETTINGS.patience)
    assert setbacks.too_long(10 + SETTINGS.patience)
    setbacks.progress()
    assert setbacks.silence(30) == 20
    setbacks.stumbled()
    assert setbacks.silence(10**15) == 0
    assert setbacks.row == 1


def test_pauses_grow_with_the_row_up_to_the_most():
    """And are counted."""
    setbacks = Setbacks(SETTINGS)
    for number in range(20):
        setbacks.failed(0)
        span = min(SETTINGS.watch_pause_most, SETTINGS.watch_pause_least * 2**number)
        assert span / 2 <= setbacks.pause(Random(number)) <= span
    assert setbacks.pauses == 20
