"""From a file to a configuration: the one way in.

Text becomes marked values (:mod:`~iriscw.config.yaml_lines`), those a tree of what was said
(:mod:`~iriscw.config.read`), that a complete tree (:mod:`~iriscw.config.resolve`), which must hold no
contradiction (:mod:`~iriscw.config.checks`), and only then the model. Problems of all steps are reported together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from iriscw.config.checks import check
from iriscw.config.errors import ConfigError, ConfigTooLarge, ConfigUnreadable, Problem, ProblemKind
from iriscw.config.model import ClusterConfig
from iriscw.config.read import INVALID, Findings, read
from iriscw.config.resolve import resolve, structure
from iriscw.config.yaml_lines import Marked, mark, parse

FILE_LIMIT_BYTES: Final = 2**20
"""The size of a file: what a Kubernetes ConfigMap can hold."""


def load_config(path: str | os.PathLike[str]) -> ClusterConfig:
    """Read a cluster's configuration from a YAML file.

    Raises:
        ConfigUnreadable: there is no such file, it may not be read, or it is not UTF-8.
        ConfigTooLarge: it is larger than ``FILE_LIMIT_BYTES``.
        ConfigSyntaxError: it is no YAML that a configuration may be.
        ConfigError: it says something that cannot be; the error names every such key and its line.
    """
    source = os.fspath(path)
    try:
        # Non-blocking: opening a pipe that nobody writes would wait for ever.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigUnreadable(source, [_whole("not a file")])
            content = file.read(FILE_LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConfigUnreadable(source, [_whole(f"cannot be read: {text}")]) from None
    if len(content) > FILE_LIMIT_BYTES:
        raise ConfigTooLarge(source, [_TOO_LARGE])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(source, [_whole(f"not UTF-8 at byte {error.start}")]) from None
    return parse_config(text, source=source)


def parse_config(text: str, *, source: str = "cluster.yaml") -> ClusterConfig:
    """Read a configuration from YAML text; ``source`` names it in errors.

    Raises:
        ConfigTooLarge: it is larger than ``FILE_LIMIT_BYTES``.
        ConfigSyntaxError: it is no YAML that a configuration may be.
        ConfigError: it says something that cannot be.
    """
    if len(text) > FILE_LIMIT_BYTES:
        raise ConfigTooLarge(source, [_TOO_LARGE])
    marked, problems = parse(text, source)
    return _build(marked, source, problems)


def build_config(values: Mapping[str, Any], *, source: str = "configuration") -> ClusterConfig:
    """Read a configuration from a mapping as YAML would give it; for programs and tests.

    Raises:
        ConfigSyntaxError: it is nested too deeply.
        ConfigError: it says something that cannot be.
    """
    return _build(mark(values), source, [])


def _build(marked: Marked, source: str, problems: list[Problem]) -> ClusterConfig:
    found = Findings(problems)
    said = read(ClusterConfig, marked, found)
    full = None if said is INVALID else resolve(said, found)
    if full is not None:
        check(full, found)
    if found.problems or full is None:
        raise ConfigError(source, found.problems)
    return structure(ClusterConfig, full)


def _whole(text: str, kind: ProblemKind = ProblemKind.INVALID_VALUE) -> Problem:
    return Problem(kind, "", 0, text)


_TOO_LARGE: Final = _whole(f"larger than {FILE_LIMIT_BYTES} bytes", ProblemKind.LIMIT_EXCEEDED)
