"""Who an agent is: an id drawn with its state folder, and how often it was started. Blocks on the disk."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.nodes.model import OPERATION_ID, AgentIdentity
from iriscw.processes.identity import boot_id

MAX_FILE_BYTES = 4096


def next_life(file: Path, node: str) -> AgentIdentity:
    """Count one more start, and give who it is. Whoever calls this holds the state's journal.

    Raises:
        ValueError: the file is none of ours.
        OSError: it cannot be read or written.
    """
    agent_id, starts = "", 0
    try:
        content = decode_json(read_bounded(file, MAX_FILE_BYTES))
    except FileNotFoundError:
        agent_id = f"agent-{secrets.token_hex(8)}"
    else:
        match content:
            case {"agent_id": str(found), "starts": int(count)} if OPERATION_ID.fullmatch(found) and count > 0:
                agent_id, starts = found, count
            case _:
                raise ValueError(f"{file} does not say who the agent is")
    write_atomic(file, json.dumps({"agent_id": agent_id, "starts": starts + 1}).encode())
    return AgentIdentity(node, agent_id, starts + 1, boot_id())
