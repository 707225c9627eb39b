"""A kubeconfig read: one context of it, as the way to a cluster.

Theory of operation. Files are read and merged here, as kubectl does it. ``kubernetes_asyncio`` carries out the logins
that need more than a token: programs (``exec``), OpenID Connect, Google's. It is imported only then: it costs 300 ms
and 70 MB. Whom to trust is read here, so that ``insecure-skip-tls-verify`` is refused instead of obeyed and no private
key is left in a temporary file. None of the library's messages is shown: they quote the file, with its tokens.

What is not understood and would change who acts, or on what, is refused: impersonation, certificates from programs.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs

from iriscw._errors import is_stray
from iriscw.cloud.drivers.kube.access import (
    AUTHORITY_BYTES,
    ClusterAccess,
    InsecureAccess,
    checked_proxy,
    checked_url,
    proxy_for,
    trusting,
)
from iriscw.cloud.drivers.kube.credentials import (
    INSTALL,
    Credentials,
    Fixed,
    Header,
    InvalidAccess,
    LibraryMissing,
    Renewed,
    read_small,
    token_file,
)
from iriscw.files import write_atomic

logging.getLogger("kubernetes_asyncio.config.kube_config").addFilter(lambda _record: False)
# It logs what it raises, and both quote the files and what login programs said.

FILE_BYTES = 2**20
"""Of one kubeconfig: a thousand clusters with their authorities."""

FILES = 100
"""That ``KUBECONFIG`` may name."""

LOGIN_S = 60.0
"""Seconds that a login may take: a program may have to ask somebody. A renewal has what a request has, if less."""

HEAD = {"apiVersion": "v1", "kind": "Config"}
"""What a kubeconfig begins with, unless that is left out."""

SECTIONS = ("clusters", "users", "contexts")

LOGINS = ("exec", "auth-provider", "username")
"""What the library carries out."""

REFUSED = ("as", "as-groups", "as-uid", "as-user-extra")
"""What would make us somebody else."""


@attrs.frozen
class KubeconfigEntry:
    """One entry of a kubeconfig, and the folder that its relative paths begin at."""

    values: Mapping[str, Any] = attrs.field(repr=False)
    folder: Path

    def data(self, name: str) -> bytes | None:
        """Return what stands in ``NAME-data``, or in the file that ``NAME`` names; None if there is neither.

        A file that is named has to be there, whatever stands beside it.

        Raises:
            InvalidAccess: it cannot be read.
        """
        inline, path = self.values.get(f"{name}-data"), self.values.get(name)
        content = read_small(self.folder / str(path), AUTHORITY_BYTES) if path else None
        if inline:
            try:
                # Lines are what `base64` without -w0 writes, and Go takes.
                return base64.b64decode(str(inline).replace("\n", "").replace("\r", ""), validate=True)
            except ValueError:
                raise InvalidAccess(f"{name}-data is not base64") from None
        return content


async def from_kubeconfig(
    paths: Sequence[Path], context: str | None = None, environ: Mapping[str, str] = os.environ
) -> ClusterAccess:
    """Read the way to a cluster from kubeconfig files; the first file that has an entry of a name wins.

    Args:
        paths: The files. One that does not exist is passed over, if there is another.
        context: Which context; by default the current one.
        environ: Names a proxy, unless the file does.

    Raises:
        InvalidAccess: it cannot be used as it is written.
        InsecureAccess: it is not protected by TLS.
    """
    merged = _merged(paths)
    chosen = context if context is not None else str(merged.get("current-context") or "")
    if not chosen:
        raise InvalidAccess(f"the kubeconfig {_names(paths)} has no current context: say --context")
    its = _entry(merged, "contexts", chosen, "context").values
    cluster = _entry(merged, "clusters", str(its.get("cluster") or ""), "cluster")
    user = KubeconfigEntry({}, cluster.folder)
    if its.get("user"):
        user = _entry(merged, "users", str(its["user"]), "user")
    if cluster.values.get("insecure-skip-tls-verify"):
        raise InsecureAccess("the kubeconfig asks for TLS without verification: name the certificate authority instead")
    url = checked_url(str(cluster.values.get("server") or ""))
    proxy = cluster.values.get("proxy-url")
    return ClusterAccess(
        url,
        await _credentials(user),
        _tls(cluster, user) if url.startswith("https:") else None,
        tls_name=str(cluster.values.get("tls-server-name") or "") or None,
        proxy=checked_proxy(str(proxy)) if proxy else proxy_for(url, environ),
        namespace=str(its.get("namespace") or ""),
    )


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _merged(paths: Sequence[Path]) -> Mapping[str, Any]:
    found = [each for each in (path.expanduser() for path in paths) if each.exists()]
    if not found:
        raise InvalidAccess(f"there is no kubeconfig at {_names(paths)}")
    if len(found) > FILES:
        raise InvalidAccess(f"{len(found)} kubeconfig files are more than {FILES}")
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    merged["current-context"] = ""
    for each in found:
        config = _parsed(each)
        try:
            for section in SECTIONS:
                entries = config.get(section) or ()
                if len({entry["name"] for entry in entries}) < len(entries):
                    raise InvalidAccess(f"{each} has two of one name among its {section}")
                for entry in entries:
                    merged[section].setdefault(entry["name"], (entry, each.absolute().parent))
        except (TypeError, LookupError, AttributeError):
            raise InvalidAccess(f"{each} is not a kubeconfig: its {section} are not written as entries") from None
        merged["current-context"] = merged["current-context"] or config.get("current-context")
    return merged


def _parsed(path: Path) -> Mapping[str, Any]:
    """Read a file as kubectl does: JSON, or the first document of YAML; one that holds nothing is a configuration."""
    text = str(read_small(path, FILE_BYTES), "utf-8", "replace")
    try:
        if text.lstrip().startswith("{"):
            found = json.loads(text)
        else:
            from ruamel.yaml import YAML

            found = next(iter(YAML(typ="safe", pure=True).load_all(text)), None)
    except Exception as broken:  # noqa: BLE001 - parsers raise what they like, and all of it quotes the file
        raise InvalidAccess(f"{path} is not a kubeconfig ({type(broken).__name__})") from None
    if found is not None and not isinstance(found, Mapping):
        raise InvalidAccess(f"{path} is not a kubeconfig: it holds no fields")
    found = found or {}
    for field, value in HEAD.items():
        if found.get(field, value) not in (value, None, ""):
            raise InvalidAccess(f"{path} is not a kubeconfig: its {field} is another")
    return found


def _entry(merged: Mapping[str, Any], section: str, name: str, inside: str) -> KubeconfigEntry:
    """Find an entry by name."""
    if name in merged[section]:
        entry, folder = merged[section][name]
        values = entry.get(inside)
        if not isinstance(values, Mapping):
            raise InvalidAccess(f"{name!r} among the {section} of the kubeconfig is not written as one")
        return KubeconfigEntry(values, folder)
    raise InvalidAccess(f"the kubeconfig has no {name!r} among its {section}")


def _tls(cluster: KubeconfigEntry, user: KubeconfigEntry) -> ssl.SSLContext:
    context = trusting(cluster.data("certificate-authority"))
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if (certificate is None) != (key is None):
        raise InvalidAccess("a client certificate takes its key, and the key its certificate")
    if certificate is not None and key is not None:
        # OpenSSL reads keys from files only: one that nobody else reads, and that is gone at once.
        with tempfile.TemporaryDirectory(prefix="iriscw-") as folder:
            path = Path(folder) / "client.pem"
            write_atomic(path, certificate + b"\n" + key, durable=False)
            try:
                context.load_cert_chain(path)
            except (ssl.SSLError, ValueError):
                raise InvalidAccess("the client certificate and its key cannot be used") from None
    return context


async def _credentials(user: KubeconfigEntry) -> Credentials:
    values = user.values
    for name in REFUSED:
        if values.get(name):
            raise InvalidAccess(f"the kubeconfig's user has {name!r}: impersonation is not supported")
    if values.get("tokenFile"):
        return await token_file(user.folder / str(values["tokenFile"]))
    if values.get("token") and not values.get("auth-provider"):
        return Fixed(Header.of("Bearer", str(values["token"])))
    if not any(values.get(name) for name in LOGINS):
        return Fixed()
    login = _Login(user)
    first = await login.again(True)
    return Renewed(login.again, first) if login.ends else Fixed(first)


class _Login:
    """A login that the library carries out, and repeats."""

    def __init__(self, user: KubeconfigEntry) -> None:
        self._user = user
        self._loader: Any = None
        self._last: Header | None = None
        self.ends = not user.values.get("username")
        """Whether what it gives ends some time."""

    async def again(self, refused: bool) -> Header:
        """Log in. The library keeps what has not ended, so after a refusal it begins anew.

        A program that does not say when its token ends is run again after a refusal only, as client-go does it.

        Raises:
            LibraryMissing: what carries it out is not installed.
            InvalidAccess: that failed.
        """
        try:
            from kubernetes_asyncio.client import Configuration
        except ModuleNotFoundError:
            raise LibraryMissing(f"the kubeconfig's login needs the package kubernetes_asyncio: {INSTALL}") from None
        if refused or self._loader is None:
            self._loader = self._new_loader()
        elif self._last is not None and self._endless:
            return self._last
        configuration = Configuration()
        try:
            with anyio.fail_after(LOGIN_S):
                await self._loader.load_and_set(configuration)
        except BaseException as problem:  # a login is other people's programs and servers: it may raise all
            if not isinstance(problem, Exception) and not is_stray(problem):
                raise
            # What a program says may quote a token, and would end in logs. It is whoever runs it that should see that.
            program = self._user.values.get("exec")
            named = "; run its program by hand to see what it says" if program else ""
            raise InvalidAccess(f"the kubeconfig's login failed ({type(problem).__name__}){named}") from None
        if configuration.cert_file:
            raise InvalidAccess(
                "the kubeconfig's login gives a certificate, which is not supported: it must be a token"
            )
        scheme, _, text = str(configuration.api_key.get("BearerToken", "")).partition(" ")
        self._last = Header.of(scheme, text)
        return self._last

    @property
    def _endless(self) -> bool:
        return bool(self._user.values.get("exec")) and not hasattr(self._loader, "exec_plugin_expiry")

    def _new_loader(self) -> Any:
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        reduced = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://localhost"}}],  # it never goes there
            "users": [{"name": "u", "user": _with_program(self._user)}],
        }
        return KubeConfigLoader(reduced, config_base_path=str(self._user.folder))


def _with_program(user: KubeconfigEntry) -> dict[str, Any]:
    """Return a user's values with the path of its login program: one with a slash begins at the file it stands in."""
    values = dict(user.values)
    program = values.get("exec")
    if isinstance(program, Mapping) and "/" in str(program.get("command", "")):
        values["exec"] = {**program, "command": str(user.folder / str(program["command"]))}
    return values
