"""What a pod would run in its container, as a program of this machine. Pure, but for what it is given to read.

Theory of operation. There is no container: no image, no mounts, no network of its own. So three things of a pod's
manifest are put in terms of the machine at hand. An *image* stands for a command line. A *mounted folder* stands for a
folder of ours; every argument and variable that begins with its path begins with ours instead, and so do paths in files
of ConfigMaps, so that programs find their files by the names that they are told. An *address* of the simulated network
stands for one of loopback, of which there are 2**24, so that each node has all ports for itself.

What cannot be put so is refused by name: the pod does not start.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs

from iriscw._errors import OperationError
from iriscw_sims.kube.kinds import Json, nested

Read: TypeAlias = Callable[[str], Json | None]
"""Gives the object at a path of the API, None if there is none."""

PYTHON = sys.executable
IMAGES: Mapping[str, tuple[str, ...]] = {
    "iris-controller": (PYTHON, "-m", "iriscw.controller"),
    "iris-worker": (PYTHON, "-m", "iriscw.worker", "serve"),
}
"""What our own images run, by their names without registry and tag."""

ROOT_AUTHORITY = "kube-root-ca.crt"
"""The ConfigMap that a cluster's controller manager puts into each namespace; here is none."""

ANY_HOST = "0.0.0.0"  # noqa: S104 - recognised, not bound
LOOPBACK = "127.0.0.1"

_REFERENCE = re.compile(r"\$(\$|\([A-Za-z_.-][A-Za-z0-9_.-]*\))")
_LABEL = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class CannotRun(OperationError):
    """A pod asks for something that processes of this machine cannot be given, or that is not there."""


@attrs.frozen(kw_only=True)
class Stage:
    """What stands for what."""

    images: Mapping[str, tuple[str, ...]] = attrs.field(factory=lambda: IMAGES)
    """The command line of each image, by its name without registry and tag, for pods that bring none."""
    names: Mapping[str, str] = attrs.field(factory=dict)
    """What is said instead of a text wherever it occurs: ``service:port`` of the cluster, and where it really is."""
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What every program is given beside its pod's own variables, which win."""


@attrs.frozen
class PodProgram:
    """What to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(repr=False)
    files: Mapping[Path, bytes] = attrs.field(repr=False)
    """What has to be in the folders that stand for configuration and secrets."""
    folders: tuple[Path, ...]
    """Folders that have to exist."""


def loopback_of(address: str) -> str:
    """Return the loopback address that stands for one of a node: ``127.3.0.7`` for ``10.3.0.7``.

    Raises:
        CannotRun: it is no IPv4 address.
    """
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        raise CannotRun(f"{address!r} is no IPv4 address")
    return ".".join(["127", *parts[1:]])


def program_of(
    pod: Json, read: Read, stage: Stage, *, folder: Path, node_folder: Path, claims_folder: Path
) -> PodProgram:
    """Return what a pod's one container runs.

    Args:
        pod: The API's object, bound to a node.
        read: For ConfigMaps and Secrets.
        stage: What stands for what.
        folder: What stands for the root of the pod's own files.
        node_folder: What stands for the root of its node.
        claims_folder: Where the folders lie that stand for claimed volumes, by namespace and claim.

    Raises:
        CannotRun: see there.
    """
    containers = pod["spec"]["containers"]
    if len(containers) != 1 or pod["spec"].get("initContainers"):
        raise CannotRun("only pods of one container are run as processes")
    container = containers[0]
    mounts, files, plain, expected = _mounted(pod, container, read, _Roots(folder, node_folder, claims_folder))
    scene = _Scene(mounts, stage.names, loopback_of(str(nested(pod, "status", "podIP") or LOOPBACK)))
    told = dict(_variables(pod, container, read))
    environment = {**stage.environment, **{name: scene.text(value) for name, value in told.items()}}
    argv = [
        *(container.get("command") or _entry(stage, str(container.get("image", "")))),
        *(container.get("args") or ()),
    ]
    return PodProgram(
        argv=tuple(scene.text(_expanded(str(each), told)) for each in argv),
        environment=environment,
        files={path: scene.content(content) if path in plain else content for path, content in files.items()},
        folders=tuple(place for path, place in mounts.items() if path not in expected),
    )


def _entry(stage: Stage, image: str) -> tuple[str, ...]:
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    if name not in stage.images:
        raise CannotRun(f"nobody said what the image {image!r} runs")
    return stage.images[name]


@attrs.frozen
class _Scene:
    """Puts texts in terms of this machine."""

    mounts: Mapping[str, Path]
    names: Mapping[str, str]
    address: str

    def text(self, text: str) -> str:
        for name, real in self.names.items():
            text = text.replace(name, real)
        before, equals, after = text.rpartition("=")
        if equals and before.startswith("-"):
            return f"{before}={self._place(after)}"
        return self._place(text)

    def content(self, content: bytes) -> bytes:
        """Put the paths in a file of a ConfigMap in terms of this machine; what is no text is left alone."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        paths = "|".join(re.escape(path) for path in sorted(self.mounts, key=len, reverse=True))
        places = re.compile(rf"(?<![\w/.-])({paths})(?=[/\"'\s]|$)")
        text = places.sub(lambda found: str(self.mounts[found[1]]), text) if paths else text  # at once: ours may match
        return text.encode()

    def _place(self, text: str) -> str:
        if text in (ANY_HOST, LOOPBACK):
            return self.address
        for path in sorted(self.mounts, key=len, reverse=True):
            if text == path or text.startswith(f"{path}/"):
                return f"{self.mounts[path]}{text[len(path) :]}"
        return text


@attrs.frozen
class _Roots:
    """Where the folders lie that stand for volumes."""

    own: Path
    node: Path
    claims: Path


def _mounted(
    pod: Json, container: Json, read: Read, roots: _Roots
) -> tuple[dict[str, Path], dict[Path, bytes], set[Path], set[str]]:
    """Return the folder that stands for each mount path, the files in them, which of these are of ConfigMaps, and which
    paths must be there already: the kubelet does not make a folder of the type ``Directory`` either.
    """
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    mounts: dict[str, Path] = {}
    files: dict[Path, bytes] = {}
    plain: set[Path] = set()
    expected: set[str] = set()
    for mount in container.get("volumeMounts") or ():
        path = str(mount["mountPath"]).rstrip("/")
        volume = volumes[mount["name"]]
        if mount.get("subPath"):
            raise CannotRun(f"{path}: sub-paths of volumes are not stood in for")
        if "hostPath" in volume:
            mounts[path] = place = _below(roots.node, str(volume["hostPath"]["path"]))
            if volume["hostPath"].get("type") == "Directory":
                expected.add(path)
                if not place.is_dir():
                    raise CannotRun(f"{volume['hostPath']['path']} is not there")
            continue
        if "persistentVolumeClaim" in volume:
            claim = str(volume["persistentVolumeClaim"]["claimName"])
            mounts[path] = claimed(roots.claims, pod["metadata"]["namespace"], claim)
            continue
        mounts[path] = place = _below(roots.own, path)
        for name, content in _content(pod, volume, read):
            files[_below(place, name)] = content
            if "configMap" in volume:
                plain.add(_below(place, name))
    return mounts, files, plain, expected


def _content(pod: Json, volume: Json, read: Read) -> Iterator[tuple[str, bytes]]:
    source: Json
    namespace = pod["metadata"]["namespace"]
    if "emptyDir" in volume:
        return
    if "configMap" in volume:
        source = volume["configMap"]
        yield from _entries(source, _found(read, namespace, "configmaps", source["name"], source))
    elif "secret" in volume:
        source = volume["secret"]
        yield from _entries(source, _found(read, namespace, "secrets", source["secretName"], source))
    elif "projected" in volume:
        for part in volume["projected"].get("sources") or ():
            yield from _projected(pod, part, read)
    else:
        kinds = ", ".join(name for name in volume if name != "name")
        raise CannotRun(f"volumes of this kind are not stood in for: {kinds}")


def _projected(pod: Json, part: Json, read: Read) -> Iterator[tuple[str, bytes]]:
    """Yield one source of a projected volume. Where there is a token, none is made: ``KUBECONFIG`` has to name the way
    to the API, as in each program of this machine.
    """
    namespace = pod["metadata"]["namespace"]
    if "configMap" in part and part["configMap"]["name"] != ROOT_AUTHORITY:
        yield from _entries(
            part["configMap"], _found(read, namespace, "configmaps", part["configMap"]["name"], part["configMap"])
        )
    elif "secret" in part:
        source = part["secret"]
        yield from _entries(source, _found(read, namespace, "secrets", source["name"], source))
    elif "downwardAPI" in part:
        for item in part["downwardAPI"].get("items") or ():
            yield item["path"], _field(pod, str(item["fieldRef"]["fieldPath"])).encode()


def _entries(source: Json, data: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    items = source.get("items")
    if items is None:
        yield from data.items()
        return
    for item in items:
        if item["key"] not in data:
            raise CannotRun(f"references non-existent config key: {item['key']}")
        yield item["path"], data[item["key"]]


def _found(read: Read, namespace: str, plural: str, name: str, source: Json) -> dict[str, bytes]:
    """Return what a ConfigMap or Secret holds; nothing if it is not there and need not be."""
    item = read(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
    if item is None:
        if source.get("optional"):
            return {}
        raise CannotRun(f'{plural.removesuffix("s")} "{name}" not found')
    data = item.get("data") or {}
    if plural == "secrets":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = {key: base64.b64decode(value) for key, value in (item.get("binaryData") or {}).items()}
    return {**{key: value.encode() for key, value in data.items()}, **binary}


def _variables(pod: Json, container: Json, read: Read) -> Iterator[tuple[str, str]]:
    """Yield the variables in the order in which they may refer to each other."""
    told: dict[str, str] = {}
    for each in container.get("env") or ():
        source = each.get("valueFrom")
        value = _expanded(str(each.get("value", "")), told) if source is None else _looked_up(pod, source, read)
        if value is not None:
            told[each["name"]] = value
            yield each["name"], value


def _looked_up(pod: Json, source: Json, read: Read) -> str | None:
    if "fieldRef" in source:
        return _field(pod, str(source["fieldRef"]["fieldPath"]))
    for kind, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
        if kind in source:
            reference = source[kind]
            data = _found(read, pod["metadata"]["namespace"], plural, reference["name"], reference)
            if reference["key"] in data:
                return data[reference["key"]].decode(errors="replace")
            if reference.get("optional"):
                return None
            raise CannotRun(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise CannotRun(f"variables of this kind are not stood in for: {', '.join(source)}")


def _field(pod: Json, path: str) -> str:
    labelled = _LABEL.fullmatch(path)
    if labelled is not None:
        return str((pod["metadata"].get(labelled[1]) or {}).get(labelled[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return loopback_of(str(nested(pod, *path.split(".")) or ""))
    if path in ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"):
        return str(nested(pod, *path.split(".")) or "")
    raise CannotRun(f"the field {path} is not stood in for")


def _expanded(text: str, told: Mapping[str, str]) -> str:
    """Put in what ``$(NAME)`` names; what nobody named stays as it is, and ``$$`` is a dollar."""

    def put(found: re.Match[str]) -> str:
        word = found[1]
        return "$" if word == "$" else told.get(word[1:-1], found[0])

    return _REFERENCE.sub(put, text)


def claimed(folder: Path, namespace: str, claim: str) -> Path:
    """Return the folder that stands for a claimed volume: it outlives pods, and nodes."""
    return _below(folder, f"{namespace}/{claim}")


def _below(folder: Path, path: str) -> Path:
    """Return what stands for an absolute path under a folder that stands for the root."""
    place = folder / path.strip("/")
    if ".." in place.parts:
        raise CannotRun(f"{path} leads out of its folder")
    return place
