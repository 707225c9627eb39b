"""The labels of a task's checkpoint."""

from hypothesis import given, strategies as st

from iriscw.checkpoint.manifest import MAX_LABEL_CHARS, MAX_LABELS
from iriscw.controller.checkpoint_labels import MAX_USER_LABELS, task_labels, without_gpus
from profiles import examples

UUIDS = st.lists(st.uuids().map(lambda uuid: f"GPU-{uuid}"), max_size=16)


@examples(25)  # to draw the texts takes long
@given(UUIDS, st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=MAX_USER_LABELS))
def test_a_manifest_takes_them_whatever_the_user_gave(gpus, given_labels):
    """Job, task and all GPUs are there, in their order, and no label is longer than one may be."""
    labels = dict(task_labels(given_labels, "job-a", 3, gpus))
    assert len(labels) <= MAX_LABELS
    assert all(len(name) <= MAX_LABEL_CHARS and len(text) <= MAX_LABEL_CHARS for name, text in labels.items())
    assert (labels["job"], labels["task"]) == ("job-a", "3")
    told = [labels.get(name, "") for name in ("gpus", "gpus-2", "gpus-3")]
    assert [uuid for text in told for uuid in text.split(",") if uuid] == gpus
    assert without_gpus(tuple(labels.items())) == task_labels(given_labels, "job-a", 3)


def test_ours_win():
    """A user's label of the same name would say that the checkpoint is another's."""
    given_labels = {"job": "mine", "gpus": "mine", "gpus-3": "mine", "a": "b"}
    assert task_labels(given_labels, "job-a", 0, ["GPU-1"]) == (
        ("a", "b"),
        ("gpus", "GPU-1"),
        ("job", "job-a"),
        ("task", "0"),
    )
