"""Who is at the door: tokens, what they prove, and the files they live in.

Three kinds of caller hold a token. *Admins* and *workers* hold random ones, minted once and written to a
file. A *job* holds a token derived from the cluster's secret and its attempt (HMAC-SHA256), so that the
controller verifies it without keeping a table and every replica of it agrees. Such a token says which attempt
speaks and stays valid as long as the secret does: whether that attempt is still alive (or fenced) is for the
service to judge, by the ``attempt_uid`` of the principal.

Tokens are compared in constant time and travel inside the process as :class:`Secret`, which prints as
``<secret>``.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import make_private_folder, write_atomic
from iriscw.rpc.errors import InvalidTokenFile

TOKEN_BYTES = 32
"""Of randomness in a minted token, as in :mod:`secrets`' own default."""

MAX_TOKEN_CHARS = 4096
"""A longer one is refused before anything is computed. A job token of the longest names has about 800, that of a pod's
service account 1,200 to 2,500."""

MAX_NAME_BYTES = 256
"""Of a job id or attempt uid inside a job token (Kubernetes names have at most 253)."""

_JOB_PREFIX = "iwj1"
_JOB_DOMAIN = b"iriscw job token 1\0"
_CALL_DOMAIN = b"iriscw hosted calls 1\0"


class Secret:
    """A text that never shows in a repr, a log line or a formatted string. Only :meth:`reveal` gives it.

    Compared in constant time, unhashable, and not picklable: a secret moves between processes in a file or a
    call's metadata, where someone decided that it should.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise InvalidArgument("a secret is printable ASCII without spaces, and not empty")
        self._text: Final = text

    def reveal(self) -> str:
        """Return the text. Whoever calls this answers for where it goes."""
        return self._text

    def matches(self, text: str) -> bool:
        """Whether ``text`` is this secret, in a time that depends on neither's content."""
        ours, theirs = hashlib.sha256(self._text.encode()), hashlib.sha256(text.encode())
        return hmac.compare_digest(ours.digest(), theirs.digest())

    def __eq__(self, other: object) -> bool:
        return self.matches(other._text) if isinstance(other, Secret) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a table of secrets would be searched in variable time

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled")


class Role(enum.Enum):
    """What kind of caller a principal is."""

    ADMIN = "admin"
    """A person or tool that holds the cluster's token."""

    WORKER = "worker"
    """A worker process."""

    AGENT = "agent"
    """The node agent of one machine."""

    JOB = "job"
    """User code inside one attempt of one task."""

    METRICS = "metrics"
    """Whoever reads figures: no method of any service, and of the paths of HTTP those with figures only."""

    LOCAL = "local"
    """Whoever can open the 0600 socket: the user who runs this process, or root."""


@attrs.frozen
class Principal:
    """An authenticated caller."""

    role: Role
    job_id: str = ""
    """Of a job-scoped token; otherwise empty."""
    attempt_uid: str = ""
    """Of a job-scoped token; otherwise empty."""

    def __str__(self) -> str:
        """A short text for logs."""
        return f"{self.role.value} {self.job_id}#{self.attempt_uid}" if self.job_id else self.role.value


def mint_token() -> Secret:
    """Make a new random token. For edges only: it reads the operating system's randomness."""
    return Secret(secrets.token_urlsafe(TOKEN_BYTES))


def digest_of(token: Secret) -> str:
    """Return the SHA-256 of a token, in hex: who has it knows the token when it is shown, and cannot show it."""
    return hashlib.sha256(token.reveal().encode()).hexdigest()


def call_key(token: Secret) -> bytes:
    """Derive from an attempt's token what proves to its hosted actor that one may call it: 32 bytes.

    Whoever has it cannot speak for the attempt to the controller.
    """
    return hmac.digest(token.reveal().encode(), _CALL_DOMAIN, "sha256")


def has_digest(token: str, digest: str) -> bool:
    """Whether ``token`` has this digest, in a time that depends on neither's content; none has the empty one."""
    return bool(digest) and hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest().encode(), digest.encode())


class SignedNames:
    """Tokens that say some names, and that who gave them out knew the cluster's secret: ``prefix.name.name.signature``.

    Args:
        cluster_secret: what they are signed with.
        prefix: how they begin.
        domain: keeps this kind of token apart from all others that the secret signs.
    """

    def __init__(self, cluster_secret: Secret, prefix: str, domain: bytes) -> None:
        self._key = cluster_secret.reveal().encode()
        self._prefix = prefix
        self._domain = domain

    def token(self, *names: str) -> Secret:
        """Derive the token of some names. The same names give the same token.

        Raises:
            InvalidArgument: a name is empty or longer than 256 bytes.
        """
        for name in names:
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
                raise InvalidArgument(f"a token's names have 1 to {MAX_NAME_BYTES} bytes, not {len(name.encode())}")
        claim = ".".join([self._prefix, *(_encode(name.encode()) for name in names)])
        return Secret(f"{claim}.{self._signature(claim)}")

    def names(self, token: str) -> tuple[str, ...] | None:
        """Return the names of a token that was signed so, None of any other. All these take the same time."""
        if not _may_be_token(token):
            return None
        claim, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(claim), signature):
            return None
        # Signed by this cluster, so it has the form that `token` gave it.
        prefix, *names = claim.split(".")
        assert prefix == self._prefix
        return tuple(_decode(name) for name in names)

    def _signature(self, claim: str) -> str:
        return _encode(hmac.digest(self._key, self._domain + claim.encode(), "sha256"))


class ClusterTokens:
    """The tokens of one cluster; its :meth:`authenticate` is the callback of a server.

    Args:
        cluster_secret: derives the tokens of jobs; the same on every controller of the cluster.
        admins: tokens that may do everything.
        workers: tokens of worker processes.
        metrics: tokens of those who read figures.
    """

    def __init__(
        self,
        cluster_secret: Secret,
        *,
        admins: Iterable[Secret] = (),
        workers: Iterable[Secret] = (),
        metrics: Iterable[Secret] = (),
    ) -> None:
        self._jobs = SignedNames(cluster_secret, _JOB_PREFIX, _JOB_DOMAIN)
        self._fixed = [(token, Principal(Role.ADMIN)) for token in admins]
        self._fixed += [(token, Principal(Role.WORKER)) for token in workers]
        self._fixed += [(token, Principal(Role.METRICS)) for token in metrics]  # last: of two roles the least counts

    def job_token(self, job_id: str, attempt_uid: str) -> Secret:
        """Derive the token of one attempt. The same names give the same token.

        Raises:
            InvalidArgument: a name is empty or longer than 256 bytes.
        """
        return self._jobs.token(job_id, attempt_uid)

    def authenticate(self, token: str) -> Principal | None:
        """Say who holds ``token``, or None. Takes the same time for every wrong token of one kind."""
        if not _may_be_token(token):
            return None
        found: Principal | None = None
        for secret, principal in self._fixed:  # no early exit: the time must not say which one was close
            if secret.matches(token):
                found = principal
        if found is not None:
            return found
        names = self._jobs.names(token)
        return None if names is None else Principal(Role.JOB, *names)


def _may_be_token(text: str) -> bool:
    return bool(text) and len(text) <= MAX_TOKEN_CHARS and text.isascii()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def write_token_file(path: Path, token: Secret) -> None:
    """Write ``token`` to ``path``: whole or not at all, mode 0600, missing folders 0700. Blocks on the disk.

    Raises:
        OSError: as the file system says it.
    """
    make_private_folder(path.parent)
    write_atomic(path, token.reveal().encode() + b"\n")


def read_token_file(path: Path) -> Secret:
    """Read the token that ``path`` holds. Blocks on the disk.

    Any file mode will do: Kubernetes mounts secrets as 0644 inside a pod.

    Raises:
        InvalidTokenFile: the file cannot be read, or holds no token.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOKEN_CHARS + 2)
    except OSError as error:
        raise InvalidTokenFile(f"the token file {path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_TOKEN_CHARS + 1:
        raise InvalidTokenFile(f"{path} is larger than a token of {MAX_TOKEN_CHARS} characters")
    try:
        return Secret(data.decode("ascii").strip())
    except (UnicodeDecodeError, InvalidArgument):
        raise InvalidTokenFile(f"{path} holds no token: one line of printable ASCII is expected") from None
