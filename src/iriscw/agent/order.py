"""What an operation is asked for with."""

from __future__ import annotations

from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.freeze.messages import FreezeTree, ThawTree

Order = FreezeTree | ThawTree | MoveCheckpoint
