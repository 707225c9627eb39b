"""What a job asks to be done before its program begins: packages to be installed, and steps to be run. Pure.

A requirement is a name with versions, extras and markers, as ``pip`` takes it, and may name hashes. It says *what* is
wanted and never *where from*: that is the business of the worker's own settings. So options (``-e``, ``--index-url``)
and addresses (``name @ file:///...``, ``git+https://...``) are refused, here for whoever submits a job and once more
for the worker, which believes nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from iriscw._errors import InvalidArgument

MAX_DEPENDENCIES = 2_000
"""Requirements of one job: a lock file of a large project names some 500."""

MAX_DEPENDENCY_BYTES = 512 << 10
"""Of all requirements with their hashes: 200 packages with 30 hashes each."""

MAX_STEPS = 64

MAX_STEP_BYTES = 128 << 10
"""Of all steps' arguments together: what a command may have."""

DEFAULT_SETUP_TIMEOUT_S = 1800.0
"""Of the installation, and of each step: PyTorch with its libraries is 5 GB, at 3 MB a second."""

MAX_SETUP_TIMEOUT_S = 86_400.0

_HASH = re.compile(r"--hash=(?P<hash>sha(?:256|384|512):[0-9a-f]{64,128})")


class InvalidDependency(InvalidArgument):
    """A text is not a requirement that can be installed, or says where its package comes from."""


@attrs.frozen
class Setup:
    """What is done before the program of a task begins.

    Args:
        dependencies: requirements in their normal form, see :func:`normal`.
        steps: commands with their arguments.
        timeout_ns: of the installation, and of each step.
    """

    dependencies: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    timeout_ns: int = round(DEFAULT_SETUP_TIMEOUT_S * 1e9)

    def __bool__(self) -> bool:
        return bool(self.dependencies or self.steps)


def normal(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return requirements as they are compared, sorted and each once; what means the same is the same.

    Raises:
        InvalidDependency: one is none, says where its package comes from, or there are too many.
    """
    if len(requirements) > MAX_DEPENDENCIES:
        raise InvalidDependency(f"dependencies: {len(requirements)} requirements, and at most {MAX_DEPENDENCIES}")
    found = tuple(sorted(dict.fromkeys(_normal(each) for each in requirements)))
    size_bytes = sum(len(each.encode()) + 1 for each in found)
    if size_bytes > MAX_DEPENDENCY_BYTES:
        text = f"{size_bytes} bytes of requirements are more than {MAX_DEPENDENCY_BYTES}"
        raise InvalidDependency(f"dependencies: {text}")
    return found


def _normal(text: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    if not isinstance(text, str):
        raise InvalidDependency(f"dependencies: {text!r:.64} is not a text")
    hashes = sorted({found["hash"] for found in _HASH.finditer(text)})
    plain = _HASH.sub("", text).strip()
    if not plain.isprintable():
        raise InvalidDependency(f"dependencies: {plain!r:.80} holds a character that cannot be shown")
    if plain.startswith("-") or " -" in plain:
        raise InvalidDependency(
            f"dependencies: {plain!r:.80} is an option; options are those of the workers, not of a job"
        )
    try:
        read = Requirement(plain)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise InvalidDependency(
            f"dependencies: {plain!r:.80} is not a requirement such as 'numpy>=2': {why}"
        ) from error
    if read.url is not None:
        raise InvalidDependency(
            f"dependencies: {read.name!r:.80} says where it comes from; that is for the workers to say: give a "
            "version, or put the package into the bundle"
        )
    extras = f"[{','.join(sorted(canonicalize_name(each) for each in read.extras))}]" if read.extras else ""
    marker = f" ; {read.marker}" if read.marker is not None else ""
    said = "".join(f" --hash={each}" for each in hashes)
    return f"{canonicalize_name(read.name)}{extras}{read.specifier}{marker}{said}"


def check_setup_timeout(seconds: object) -> float:
    """Return how long an installation, and each step, may take.

    Raises:
        InvalidArgument: it is not a number of seconds that can be.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= MAX_SETUP_TIMEOUT_S:
        raise InvalidArgument(f"setup_timeout: {seconds!r:.64} is not a number of seconds from 1 to a day")
    return float(seconds)


def check_steps(steps: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return steps as they are run.

    Raises:
        InvalidArgument: one is a text and no list, has no program, or holds what no argument can.
    """
    if isinstance(steps, str) or len(steps) > MAX_STEPS:
        raise InvalidArgument(f"setup: give a list of at most {MAX_STEPS} commands, each a list of arguments")
    found = []
    for step in steps:
        if isinstance(step, str) or not step or not all(isinstance(word, str) for word in step):
            raise InvalidArgument(f"setup: {step!r:.80} is not a list of arguments; no shell is there to split a text")
        if not step[0] or any("\0" in word for word in step):
            raise InvalidArgument(f"setup: {list(step)!r:.80} has no program, or holds a zero byte")
        found.append(tuple(step))
    size_bytes = sum(len(word.encode(errors="surrogatepass")) + 1 for step in found for word in step)
    if size_bytes > MAX_STEP_BYTES:
        raise InvalidArgument(f"setup: {size_bytes} bytes of arguments are more than {MAX_STEP_BYTES}")
    return tuple(found)
