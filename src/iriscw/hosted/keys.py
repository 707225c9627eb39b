"""Answers that an actor keeps, by the key of the call: a call that comes again is answered, and does not run again.

Theory of operation. A caller whose connection broke cannot know whether its call ran. If the call has a key it is sent
again, and the actor knows what it has run: of the last :data:`~iriscw.hosted.model.MAX_KEYS` keys whether, and of the
latest of these, within :data:`~iriscw.hosted.model.KEPT_BYTES`, what came of it. What did not fit says so when it is
asked for again: it is not run a second time for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import attrs

from iriscw.hosted.model import KEPT_BYTES, MAX_KEYS


@attrs.frozen
class KeptAnswer:
    """What came of a call. ``parts`` are None if there was no room for them."""

    method: str
    failed: bool
    parts: tuple[bytes | memoryview, ...] | None

    @property
    def size_bytes(self) -> int:
        """Of the parts."""
        return sum(len(each) for each in self.parts or ())


class KeptAnswers:
    """See the module."""

    def __init__(self) -> None:
        self._answers: dict[str, KeptAnswer] = {}
        self._whole: deque[str] = deque()
        """Keys of answers that have their parts, from the oldest on."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> KeptAnswer | None:
        """Return what came of a call; None: it is not known to have run."""
        return self._answers.get(key)

    def items(self) -> Iterator[tuple[str, KeptAnswer]]:
        """Yield all of them, from the oldest on."""
        return iter(self._answers.items())

    def lately(self, size_bytes: int) -> list[tuple[str, KeptAnswer]]:
        """Return all of them, from the oldest on, and of these only the latest with their parts: so many bytes."""
        found: list[tuple[str, KeptAnswer]] = []
        for key, answer in reversed(self._answers.items()):
            size_bytes -= answer.size_bytes
            found.append((key, answer if size_bytes >= 0 else attrs.evolve(answer, parts=None)))
        return found[::-1]

    def keep(self, key: str, method: str, *, failed: bool, parts: Sequence[bytes | memoryview] | None) -> None:
        """Keep an answer, and let go of the oldest ones for which there is no room any more."""
        assert key not in self._answers, "a call with this key has been answered before"
        answer = KeptAnswer(method, failed, None if parts is None else tuple(parts))
        if answer.size_bytes > KEPT_BYTES:
            answer = attrs.evolve(answer, parts=None)
        if len(self._answers) >= MAX_KEYS:
            self._forget(next(iter(self._answers)))
        self._answers[key] = answer
        if answer.parts is None:
            return
        self._bytes += answer.size_bytes
        self._whole.append(key)
        while self._bytes > KEPT_BYTES:
            oldest = self._whole.popleft()
            self._bytes -= self._answers[oldest].size_bytes
            self._answers[oldest] = attrs.evolve(self._answers[oldest], parts=None)

    def _forget(self, key: str) -> None:
        forgotten = self._answers.pop(key)
        if forgotten.parts is not None:  # then it is the oldest of these, too
            self._whole.popleft()
            self._bytes -= forgotten.size_bytes
