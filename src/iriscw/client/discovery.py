"""Where the controller is, when nobody says so: the task's own context, the environment, or what ``iriscw up`` left.

In this order:

1. inside a task: the address in its context, and its token's file;
2. ``IRIS_CONTROLLER_ADDRESS``, with the token in the file that ``IRIS_TOKEN_FILE`` names;
3. the context file of ``iriscw up`` or ``iriscw connect``: ``$IRISCW_CONTEXT`` if set, else
   ``$XDG_RUNTIME_DIR/iriscw/context.json``, else ``~/.local/state/iriscw/context.json``.

An ``https://`` controller is trusted by the authority in the file that ``IRIS_CA_FILE`` names, if it is set; with
``IRISCW_INSECURE_PLAINTEXT=1`` one without TLS is talked to over a network. Workers set both for their tasks. Behind a
tunnel the controller's certificate holds another name than the address: ``IRIS_SERVER_NAME`` says which, for the
address of ``IRIS_CONTROLLER_ADDRESS`` and no other.

The context file holds a token that may do everything, so its mode is 0600, and one that others can read is refused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import ssl
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from iriscw._errors import InvalidArgument
from iriscw.client.contact import Keeper
from iriscw.client.errors import InvalidContextFile, NoController
from iriscw.files import make_private_folder, read_bounded, write_atomic
from iriscw.processes.identity import ProcessIdentity, identify, is_alive
from iriscw.rpc.address import Address
from iriscw.rpc.errors import InvalidTls, InvalidTokenFile
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import Secret as Secret, read_token_file  # noqa: PLC0414 - for who sees only this module
from iriscw.task.context import NotInTask, context
from iriscw.task.environment import CA_VARIABLE, PLAINTEXT_VARIABLE, SERVER_NAME_VARIABLE

CONTEXT_VARIABLE: Final = "IRISCW_CONTEXT"
_LOOPBACK: Final = ("127.", "localhost:", "[::1]:")
MAX_CONTEXT_BYTES: Final = 64 << 10
"""An address, a token of at most 2 KiB and a few names."""


@attrs.frozen
class ControllerEndpoint:
    """A controller to talk to."""

    address: str
    token: Secret | None = None
    job_id: str = ""
    """Of the task that asks; empty outside of tasks."""
    keeper: Keeper | None = None
    """The process of this machine that keeps the cluster up; None if that is not known."""
    server_name: str = ""
    """What its certificate has to hold, where that is not the address's host."""
    authority: Path | None = None
    """Whom to trust there; None leaves it to the environment."""


@attrs.frozen
class ClusterContext:
    """What ``iriscw up`` and ``iriscw connect`` leave for the other commands."""

    address: str
    token: Secret
    owner: ProcessIdentity
    """The process that keeps the cluster, or the way to it, up."""
    workdir: Path | None = None
    """Where it keeps its state; None in what an earlier version wrote, and of a cluster elsewhere."""
    server_name: str = ""
    authority: Path | None = None
    """Both as a :class:`ControllerEndpoint` has them; not empty only where this process is a tunnel's near end."""
    kept: bool = False
    """Whether ``workdir`` outlives the cluster, so that the next one there takes its jobs up."""
    left: str = ""
    """The platform whose machines are left running when the cluster ends; empty: none are."""

    @property
    def is_alive(self) -> bool:
        """Whether that process still runs."""
        return is_alive(self.owner)

    @property
    def keeper_here(self) -> Keeper | None:
        """That process if it is this machine's; on a shared home the file may be another machine's."""
        if not self.address.removeprefix("https://").startswith(_LOOPBACK):
            return None
        what, again = ("cluster", "up") if self.workdir is not None else ("way to the cluster", "connect")
        gone = f"the {what} at {self.address} is gone (process {self.owner.pid} has ended)"
        if self.kept:  # any other folder would be an empty cluster, and nobody would take the jobs up
            folder = shlex.quote(str(self.workdir))
            advice = f"`iriscw up --workdir {folder}`, with its other options, takes its jobs up"
        else:
            advice = f"run `iriscw {again}` again"
        return Keeper(self.owner, f"{gone}: {advice}", comes_back=self.kept)


def context_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the context file, whether or not there is one."""
    environ = os.environ if environ is None else environ
    if named := environ.get(CONTEXT_VARIABLE):
        return Path(named)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "iriscw" / "context.json"
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return home / ".local" / "state" / "iriscw" / "context.json"


def write_context(
    path: Path,
    address: str,
    token: Secret,
    workdir: Path | None = None,
    *,
    server_name: str = "",
    authority: Path | None = None,
    kept: bool = False,
    left: str = "",
) -> ClusterContext:
    """Leave a context of this process at ``path``: whole or not at all, mode 0600.

    Raises:
        InvalidContextFile: it cannot be written.
    """
    written = ClusterContext(address, token, identify(os.getpid()), workdir, server_name, authority, kept, left)
    check_context(path)
    content: dict[str, object] = {
        "address": address,
        "token": token.reveal(),
        "owner": attrs.asdict(written.owner),
        "workdir": None if workdir is None else str(workdir),
        "server_name": server_name,
        "authority": None if authority is None else str(authority),
        "kept": kept,
        "left": left,
    }
    with _writing(path):
        write_atomic(path, json.dumps(content, indent=1).encode() + b"\n")
    return written


def check_context(path: Path) -> None:
    """Make the folder of a context file, and see that files can be written there: before a cluster is started for it.

    Raises:
        InvalidContextFile: they cannot.
    """
    with _writing(path):
        make_private_folder(path.parent)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            number = errno.EROFS if os.statvfs(path.parent).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(number, os.strerror(number), str(path.parent))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidContextFile(
            f"{path}, where other commands find the cluster, cannot be written ({why}): set {CONTEXT_VARIABLE} to a"
            " file that can be"
        ) from error


def read_context(path: Path) -> ClusterContext | None:
    """Read a context; None if there is no file.

    Raises:
        InvalidContextFile: it cannot be read, is no such file, or others than its owner can read it.
    """
    try:
        mode = path.stat().st_mode
        data = read_bounded(path, MAX_CONTEXT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InvalidContextFile(f"{path} cannot be read: {error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidContextFile(f"{path} holds a token and others can read it; remove it, or `chmod 600` it")
    try:
        content = json.loads(data)
        owner = ProcessIdentity(**content["owner"])
        where, authority = (_path(content.get(name)) for name in ("workdir", "authority"))
        name, left = (str(content.get(each) or "") for each in ("server_name", "left"))
        address, token, kept = str(content["address"]), Secret(content["token"]), bool(content.get("kept"))
        return ClusterContext(address, token, owner, where, name, authority, kept, left)
    except (ValueError, KeyError, TypeError) as error:  # its text may be a part of the token: not shown
        raise InvalidContextFile(f"{path} is not a context of a cluster ({type(error).__name__}); remove it") from None


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def remove_context(path: Path, written: ClusterContext) -> None:
    """Remove what :func:`write_context` left, unless somebody else has written there since."""
    try:
        found = read_context(path)
    except InvalidContextFile:
        return
    if found is not None and found.owner == written.owner:
        path.unlink(missing_ok=True)


def discover(address: str | None = None, token: str | Secret | None = None) -> ControllerEndpoint:
    """Find the controller.

    Args:
        address: the controller's, if it is known; then only the token is looked for.
        token: the token, if it is known.

    Raises:
        NoController: nothing says where one is.
        InvalidContextFile: the context file cannot be used.
        InvalidTokenFile: ``IRIS_TOKEN_FILE`` names no token.
        InvalidArgument: ``token`` without ``address``, or no token at all.
    """
    given = Secret(token) if isinstance(token, str) else token
    if address is None and given is not None:
        raise InvalidArgument("token: there is no address that it could be for")
    if given is not None and address is not None:
        return ControllerEndpoint(address, given, _job_at(address), server_name=_server_name(address))
    for found in (_of_task(), _of_environment()):
        if found is not None and address in (None, found.address):
            return found
    left = read_context(context_path())
    if address is None:
        if left is None:
            raise NoController(
                "no controller is known here: give an address, set IRIS_CONTROLLER_ADDRESS, or run `iriscw up`"
                " or `iriscw connect`"
            )
        if left.keeper_here is not None and not left.is_alive:
            raise NoController(left.keeper_here.gone)
        return _of_context(left)
    if left is None or left.address != address:
        return ControllerEndpoint(address)
    return _of_context(left)


def authority_of(address: str, authority: Path | None = None) -> ssl.SSLContext | None:
    """Return whom to trust at an address; None leaves it to the address.

    Args:
        address: the controller's.
        authority: what is known of it already; None takes what ``IRIS_CA_FILE`` names.

    Raises:
        InvalidAddress: the text is none.
        InvalidArgument: the file names no authority.
    """
    named = os.environ.get(CA_VARIABLE)
    if not Address.parse(address).tls or (authority is None and not named):
        return None
    try:
        return client_tls(authority=authority or Path(named or ""))
    except InvalidTls as error:
        raise InvalidArgument(str(error) if authority is not None else f"{CA_VARIABLE}: {error}") from error


def is_network_trusted() -> bool:
    """Whether the environment says that tokens may cross the network without TLS."""
    return os.environ.get(PLAINTEXT_VARIABLE) == "1"


def _of_task() -> ControllerEndpoint | None:
    try:
        task = context()
    except NotInTask:
        return None
    if not task.controller_address:
        return None
    return ControllerEndpoint(task.controller_address, read_token_file(task.token_file), task.job_id)


def _of_environment() -> ControllerEndpoint | None:
    address = os.environ.get("IRIS_CONTROLLER_ADDRESS")
    if not address:
        return None
    file = os.environ.get("IRIS_TOKEN_FILE")
    try:
        token = read_token_file(Path(file)) if file else None
    except InvalidTokenFile as error:
        raise InvalidTokenFile(f"IRIS_TOKEN_FILE: {error}") from error
    return ControllerEndpoint(address, token, os.environ.get("IRIS_JOB_ID", ""), server_name=_server_name(address))


def _job_at(address: str) -> str:
    """Return the job of the task that runs here, if the address is its own controller's; else nothing."""
    with contextlib.suppress(NotInTask):
        task = context()
        if task.controller_address == address:
            return task.job_id
    ours = os.environ.get("IRIS_CONTROLLER_ADDRESS") == address
    return os.environ.get("IRIS_JOB_ID", "") if ours else ""


def _server_name(address: str) -> str:
    """Return the name that the environment says for its own controller."""
    ours = os.environ.get("IRIS_CONTROLLER_ADDRESS") == address
    return os.environ.get(SERVER_NAME_VARIABLE, "") if ours else ""


def _of_context(left: ClusterContext) -> ControllerEndpoint:
    return ControllerEndpoint(
        left.address, left.token, keeper=left.keeper_here, server_name=left.server_name, authority=left.authority
    )
