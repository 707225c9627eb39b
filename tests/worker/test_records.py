"""The facts on disk: what was written by this version is read by every later one."""

import pytest

from iriscw.jobs.model import AttemptEnd, Ending
from iriscw.jobs.traits import Fault, ResultFacts
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.records import REGISTRY
from iriscw.worker.model import StopCause
from iriscw.worker.records import (
    AttemptAccepted,
    AttemptContinued,
    AttemptDropped,
    AttemptEnded,
    AttemptEquipped,
    AttemptGranted,
    AttemptKnown,
    AttemptStarted,
    AttemptStarting,
    AttemptStopping,
    AttemptSuspended,
    AttemptSuspending,
    AttemptThawed,
    GpusAssigned,
    GpusReturned,
)

GOLDEN = [
    (AttemptKnown("a1"), '["worker.attempt_known",1,{"uid":"a1"}]'),
    (AttemptDropped("a1"), '["worker.attempt_dropped",1,{"uid":"a1"}]'),
    (AttemptAccepted("job-a/0"), '["worker.attempt_accepted",1,{"task_id":"job-a/0"}]'),
    (GpusAssigned("a1", ("GPU-1",), "g1"), '["worker.gpus_assigned",1,{"gpus":["GPU-1"],"grant":"g1","uid":"a1"}]'),
    (GpusReturned("a1"), '["worker.gpus_returned",1,{"uid":"a1"}]'),
    (AttemptEquipped(("GPU-1", "GPU-2")), '["worker.attempt_equipped",1,{"gpus":["GPU-1","GPU-2"]}]'),
    (AttemptStarting(), '["worker.attempt_starting",1,{}]'),
    (
        AttemptStarted(5, 7, (("web", 80),), "10.0.0.1", 9),
        (
            '["worker.attempt_started",1,{"host":"10.0.0.1","ports":[["web",80]],"rendezvous_port":9,"timeout_ns":7,'
            '"wall_ns":5}]'
        ),
    ),
    (AttemptSuspending(), '["worker.attempt_suspending",1,{}]'),
    (AttemptContinued(), '["worker.attempt_continued",1,{}]'),
    (AttemptSuspended(4, "/w/a1", 5), '["worker.attempt_suspended",1,{"folder":"/w/a1","log_bytes":5,"wall_ns":4}]'),
    (
        AttemptGranted("job-a/0", "g1", "/w/a1", 5, 7, 3, (("web", 80),), "10.0.0.1"),
        (
            '["worker.attempt_granted",1,{"anew":false,"folder":"/w/a1","grant":"g1","host":"10.0.0.1","log_offset":0,"paused_ns":3,'
            '"ports":[["web",80]],"started_wall_ns":5,"task_id":"job-a/0","timeout_ns":7}]'
        ),
    ),
    (AttemptThawed(), '["worker.attempt_thawed",1,{}]'),
    (AttemptStopping(StopCause.GANG, 9), '["worker.attempt_stopping",1,{"cause":"gang","grace_ns":9}]'),
    (
        AttemptEnded(
            AttemptEnd(Ending.FAILED, exit_code=1, fault=Fault("ValueError", "no")),
            8,
            True,
            log_bytes=11,
            result=ResultFacts(2, "ab", "3.11"),
        ),
        (
            '["worker.attempt_ended",3,{"end":{"ending":"FAILED","exit_code":1,"fault":{"kind":"ValueError",'
            '"retryable":false,"sentence":"","text":"no"}},"log_bytes":11,"result":{"python":"3.11",'
            '"sha256":"ab","size_bytes":2},"wall_ns":8,"was_started":true}]'
        ),
    ),
]

EARLIER = [
    *(
        (
            AttemptEnded(AttemptEnd(ending, code, fault), 8, True, 11, ResultFacts(2, "ab", "3.11")),
            (
                f'["worker.attempt_ended",2,{{"ending":"{ending.value}",{exit_},"log_bytes":11,"result":'
                '{"python":"3.11","sha256":"ab","size_bytes":2},"wall_ns":8,"was_started":true}]'
            ),
        )
        for ending, code, exit_, fault in [
            (
                *(
                    Ending.FAILED,
                    1,
                    '"exit_code":1,"exit_signal":null,"fault":{"kind":"K","retryable":true,"text":"no"}',
                ),
                Fault("K", "no", retryable=True),
            ),
            (Ending.KILLED, -9, '"exit_code":null,"exit_signal":9,"fault":null', None),
            (Ending.MISSING, None, '"exit_code":null,"exit_signal":null,"fault":null', None),
        ]
    ),
    *(
        (
            AttemptEnded(AttemptEnd(ending), 8, started),
            f'["worker.attempt_ended",1,{{"outcome":"{outcome}","wall_ns":8,"was_started":{str(started).lower()}}}]',
        )
        for outcome, started, ending in [
            ("timed_out", True, Ending.TIMED_OUT),
            ("gang_stopped", False, Ending.GANG_STOPPED),
            ("worker_failed", True, Ending.WORKER_LOST),
            ("worker_failed", False, Ending.REFUSED),
        ]
    ),
    (
        AttemptStarted(5, 7, (("web", 80),)),
        '["worker.attempt_started",1,{"ports":[["web",80]],"timeout_ns":7,"wall_ns":5}]',
    ),
    (
        AttemptGranted("job-a/0", "g1", "/w/a1", 5, 7, 3, (("web", 80),)),
        (
            '["worker.attempt_granted",1,{"folder":"/w/a1","grant":"g1","paused_ns":3,"ports":[["web",80]],'
            '"started_wall_ns":5,"task_id":"job-a/0","timeout_ns":7}]'
        ),
    ),
]
"""As they were written before they said where an attempt is reached."""


@pytest.mark.parametrize(("record", "text"), EARLIER)
def test_earlier(record: object, text: str) -> None:
    """What an earlier version has written is read."""
    assert REGISTRY.decode(Entry(1, "/attempts/a1", EntryKind.RECORD, text)) == [record]


@pytest.mark.parametrize(("record", "text"), GOLDEN)
def test_golden(record: object, text: str) -> None:
    """Each record is written as it always was, and read back as it is."""
    assert REGISTRY.encode(record) == text
    entry = Entry(1, "/attempts/a1", EntryKind.RECORD, text)
    assert REGISTRY.decode(entry) == [record]
