"""What callers of hosted actors and the process that hosts one agree on."""

from __future__ import annotations

from typing import Final

import attrs

ACTOR_PORT: Final = "actor"
"""The port at which a job serves its actor."""

MAX_CALL_BYTES: Final = 256 << 20
"""Of one call, or of one reply: more belongs into a file or an object of which the argument is the name."""

MAX_PARTS: Final = 1024
"""Of one frame: what was pickled, and the buffers that travel beside it."""

WINDOW: Final = 256
"""Calls of one caller that have not been answered. The next one waits: this is what bounds an actor's mailbox."""

MAX_METHOD_CHARS: Final = 256

STREAM_ITEMS: Final = 16
"""Items of a stream that were given and that its reader has not taken: nothing runs further ahead of a reader."""

STREAM_BYTES: Final = 16 << 20
"""Of such items together; one may be larger."""

MAX_KEY_CHARS: Final = 256

MAX_KEYS: Final = 10_000
"""Of calls that an actor has answered: with a key before these, a call runs again."""

KEPT_BYTES: Final = 64 << 20
"""Of the answers to calls with keys; of earlier ones the actor only knows that they ran."""

MAX_STATE_BYTES: Final = 64 << 20
"""Of one snapshot, with the answers that go with it."""

MAX_STREAM_ARGUMENTS: Final = 16
"""Iterators among the arguments of one call."""


@attrs.frozen
class ActorPlace:
    """Where the attempt of an actor's job is reached."""

    attempt_uid: str
    host: str
    port: int
    call_key: bytes = attrs.field(repr=False)
