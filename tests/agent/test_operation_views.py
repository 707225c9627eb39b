"""Views of operations: whole at every instant, bounded, and what the metrics make of them."""

import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world

from agent_world import PATIENCE_S
from prometheus_client import generate_latest

from iriscw.agent.doors.figures import AgentFigures
from iriscw.agent.errors import OperationUnknown
from iriscw.agent.operation_views import MAX_REMEMBERED, Board, Made
from iriscw.agent.operations import Asked, OperationKind
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import Outcome, Progress

pytestmark = pytest.mark.anyio

SECOND = 1_000_000_000
A = Asked("a", OperationKind.FREEZE, "target")
END = OperationEnded("a", Outcome.FROZEN, "", "")


class Clock:
    """Time that is set."""

    def __init__(self):
        self.s = 0

    def __call__(self):
        return self.s * SECOND


@pytest.fixture
def clock():
    """Time."""
    return Clock()


@pytest.fixture
def figures():
    """The metrics of the board."""
    return AgentFigures()


@pytest.fixture
def board(clock, figures):
    """A board."""
    return Board(figures.seen, clock)


async def test_a_slow_watcher_misses_no_step(board):
    """What happened between two looks is in the later view, and a progress that was passed over costs nothing."""
    board.begin(A, "ck-1", "ram")
    seen = []
    with anyio.fail_after(PATIENCE_S):
        async for view in board.follow("a"):
            seen.append(view)
            if len(seen) == 1:
                board.entered("a", "looking")
                board.entered("a", "dumping")
                for done in range(100):
                    board.progressed("a", Progress("dumping", done, 99))
            elif len(seen) == 2:
                board.ended(END)
                board.closed("a")
    assert [len(view.steps) for view in seen] == [0, 2, 2]
    assert [(view.done_bytes, view.over) for view in seen] == [(0, False), (99, False), (99, True)]
    assert seen[-1].end == END


async def test_many_watchers(board):
    """All of them are told of the end, whoever came when."""
    board.begin(A, "ck-1", "ram")
    ends = []
    began = anyio.Event()

    async def watch():
        async for view in board.follow("a"):
            began.set()
            if view.over:
                ends.append(view)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(watch)
            await began.wait()
            board.ended(END)
            board.closed("a")
            await board.until_idle()
        await watch()
    assert len(ends) == 6


def test_the_last_ones_are_remembered(board):
    """So many, and none that runs is forgotten for them."""
    board.begin(A, "ck-1", "ram")
    for number in range(MAX_REMEMBERED + 10):
        board.begin(Asked(f"op-{number}", OperationKind.THAW, ""), "ck-1", "")
        board.closed(f"op-{number}")
    assert board.view("a").asked == A
    assert board.view("op-10").over
    with pytest.raises(OperationUnknown):
        board.view("op-9")
    assert [view.asked.operation for view in board.running()] == ["a"]


async def test_one_that_was_refused(board, figures):
    """It is neither known nor counted, whichever of the two that say so comes first."""
    for first, second in ((board.refused, board.closed), (board.closed, board.refused)):
        board.begin(A, "ck-1", "ram")
        first("a")
        second("a")
        with pytest.raises(OperationUnknown):
            board.view("a")
    with anyio.fail_after(PATIENCE_S):
        await board.until_idle()
    text = generate_latest(figures.registry).decode()
    assert 'iriscw_agent_operations{operation="freeze"} 0.0' in text
    assert "iriscw_agent_operations_ended_total{" not in text


def test_metrics_of_one_operation(board, clock, figures):
    """Each phase lasts up to the next one, the last one up to the end; bytes count when it is over."""
    board.begin(A, "ck-1", "path:/a/b", owed=True)
    for clock.s, phase in ((1, "looking"), (3, "dumping"), (7, "sealing")):
        board.entered("a", phase)
    assert "iriscw_agent_operations_owed 1.0" in generate_latest(figures.registry).decode()
    clock.s = 8
    board.progressed("a", Progress("sealing", 1, 2))
    clock.s = 12
    board.ended(END)
    clock.s = 13
    board.found("a", Made("ck-1", "path:/a/b", 4096, 1, 1))
    board.closed("a")
    text = generate_latest(figures.registry).decode()
    for phase, lasted in (("looking", 2), ("dumping", 4), ("sealing", 5)):
        assert f'iriscw_agent_phase_seconds_sum{{operation="freeze",phase="{phase}",tier="path"}} {lasted}.0' in text
        assert f'iriscw_agent_phase_seconds_count{{operation="freeze",phase="{phase}",tier="path"}} 1.0' in text
    assert 'iriscw_agent_operation_seconds_sum{operation="freeze",tier="path"} 13.0' in text
    assert 'iriscw_agent_bytes_total{operation="freeze",tier="path"} 4096.0' in text
    assert 'iriscw_agent_operations_ended_total{operation="freeze",outcome="frozen",tier="path"} 1.0' in text
    assert "iriscw_agent_operations_owed 0.0" in text
    assert "iriscw_agent_operations_aside 0.0" in text


async def test_two_that_wait_for_the_end(board):
    """Both are told, this time and the next."""
    with anyio.fail_after(PATIENCE_S):
        for operation in ("a", "b"):
            board.begin(Asked(operation, OperationKind.FREEZE, "target"), "ck-1", "ram")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(board.until_idle)
                tasks.start_soon(board.until_idle)
                await anyio.wait_all_tasks_blocked()
                board.closed(operation)


async def test_one_that_is_put_aside(board, figures):
    """Watchers are told and go; it still counts as one that runs, but nobody waits for its end."""
    board.begin(A, "ck-1", "ram")
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.until_idle)
            await anyio.wait_all_tasks_blocked()
            board.put_aside("a", "a bug")
        views = [view async for view in board.follow("a")]
    assert [view.aside for view in views] == ["a bug"]
    assert board.running() == views
    assert "iriscw_agent_operations_aside 1.0" in generate_latest(figures.registry).decode()
