"""``python -m iriscw.worker serve``: one worker as a process.

What is not said on the command line is taken from the environment: ``IRIS_CONTROLLER_ADDRESS``, ``IRIS_WORKER_ID``,
``IRISCW_INCARNATION`` (else ``IRISCW_POD_UID``), ``IRISCW_CACHE_DIR``, ``IRISCW_TOKEN_FILE`` (else
``IRIS_TOKEN_FILE``), ``IRISCW_CA_FILE``, ``IRISCW_WORKER_HOST``, ``IRISCW_WORKER_PORT``, ``IRISCW_TASK_BIND_HOST``,
``IRISCW_CONFIG``, ``IRISCW_GROUP``, ``IRISCW_ORPHAN_AFTER_S``, ``IRISCW_INSECURE_PLAINTEXT=1``. ``IRISCW_ATTRIBUTES``
holds the worker's attributes as a JSON object. What ``IRISCW_TASK_SECRET_NAME`` holds, tasks find as ``NAME``.

In a pod whose tasks have pods of their own, ``IRISCW_TASK_PODS`` says what these are like, and ``IRISCW_OWN_POD``,
``IRISCW_OWN_POD_UID`` and ``IRISCW_OWN_NODE`` who the worker is to the cluster. It promises what it is told there, as
far as the machine has it: it holds no GPU, and its own bounds are not those of its tasks. Where tasks have containers
of the machine's Docker engine, ``IRISCW_TASK_CONTAINERS`` says what those are like.

With a configuration and a group, a machine that has less than the group promises is refused before anything starts.

SIGTERM, SIGINT and a closed terminal (SIGHUP) end the worker in order: attempts are asked to end, their logs and ends
are delivered, then the stream is closed. A second signal kills the attempts at once.

The exit codes are ``EXIT_CODES``; ``--help`` lists them, and the variables.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError, UsageError
from iriscw.cloud.model import Attributes, Capacity, InvalidSpec
from iriscw.config.load import load_config
from iriscw.processes.stopping import stopping_signals
from iriscw.resources import GPU_LIMIT
from iriscw.rpc.address import Address
from iriscw.rpc.tokens import read_token_file
from iriscw.task.environment import PLAINTEXT_VARIABLE
from iriscw.worker.assembly import DEFAULT_PORT, Worker, WorkerSettings, python_attribute
from iriscw.worker.gpus import GpuOffer
from iriscw.worker.lines import JsonLines
from iriscw.worker.probe import ProbedMachine, probe

if TYPE_CHECKING:  # loaded where tasks have pods, or containers
    from iriscw.cloud.docker.containers import TaskContainers
    from iriscw.cloud.kube.tasks import TaskOwner, TaskPods

ORPHAN_VARIABLE = "IRISCW_ORPHAN_AFTER_S"

ATTRIBUTES_VARIABLE = "IRISCW_ATTRIBUTES"
METRICS_VARIABLE = "IRISCW_METRICS_TOKEN_SHA256"
TASK_PODS_VARIABLE = "IRISCW_TASK_PODS"
OWN_POD_VARIABLES = ("IRISCW_OWN_POD", "IRISCW_OWN_POD_UID", "IRISCW_OWN_NODE")

NODE_VARIABLE = "IRISCW_NODE"
"""The machine's name, where it is not what the machine calls itself."""

GPU_COUNT_VARIABLE = "IRISCW_GPU_COUNT"
"""How many GPUs the worker offers, where its group does not say so: on the local platform."""

TASK_CONTAINERS_VARIABLE = "IRISCW_TASK_CONTAINERS"
TASK_SECRET_PREFIX = "IRISCW_TASK_SECRET_"  # noqa: S105 - how names of variables begin

EXIT_USAGE = 2
EXIT_LESS_THAN_PROMISED = 3
EXIT_TURNED_AWAY = 4
EXIT_NOT_STARTED = 5
EXIT_ORPHANED = 6

EXIT_CODES: Final[Mapping[int, str]] = {
    0: "it ended in order, after a signal",
    1: "a bug",
    EXIT_USAGE: "the command line, the environment, the configuration or the token file is no good",
    EXIT_LESS_THAN_PROMISED: "the machine has less than its group promises",
    EXIT_TURNED_AWAY: "the controller does not want this worker: do not start it again as it is",
    EXIT_NOT_STARTED: "it could not start: port, folder, journal or GPUs in use, no disk space, no route",
    EXIT_ORPHANED: "no controller was there for --orphan-after seconds",
}
"""What the process's end means; ``docs/worker.md`` has the same table."""

log = logging.getLogger("iriscw.worker")


class MachineTooSmall(OperationError):
    """The machine has less than its group promises to tasks."""


class Incomplete(UsageError):
    """Something that the worker must be told was neither on the command line nor in the environment."""


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the command line, with the environment's values as defaults."""

    def option(name: str, *variables: str, fallback: str | None = None, text: str) -> None:
        default = next((environment[each] for each in variables if environment.get(each)), fallback)
        said = ", else ".join(f"${each}" for each in variables) + (f", else {fallback}" if fallback else "")
        made.add_argument(name, default=default, help=f"{text}; default: {said}")

    made = argparse.ArgumentParser(
        prog="python -m iriscw.worker",
        description="Run one worker until SIGTERM or Ctrl-C; a second signal kills its attempts at once.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("command", nargs="?", default="serve", choices=("serve",))
    option("--controller", "IRIS_CONTROLLER_ADDRESS", text="the controller's address")
    option("--worker-id", "IRIS_WORKER_ID", text="the name of this worker")
    option("--incarnation", "IRISCW_INCARNATION", "IRISCW_POD_UID", text="tells this life of the worker from others")
    option("--cache-dir", "IRISCW_CACHE_DIR", text="where bundles and attempts are kept")
    option("--token-file", "IRISCW_TOKEN_FILE", "IRIS_TOKEN_FILE", text="the file with the worker's token")
    option("--ca-file", "IRISCW_CA_FILE", text="the authority of an https:// controller, in PEM; else the system's")
    option("--host", "IRISCW_WORKER_HOST", fallback="127.0.0.1", text="where /health and /metrics answer")
    option("--port", "IRISCW_WORKER_PORT", fallback=str(DEFAULT_PORT), text="0: a free one")
    option("--task-bind-host", "IRISCW_TASK_BIND_HOST", text="where tasks listen; else where they are reached")
    option("--config", "IRISCW_CONFIG", text="the cluster's configuration")
    option("--group", "IRISCW_GROUP", text="the scale group whose promise the machine must keep")
    orphan = "seconds without any controller after which the worker ends itself; 0: never"
    option("--orphan-after", ORPHAN_VARIABLE, fallback="0", text=orphan)
    insecure = environment.get(PLAINTEXT_VARIABLE) == "1"
    trusted = f"the network is trusted; the same as {PLAINTEXT_VARIABLE}=1"
    made.add_argument("--insecure-plaintext", action="store_true", default=insecure, help=trusted)
    return made


def _epilog() -> str:
    codes = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())
    attributes = (
        f"variables:\n  {ATTRIBUTES_VARIABLE}  the worker's attributes, a JSON object"
        f"\n  {METRICS_VARIABLE}  the SHA-256 (hex) of a token that reads /metrics here and opens nothing else"
        f"\n  {TASK_SECRET_PREFIX}NAME  the variable NAME of every task, shown nowhere"
        f"\n  {NODE_VARIABLE}  the machine's name, as its agent dials under; else $IRISCW_OWN_NODE, else its host name"
        f"\n  {GPU_COUNT_VARIABLE}  how many GPUs it offers; else as --group promises, else all that are free"
        f"\n  {TASK_PODS_VARIABLE}  what the pods of tasks are like: tasks have pods of their own then"
        f"\n  {', '.join(OWN_POD_VARIABLES)}  the worker's own pod, to which those belong"
        f"\n  {TASK_CONTAINERS_VARIABLE}  what the containers of tasks are like, on a Docker engine of this machine"
    )
    return f"{attributes}\n\nexit codes:\n{codes}"


def settings_of(arguments: argparse.Namespace, environment: Mapping[str, str]) -> WorkerSettings:
    """Look at the machine and put everything together. Blocks.

    Raises:
        Incomplete, UsageError: what was said is no good.
        MachineTooSmall: see there.
        AddressUnknown, OSError: see ``probe``.
    """
    for name in ("controller", "worker_id", "incarnation", "cache_dir", "token_file"):
        if not getattr(arguments, name):
            raise Incomplete(f"--{name.replace('_', '-')} is missing")
    if not arguments.port.isdigit() or int(arguments.port) > 65_535:
        raise Incomplete(f"--port: {arguments.port!r} is not a port")
    cache_dir = Path(arguments.cache_dir).absolute()
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    address = Address.parse(arguments.controller)
    pods = task_pods(arguments, environment)
    promise = promise_of(Path(arguments.config), arguments.group) if arguments.config and arguments.group else None
    count = gpu_count(environment, promise)
    machine = probe(
        disk=cache_dir,
        controller_host=address.host or "127.0.0.1",
        environment=environment,
        with_gpus=pods is None and count != 0,
    )
    if pods is not None:
        machine = attrs.evolve(machine, capacity=promised(pods[0].promise, machine.unbounded))
    if promise is not None:
        check_promise(arguments.group, promise, machine)
    if pods is None and count is not None:
        machine = offering(count, machine)
    return WorkerSettings(
        controller=arguments.controller,
        worker_id=arguments.worker_id,
        incarnation=arguments.incarnation,
        token=read_token_file(Path(arguments.token_file)),
        metrics_digest=environment.get(METRICS_VARIABLE, ""),
        cache_dir=cache_dir,
        capacity=machine.capacity,
        attributes=_attributes(arguments.worker_id, environment),
        gpus=GpuOffer(machine.gpus, machine.links),
        fewer_gpus=count is None,
        host=arguments.host,
        port=int(arguments.port),
        advertise_host=machine.address,
        authority=Path(arguments.ca_file) if arguments.ca_file else None,
        task_bind_host=arguments.task_bind_host or "",
        task_secrets=task_secrets(environment),
        orphan_after_s=_seconds("--orphan-after", arguments.orphan_after),
        insecure_plaintext=arguments.insecure_plaintext,
        task_pods=pods,
        node=environment.get(NODE_VARIABLE) or environment.get(OWN_POD_VARIABLES[2]) or socket.gethostname(),
        task_containers=task_containers(environment),
    )


def task_pods(arguments: argparse.Namespace, environment: Mapping[str, str]) -> tuple[TaskPods, TaskOwner] | None:
    """Return what pods of tasks are like and whose they are; None where tasks are processes.

    Raises:
        Incomplete: it is said in part, or it cannot be.
    """
    text = environment.get(TASK_PODS_VARIABLE)
    if not text:
        return None
    from iriscw.cloud.kube.tasks import TaskOwner, decode_task_pods

    pod, uid, node = (environment.get(name, "") for name in OWN_POD_VARIABLES)
    if not (pod and uid and node):
        raise Incomplete(f"{TASK_PODS_VARIABLE} needs {', '.join(OWN_POD_VARIABLES)}, by the downward API")
    try:
        pods = decode_task_pods(text)
    except InvalidSpec as error:
        raise Incomplete(f"{TASK_PODS_VARIABLE}: {error}") from error
    pods = attrs.evolve(pods, cache_dir=str(Path(arguments.cache_dir).absolute()))  # one path on both sides
    return pods, TaskOwner(pod, uid, node, arguments.worker_id, arguments.incarnation)


def task_containers(environment: Mapping[str, str]) -> TaskContainers | None:
    """Return what containers of tasks are like; None where tasks have none.

    Raises:
        Incomplete: it cannot be.
    """
    text = environment.get(TASK_CONTAINERS_VARIABLE)
    if not text:
        return None
    from iriscw.cloud.docker.containers import decode_task_containers

    try:
        return decode_task_containers(text)
    except InvalidSpec as error:
        raise Incomplete(f"{TASK_CONTAINERS_VARIABLE}: {error}") from error


def promised(promise: Capacity, machine: Capacity) -> Capacity:
    """Return what a worker whose tasks have pods may run: what it is to promise, as far as the machine has it.

    GPUs it cannot see: the node gives them to the tasks, or refuses.
    """
    return attrs.evolve(
        promise,
        cpu_milli=min(promise.cpu_milli, machine.cpu_milli),
        memory_bytes=min(promise.memory_bytes, machine.memory_bytes),
        disk_bytes=min(promise.disk_bytes, machine.disk_bytes) if promise.disk_bytes else machine.disk_bytes,
    )


def task_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what tasks find in their environment because the worker has it in its own."""
    begins = len(TASK_SECRET_PREFIX)
    return {name[begins:]: text for name, text in environment.items() if name.startswith(TASK_SECRET_PREFIX)}


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Incomplete(f"{name}: {text!r} is not a number of seconds") from error


def promise_of(config: Path, group: str) -> Capacity:
    """Return what a worker of this group promises.

    Raises:
        Incomplete: the configuration has no such group.
        UsageError: the configuration is no good.
    """
    groups = load_config(config).scale_groups
    if group not in groups:
        raise Incomplete(f"--group: {config} has no scale group {group!r}")
    wanted = groups[group].resources
    return Capacity(wanted.cpu_milli, wanted.ram_bytes, wanted.disk_bytes, wanted.gpu_count)


def check_promise(group: str, promise: Capacity, machine: ProbedMachine) -> None:
    """Refuse a machine that has less than its group promises.

    Raises:
        MachineTooSmall: see there.
    """
    lacking = machine.capacity.lacking(promise)
    if lacking:
        raise MachineTooSmall(f"the group {group} promises {promise}, this machine has {machine.capacity}: {lacking}")


def gpu_count(environment: Mapping[str, str], promise: Capacity | None) -> int | None:
    """Return how many GPUs the worker is to offer; None where nobody has promised any number.

    Raises:
        Incomplete: the number is none.
    """
    text = environment.get(GPU_COUNT_VARIABLE, "")
    if text and not (text.isascii() and text.isdigit() and int(text) <= GPU_LIMIT):
        raise Incomplete(f"{GPU_COUNT_VARIABLE}: {text[:80]!r} is not a number of GPUs")
    if text:
        return int(text)
    return None if promise is None else promise.gpu_count


def offering(count: int, machine: ProbedMachine) -> ProbedMachine:
    """Return the machine as one that offers so many of its GPUs.

    Raises:
        MachineTooSmall: it has fewer.
    """
    if count > len(machine.gpus):
        raise MachineTooSmall(f"{count} GPUs are to be offered, and nvidia-smi shows {len(machine.gpus)} that may be")
    gpu_class = machine.capacity.gpu_class if count else ""
    return attrs.evolve(machine, capacity=attrs.evolve(machine.capacity, gpu_count=count, gpu_class=gpu_class))


def _attributes(worker_id: str, environment: Mapping[str, str]) -> Attributes:
    try:
        given = json.loads(environment.get(ATTRIBUTES_VARIABLE) or "{}")
    except ValueError as error:
        raise Incomplete(f"IRISCW_ATTRIBUTES is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(value, str | int) for value in given.values()):
        raise Incomplete("IRISCW_ATTRIBUTES is not a JSON object of texts and whole numbers")
    return Attributes(tuple({**given, "worker-id": worker_id, "python": python_attribute()}.items()))


async def serve(settings: WorkerSettings) -> int:
    """Run the worker until a signal or the controller ends it; give the exit code."""
    async with Worker(settings) as worker:
        log.info("the worker runs", extra={"address": str(worker.address)})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_leave_on_signal, worker)
            turned_away = await worker.wait()
            tasks.cancel_scope.cancel()
    if turned_away is not None:
        log.error("the controller does not want this worker: %s", turned_away.text)
        return EXIT_TURNED_AWAY
    return EXIT_ORPHANED if worker.orphaned else 0


async def _leave_on_signal(worker: Worker) -> None:
    with anyio.open_signal_receiver(*stopping_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            grace_s: float | None = None
            async for number in signals:
                if number == signal.SIGHUP and grace_s == 0:
                    continue  # a terminal that closes says so more than once
                tasks.start_soon(worker.leave, f"{signal.Signals(number).name} to the worker", grace_s)
                grace_s = 0


def main() -> int:
    """Run the process."""
    arguments = parser(os.environ).parse_args()
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines(worker=arguments.worker_id or "", incarnation=arguments.incarnation or ""))
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    try:
        settings = settings_of(arguments, os.environ)
        return anyio.run(serve, settings)
    except MachineTooSmall as error:
        return _ended(error, EXIT_LESS_THAN_PROMISED)
    except UsageError as error:
        return _ended(error, EXIT_USAGE)
    except (OperationError, OSError) as error:
        return _ended(error, EXIT_NOT_STARTED)


def _ended(error: Exception, code: int) -> int:
    log.error("%s: %s", type(error).__name__, error)
    return code


if __name__ == "__main__":
    sys.exit(main())
