"""The variables that every task finds in its environment, and the file beside them. Pure.

What a program in any language needs stands in ``IRIS_*`` variables. What only Python code asks for (attempt
number, namespace, parent) stands in ``$IRIS_WORKDIR/.iris/context.json``, from which
:mod:`iriscw.task.context` is filled. The token is in neither: ``IRIS_TOKEN_FILE`` names a file with mode
0600.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

import attrs

from iriscw._errors import UsageError

WORK_FOLDER = "work"
"""How the working folder of an attempt is called, wherever it lies."""

PRIVATE_FOLDER = ".iris"
"""Below the working folder: context, token, payload and result of the attempt."""

CONTEXT_FILE = "context.json"
TOKEN_FILE = "token"  # noqa: S105  # a file's name
PAYLOAD_FILE = "payload"
RESULT_FILE = "result"

SETUP_PROGRAM = "setup.py"
SETUP_ORDER_FILE = "setup.json"
SETUP_FAILED_FILE = "setup-failed.json"
"""Of an attempt with steps to be run first; see :mod:`iriscw.task.setup`."""

CA_VARIABLE = "IRIS_CA_FILE"
"""The file with the authority of an ``https://`` controller; without it the system's authorities are trusted."""

SERVER_NAME_VARIABLE = "IRIS_SERVER_NAME"
"""What the certificate at ``IRIS_CONTROLLER_ADDRESS`` has to hold, where that is not the address's host: a tunnel."""

PLAINTEXT_VARIABLE = "IRISCW_INSECURE_PLAINTEXT"
"""``1``: tokens may cross the network without TLS."""

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""The task's GPUs by UUID, separated by commas; empty: it has none."""

CONTAINER_GPUS_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
"""The same for what makes containers; ``void``: none. In a pod the node's device plugin may say so."""

NO_GPUS = "void"

GPU_INDICES_VARIABLE = "IRIS_GPU_INDICES"
"""The numbers of the task's GPUs as ``nvidia-smi`` counts, for libraries that read no UUIDs."""

GPU_ORDER_VARIABLE, GPU_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""So that CUDA counts as ``nvidia-smi`` does."""

_PORT_PREFIX = "IRIS_PORT_"


class InvalidPortName(UsageError, ValueError):
    """A port's name is letters, digits and ``_``, and begins with a letter: it becomes part of a variable."""


def _tuple_or_none(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def _indices(value: Iterable[int]) -> tuple[int, ...]:
    return tuple(value)


@attrs.frozen
class GangFacts:
    """Where a member of a gang stands, and where its leader is reached; without a host nobody could say."""

    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: int
    leads: bool = False
    leader_host: str = ""
    leader_port: int = 0


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
    gpus: tuple[str, ...] | None = attrs.field(default=None, converter=_tuple_or_none)
    """Its GPUs, by UUID; None where its worker does not divide them."""
    gpu_indices: tuple[int, ...] = attrs.field(default=(), converter=_indices)
    """Their numbers as ``nvidia-smi`` counts where the task runs."""
    gang: GangFacts | None = None
    """None: the job is not a gang. Not part of ``context.json``."""
    moved: bool = False
    """It was suspended and goes on with another worker: its environment says where it was before."""


def port_variable(name: str) -> str:
    """Return the variable that holds the port called ``name``.

    Raises:
        InvalidPortName: no variable can be made of the name.
    """
    if not (name.isascii() and name.isidentifier() and name[0].isalpha()):
        raise InvalidPortName(f"{name!r} is not a valid name for a port: letters, digits and '_', a letter first")
    return f"{_PORT_PREFIX}{name.upper()}"


def is_reserved(name: str, *, gang: bool = False) -> bool:
    """Whether iriscw sets the variable ``name`` for each task, so that nobody else's value would be seen.

    Args:
        name: of the variable.
        gang: whether the job is one; then there are more.
    """
    return name in _RESERVED or name.startswith(_PORT_PREFIX) or (gang and name in _RESERVED_IN_GANGS)


def task_environment(facts: AttemptFacts, workdir: PurePath) -> dict[str, str]:
    """Return the variables of an attempt whose working folder is ``workdir``.

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
        **({} if facts.gpus is None else gpu_environment(facts.gpus, facts.gpu_indices)),
        **gang_environment(facts),
    }


def gpu_environment(gpus: Sequence[str], indices: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a program these GPUs, by UUID, and no others."""
    return {
        GPUS_VARIABLE: ",".join(gpus),
        CONTAINER_GPUS_VARIABLE: ",".join(gpus) or NO_GPUS,
        GPU_INDICES_VARIABLE: ",".join(str(index) for index in indices),
    }


def gang_environment(facts: AttemptFacts) -> dict[str, str]:
    """Return what programs that ``torchrun`` starts, and JAX, look for; nothing where the job is not a gang."""
    gang = facts.gang
    if gang is None:
        return {}
    rank, size, host, port = str(facts.index), str(facts.num_tasks), gang.leader_host, str(gang.leader_port)
    told = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(gang.local_rank),
        "LOCAL_WORLD_SIZE": str(gang.local_world_size),
        "NODE_RANK": str(gang.node_rank),
        "IRIS_NUM_NODES": str(gang.nodes),
        "JAX_PROCESS_ID": rank,
        "JAX_NUM_PROCESSES": size,
    }
    if host:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        told |= {"MASTER_ADDR": host, "MASTER_PORT": port, "JAX_COORDINATOR_ADDRESS": address}
    return told


def encode_facts(facts: AttemptFacts) -> bytes:
    """Return the content of ``context.json``; where it stands in its gang an attempt has in its variables only."""
    known = attrs.asdict(facts, filter=attrs.filters.exclude("gang"))
    return json.dumps({**known, "ports": dict(facts.ports)}, indent=1).encode()


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


_RESERVED = frozenset(task_environment(AttemptFacts("", "", "", 0, 0, gpus=()), PurePath()))

_RESERVED_IN_GANGS = frozenset(
    gang_environment(AttemptFacts("", "", "", 0, 0, gang=GangFacts(0, 0, 0, 0, leader_host="-")))
)
