"""The facts of a move: what was written by this version is read by every later one."""

import pytest

from iriscw.checkpoint.model import MovePhase, MovePlan
from iriscw.checkpoint.records import MoveAccepted, MoveBegan, MoveEnded, MoveOpened, MoveUndoing
from iriscw.freeze.model import Outcome
from iriscw.journal.records import REGISTRY

GOLDEN = [
    (
        MoveAccepted(MovePlan("o", "a", "disk", keep=True), 8),
        (
            '["checkpoint.move_accepted",1,{"plan":{"artifact":"a","keep":true,"operation":"o",'
            '"source":"","target":"disk"},'
            '"wall_ns":8}]'
        ),
    ),
    (
        MoveOpened("ram", 9, "d", there=True),
        '["checkpoint.move_opened",1,{"digest":"d","size_bytes":9,"source":"ram","there":true}]',
    ),
    (MoveBegan(MovePhase.DROPPING), '["checkpoint.move_began",1,{"phase":"dropping"}]'),
    (MoveUndoing("K", "t"), '["checkpoint.move_undoing",1,{"kind":"K","text":"t"}]'),
    (
        MoveEnded(Outcome.STAYED, "K", "t", 3),
        '["checkpoint.move_ended",1,{"kind":"K","outcome":"stayed","text":"t","wall_ns":3}]',
    ),
]


@pytest.mark.parametrize(("record", "text"), GOLDEN, ids=[type(each).__name__ for each, _ in GOLDEN])
def test_golden(record: object, text: str) -> None:
    """It is written so, and read back."""
    assert REGISTRY.encode(record) == text
    assert REGISTRY.read(text, "a test") == record
