"""The facts on disk: what was written by this version is read by every later one."""

import pytest

from iriscw.journal.entries import Entry, Kind
from iriscw.journal.records import REGISTRY
from iriscw.worker.model import Fault, Outcome, ResultFacts, StopCause
from iriscw.worker.records import (
    AttemptAccepted,
    AttemptContinued,
    AttemptDropped,
    AttemptEnded,
    AttemptGranted,
    AttemptKnown,
    AttemptStarted,
    AttemptStarting,
    AttemptStopping,
    AttemptSuspended,
    AttemptSuspending,
    AttemptThawed,
)

GOLDEN = [
    (AttemptKnown("a1"), '["worker.attempt_known",1,{"uid":"a1"}]'),
    (AttemptDropped("a1"), '["worker.attempt_dropped",1,{"uid":"a1"}]'),
    (AttemptAccepted("job-a/0"), '["worker.attempt_accepted",1,{"task_id":"job-a/0"}]'),
    (AttemptStarting(), '["worker.attempt_starting",1,{}]'),
    (
        AttemptStarted(5, 7, (("web", 80),)),
        '["worker.attempt_started",1,{"ports":[["web",80]],"timeout_ns":7,"wall_ns":5}]',
    ),
    (AttemptSuspending(), '["worker.attempt_suspending",1,{}]'),
    (AttemptContinued(), '["worker.attempt_continued",1,{}]'),
    (AttemptSuspended(4, "/w/a1", 5), '["worker.attempt_suspended",1,{"folder":"/w/a1","log_bytes":5,"wall_ns":4}]'),
    (
        AttemptGranted("job-a/0", "g1", "/w/a1", 5, 7, 3, (("web", 80),)),
        (
            '["worker.attempt_granted",1,{"folder":"/w/a1","grant":"g1","paused_ns":3,"ports":[["web",80]],'
            '"started_wall_ns":5,"task_id":"job-a/0","timeout_ns":7}]'
        ),
    ),
    (AttemptThawed(), '["worker.attempt_thawed",1,{}]'),
    (AttemptStopping(StopCause.GANG, 9), '["worker.attempt_stopping",1,{"cause":"gang","grace_ns":9}]'),
    (
        AttemptEnded(Outcome.FAILED, 8, True, 1, None, Fault("ValueError", "no"), 11, ResultFacts(2, "ab", "3.11")),
        (
            '["worker.attempt_ended",1,{"exit_code":1,"exit_signal":null,"fault":{"kind":"ValueError",'
            '"retryable":false,"text":"no"},"log_bytes":11,"outcome":"failed","result":{"python":"3.11",'
            '"sha256":"ab","size_bytes":2},"wall_ns":8,"was_started":true}]'
        ),
    ),
]


@pytest.mark.parametrize(("record", "text"), GOLDEN)
def test_golden(record: object, text: str) -> None:
    """Each record is written as it always was, and read back as it is."""
    assert REGISTRY.encode(record) == text
    entry = Entry(1, "/attempts/a1", Kind.RECORD, text)
    assert REGISTRY.decode(entry) == [record]
