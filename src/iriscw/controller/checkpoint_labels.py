"""The labels of a task's checkpoint: the user's, and those that say whose it is and which GPUs the task had. Pure.

The GPUs stand in ``gpus``, by UUID and separated by commas; what does not fit there stands in ``gpus-2`` and so on.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from iriscw.jobs.suspension.model import Labels
from iriscw.nodes.model import MAX_LABEL_CHARS, MAX_LABELS

OWN_LABELS: Final = 8
"""Job, task, and GPUs. Of these six fit into one label, and no machine has more than sixteen."""

MAX_USER_LABELS: Final = MAX_LABELS - OWN_LABELS

_GPUS: Final = re.compile(r"gpus(-[2-9])?")


def task_labels(given: Mapping[str, str], job_id: str, index: int, gpus: Sequence[str] = ()) -> Labels:
    """Return the labels of a checkpoint of a task; ours win over the user's."""
    mine = {name: value for name, value in given.items() if not _GPUS.fullmatch(name)}
    texts = itertools.islice(_lines(gpus), OWN_LABELS - 2)
    had = {"gpus" if number == 1 else f"gpus-{number}": text for number, text in enumerate(texts, 1)}
    return tuple(sorted({**mine, "job": job_id, "task": str(index), **had}.items()))


def without_gpus(labels: Labels) -> Labels:
    """Return what of the labels was known before the task was looked at: GPUs may be others when it is asked again."""
    return tuple(pair for pair in labels if not _GPUS.fullmatch(pair[0]))


def _lines(gpus: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for uuid in gpus:
        if lines and len(lines[-1]) + 1 + len(uuid) <= MAX_LABEL_CHARS:
            lines[-1] += f",{uuid}"
        else:
            lines.append(uuid)
    return lines
