"""The variables that every task finds in its environment, and the file beside them. Pure.

What a program in any language needs stands in ``IRIS_*`` variables. What only Python code asks for (attempt
number, namespace, parent) stands in ``$IRIS_WORKDIR/.iris/context.json``, from which
:mod:`iriscw.task.context` is filled. The token is in neither: ``IRIS_TOKEN_FILE`` names a file with mode
0600.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath

import attrs

from iriscw.errors import UsageError

PRIVATE_FOLDER = ".iris"
"""Below the working folder: context, token, payload and result of the attempt."""

CONTEXT_FILE = "context.json"
TOKEN_FILE = "token"  # noqa: S105  # a file's name
PAYLOAD_FILE = "payload"
RESULT_FILE = "result"

CA_VARIABLE = "IRIS_CA_FILE"
"""The file with the authority of an ``https://`` controller; without it the system's authorities are trusted."""

SERVER_NAME_VARIABLE = "IRIS_SERVER_NAME"
"""What the certificate at ``IRIS_CONTROLLER_ADDRESS`` has to hold, where that is not the address's host: a tunnel."""

PLAINTEXT_VARIABLE = "IRISCW_INSECURE_PLAINTEXT"
"""``1``: tokens may cross the network without TLS."""

_PORT_PREFIX = "IRIS_PORT_"


class InvalidPortName(UsageError, ValueError):
    """A port's name is letters, digits and ``_``, and begins with a letter: it becomes part of a variable."""


@attrs.frozen
class AttemptFacts:
    """What a task may know of itself. ``ports`` maps names to numbers on ``bind_host``."""

    job_id: str
    task_id: str
    attempt_uid: str
    index: int
    num_tasks: int
    attempt: int = 0
    worker_id: str = ""
    namespace: str = ""
    parent_job_id: str | None = None
    controller_address: str = ""
    bind_host: str = "127.0.0.1"
    advertise_host: str = "127.0.0.1"
    ports: Mapping[str, int] = attrs.field(factory=dict)
    moved: bool = False
    """It was suspended and goes on with another worker: its environment says where it was before."""


def port_variable(name: str) -> str:
    """Give the variable that holds the port called ``name``.

    Raises:
        InvalidPortName: no variable can be made of the name.
    """
    if not (name.isascii() and name.isidentifier() and name[0].isalpha()):
        raise InvalidPortName(f"{name!r} is no name for a port: letters, digits and '_', a letter first")
    return f"{_PORT_PREFIX}{name.upper()}"


def is_reserved(name: str) -> bool:
    """Whether iriscw sets the variable ``name`` for each task, so that nobody else's value would be seen."""
    return name in _RESERVED or name.startswith(_PORT_PREFIX)


def task_environment(facts: AttemptFacts, workdir: PurePath) -> dict[str, str]:
    """Give the variables of an attempt whose working folder is ``workdir``.

    Raises:
        InvalidPortName: see :func:`port_variable`.
    """
    return {
        "IRIS_CONTROLLER_ADDRESS": facts.controller_address,
        "IRIS_JOB_ID": facts.job_id,
        "IRIS_TASK_ID": facts.task_id,
        "IRIS_TASK_INDEX": str(facts.index),
        "IRIS_NUM_TASKS": str(facts.num_tasks),
        "IRIS_ATTEMPT_UID": facts.attempt_uid,
        "IRIS_WORKER_ID": facts.worker_id,
        "IRIS_BIND_HOST": facts.bind_host,
        "IRIS_ADVERTISE_HOST": facts.advertise_host,
        "IRIS_WORKDIR": str(workdir),
        "IRIS_TOKEN_FILE": str(workdir / PRIVATE_FOLDER / TOKEN_FILE),
        **{port_variable(name): str(facts.ports[name]) for name in sorted(facts.ports)},
    }


def encode_facts(facts: AttemptFacts) -> bytes:
    """Give the content of ``context.json``."""
    return json.dumps({**attrs.asdict(facts), "ports": dict(facts.ports)}, indent=1).encode()


def decode_facts(data: bytes) -> AttemptFacts:
    """Read the content of ``context.json``; fields of later versions are left out.

    Raises:
        ValueError: it is not such a file.
    """
    content = json.loads(data)
    names = {field.name for field in attrs.fields(AttemptFacts)}
    try:
        return AttemptFacts(**{name: value for name, value in content.items() if name in names})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not the context of a task: {error}") from error


_RESERVED = frozenset(task_environment(AttemptFacts("", "", "", 0, 0), PurePath()))
