"""The picture of the demo's live view: from what is known to lines."""

import attrs
import pytest
from hypothesis import example, given, strategies as st

from iriscw.cli.demo.picture import Killed, Part, PictureLine, PictureProgress, Scene, Tone, draw
from iriscw.client.model import AmountStatus, AttemptStatus, JobStatus, LogLine, SliceStatus, TaskStatus, WorkerStatus
from iriscw.jobs.model import JobState, TaskState

WIDE = 100


def worker_slice(number, incarnation="i1", state="READY"):
    """Return a slice of one worker, ``w<number>``."""
    worker = WorkerStatus(
        f"w{number}", incarnation, connected=True, capacity=AmountStatus(2000), committed=AmountStatus(500)
    )
    return SliceStatus(f"s{number}", "g", state, workers=(worker,))


def task(index, state=TaskState.RUNNING, attempts=1, worker="w1"):
    """Return a task with so many attempts, all on one worker."""
    tried = tuple(AttemptStatus(f"u{n}", n, state, worker) for n in reversed(range(attempts)))
    return TaskStatus(f"t{index}", index, state, attempts=tried, worker_id=worker if attempts else "")


def job(tasks, state=JobState.RUNNING):
    """Return the status of a job of these tasks."""
    counted = {each: sum(task.state == each for task in tasks) for each in dict.fromkeys(task.state for task in tasks)}
    return JobStatus("job-1", "u", "n", state, 1, len(tasks), counted)


def scene_of(*tasks, **more):
    """Return a scene with one worker and these tasks."""
    return attrs.evolve(Scene(slices=(worker_slice(1),), job=job(tasks), tasks=tasks), **more)


def tones(lines, tone):
    """Return the texts of this tone."""
    return [line.text for line in lines if line.tone is tone]


def test_nothing_is_drawn_of_nothing():
    """Before there is anything to show, and after everything is gone, there is no frame."""
    assert draw(Scene(), WIDE, 30) == []


def test_a_row_for_each_task():
    """Its number, state, worker, tries, and what it said last; the text of a log commands no terminal."""
    lines = {0: LogLine(0, 0, "pass 1, 30 of 171 files"), 1: LogLine(1, 1, "\x1b[2J[bold]")}
    tasks = (task(0), task(1, attempts=2), task(2, TaskState.PENDING, attempts=0))
    drawn = draw(scene_of(*tasks, lines=lines, bytes_per_s=2.5e6), WIDE, 30)
    assert [line.text.split() for line in drawn[2:]] == [
        ["TASK", "STATE", "WORKER", "TRIES", "LAST", "LINE"],
        ["0", "RUNNING", "w1", "1", "pass", "1,", "30", "of", "171", "files"],
        ["1", "RUNNING", "w1", "2", "\\x1b[2J[bold]"],
        ["2", "PENDING", "-", "0"],
        ["job", "RUNNING,", "2", "RUNNING,", "1", "PENDING,", "2.5", "MB/s"],
    ]
    assert drawn[1].text.split() == ["worker", "w1", "READY", "0.5/2", "CPU", "in", "use"]
    assert {line.tone for line in drawn} == {Tone.PLAIN, Tone.DIM}


def test_what_an_earlier_attempt_said_is_not_shown():
    """A task that is tried again begins with nothing."""
    drawn = draw(scene_of(task(0, attempts=2), lines={0: LogLine(0, 0, "pass 9")}), WIDE, 30)
    assert not any("pass 9" in line.text for line in drawn)


def test_a_job_that_is_over_has_no_speed_and_says_its_state_once():
    """Nothing runs any more: neither speed nor a last line is news."""
    tasks = (task(0, TaskState.SUCCEEDED), task(1, TaskState.SUCCEEDED))
    lines = {0: LogLine(0, 0, "pass 9")}
    drawn = draw(scene_of(*tasks, job=job(tasks, JobState.SUCCEEDED), lines=lines, bytes_per_s=1e6), WIDE, 30)
    assert drawn[-1].text.split() == ["job", "SUCCEEDED,", "2", "tasks"]
    assert not any("pass 9" in line.text or "MB/s" in line.text for line in drawn)


def test_a_killed_worker_is_red_in_words_as_well():
    """Its row stays; the tasks that it had are red until they have another attempt; the others are not."""
    dead = Killed("worker", "w1", 77, "i1", frozenset({(0, 0)}))
    scene = scene_of(task(0), task(1, worker="w2"), slices=(worker_slice(1), worker_slice(2)))
    before = draw(scene.with_killed(dead), WIDE, 30)
    assert [text.split() for text in tones(before, Tone.BAD)] == [
        ["worker", "w1", "KILLED", "(pid", "77)"],
        ["0", "KILLED", "w1", "1", "(1", "KILLED)"],
    ]
    assert not any("w1  READY" in line.text for line in before)
    scene = attrs.evolve(scene, tasks=(task(0, attempts=2), task(1, worker="w2")))
    scene = attrs.evolve(scene, slices=(worker_slice(1, "i2"), worker_slice(2)))
    after = draw(scene.with_killed(dead), WIDE, 30)
    assert [text.split()[:3] for text in tones(after, Tone.BAD)] == [["worker", "w1", "KILLED"]]
    assert any("w1  READY" in line.text for line in after)
    assert any(line.text.split() == ["0", "RUNNING", "w1", "2", "(1", "KILLED)"] for line in after)


def test_a_killed_controller_is_red_and_stays_beside_the_next():
    """Both are in the picture: who was killed, and who took over."""
    scene = Scene().with_part(Part("controller", "a:1  pid 5")).with_killed(Killed("controller", "a:1", 5))
    assert [(line.text.split(), line.tone) for line in draw(scene, WIDE, 30)[1:]] == [
        (["controller", "a:1", "KILLED", "(pid", "5)"], Tone.BAD)
    ]
    scene = scene.with_part(Part("controller", "a:1  the next one"))
    assert [line.tone for line in draw(scene, WIDE, 30)[1:]] == [Tone.BAD, Tone.PLAIN]


@pytest.mark.parametrize("state", [*TaskState])
def test_no_state_is_green_by_itself(state):
    """That a task says it has succeeded is no check; that its result is right is one, and is said."""
    scene = scene_of(task(0, state), task(1, state)).with_part(Part("server", "RUNNING"))
    assert tones(draw(scene, WIDE, 30), Tone.GOOD) == []
    scene = attrs.evolve(scene, checked=frozenset({1})).with_part(Part("server", "RUNNING", checked=True))
    good = tones(draw(scene, WIDE, 30), Tone.GOOD)
    assert [text.split()[0] for text in good] == ["server", "1"]
    assert [text.split()[1] for text in good] == ["CHECKED", "CHECKED"]


@pytest.mark.parametrize(
    ("done", "total", "bar"),
    [
        (0, 0, ""),
        (0, 100, f"[{24 * '.'}]  "),
        (50, 100, f"[{12 * '#'}{12 * '.'}]  "),
        (999, 1000, f"[{23 * '#'}.]  "),
        (100, 100, f"[{24 * '#'}]  "),
        (120, 100, f"[{24 * '#'}]  "),
    ],
)
def test_progress_has_a_bar_if_the_end_is_known(done, total, bar):
    """It is full at the end and not before."""
    drawn = draw(Scene(progress=PictureProgress("freeze: writes the images", done, total)), WIDE, 30)
    assert drawn[1:] == [PictureLine(f"{bar}freeze: writes the images")]


def test_on_few_rows_the_tasks_that_are_over_go_first():
    """What was killed stays, then what is at work; how many were left out is said."""
    tasks = (*(task(n, TaskState.SUCCEEDED) for n in range(60)), task(60), task(61))
    scene = scene_of(*tasks).with_killed(Killed("worker", "w1", 1, "i1", frozenset({(61, 0)})))
    drawn = draw(scene, WIDE, 10)
    assert len(drawn) == 10
    numbers = [line.text.split()[0] for line in drawn]
    assert numbers == ["--", "worker", "TASK", "0", "1", "2", "60", "61", "and", "job"]
    assert drawn[-2] == PictureLine("and 57 more", Tone.DIM)


STATES = st.sampled_from([TaskState.PENDING, TaskState.RUNNING, TaskState.SUCCEEDED])
TASKS = st.lists(st.tuples(STATES, st.integers(0, 3)), max_size=64).map(
    lambda drawn: tuple(task(index, *each) for index, each in enumerate(drawn))
)
TASKS_THAT_WAIT = (task(0, TaskState.PENDING, 1),)


@example(TASKS_THAT_WAIT, 0, False, "\tindented\n", 32, 5)
@given(TASKS, st.integers(0, 3), st.booleans(), st.text(max_size=80), st.integers(1, 120), st.integers(1, 50))
def test_it_fits_any_terminal(tasks, slices, killed, text, columns, rows):
    """No row is wider than the terminal and there are no more than it has; the newest, the progress, is among them."""
    scene = scene_of(*tasks, slices=tuple(map(worker_slice, range(slices))), progress=PictureProgress("so far", 1, 2))
    scene = attrs.evolve(scene, lines={0: LogLine(0, 0, text)})
    if killed:
        scene = scene.with_killed(Killed("controller", "a:1", 5))
    drawn = draw(scene, columns, rows)
    assert 1 <= len(drawn) <= rows
    assert max(len(line.text) for line in drawn) <= columns
    bar = min(24, columns // 4)
    assert drawn[-1].text.startswith(f"[{bar // 2 * '#'}{(bar - bar // 2) * '.'}]" if columns > 4 else "")
    assert all(line.text.isprintable() for line in drawn)


def test_sixty_columns_have_what_matters():
    """Number, state and the word KILLED are seen on a narrow terminal, with worker names as they are in life."""
    name = "iris-local-3nkl7ioliegm-0"
    scene = scene_of(task(0, worker=name), task(1, TaskState.SUCCEEDED, attempts=2, worker=name))
    dead = Killed("worker", name, 27798, "i1", frozenset({(0, 0), (1, 0)}))
    drawn = [line.text for line in draw(scene.with_killed(dead), 60, 20)]
    assert f"worker      {name}  KILLED (pid 27798)" in drawn
    assert any(line.startswith("0     KILLED") for line in drawn)
    assert any("2 (1 KILLED)" in line for line in drawn)


def test_sixty_columns_have_what_was_checked_and_how_far_it_is():
    """The word CHECKED and the bytes are not what is cut."""
    text = "thaw, 147.9 MB of 547.1 MB: reads and compares every byte"
    scene = scene_of(task(0, TaskState.SUCCEEDED, worker="iris-local-3nkl7ioliegm-0"), checked=frozenset({0}))
    scene = attrs.evolve(scene, progress=PictureProgress(text, 1, 4)).with_part(Part("server", 60 * "x", checked=True))
    drawn = [line.text for line in draw(scene, 60, 20)]
    assert sum("CHECKED" in line for line in drawn) == 2
    assert "[###............]  thaw, 147.9 MB of 547.1 MB: reads" in drawn[-1]
