"""The source of code that travels: a traceback shows the user's file, line and text where there is no such file.

Code that is pickled by value keeps its line numbers; its file is on the submitter's machine, and may be a cell of a
notebook or what was typed into a shell. What Python knows of their text (:mod:`linecache`) travels behind the pickle,
where readers that know nothing of it do not look, and is given back to :mod:`linecache` before the call is made.
"""

from __future__ import annotations

import io
import json
import linecache
import pickle
import types
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

MAX_SOURCE_BYTES: Final = 256 << 10
"""Of all files of a call together, before they are compressed; what is beyond travels without its text."""

_NOTHING: Final = zlib.compress(b"{}")

_OURS: Final = str(Path(__file__).parents[1]) + "/"


def dumps(value: object) -> bytes:
    """Pickle a value, and behind it the source of the code that is pickled by value."""
    import cloudpickle  # type: ignore[import-untyped]

    files: dict[str, None] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, item: Any) -> Any:
            if not isinstance(item, types.CodeType):
                return super().reducer_override(item)
            files[item.co_filename] = None
            make, fields, *rest = self.dispatch_table[types.CodeType](item)
            # Some versions of cloudpickle replace the name of the file by this, and no other field can be it.
            named = tuple(item.co_filename if each == "<dynamic-code>" else each for each in fields)
            return (make, named, *rest)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    sources = _sources(files)
    if sources:
        buffer.write(zlib.compress(json.dumps(sources).encode()))
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """Unpickle a value, and make the source that came with it known; source that cannot be read is left out.

    Raises:
        Exception: what the pickle raises.
    """
    buffer = io.BytesIO(data)
    value = pickle.load(buffer)  # noqa: S301 - the job's own code, in the job's own process
    try:
        sources = json.loads(zlib.decompressobj().decompress(buffer.read() or _NOTHING, 2 * MAX_SOURCE_BYTES))
    except (ValueError, zlib.error):
        return value
    for name, text in sources.items():
        # Without a time of change it is never looked for on the disk, where another file may have this name.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return value


def _sources(files: Iterable[str]) -> Mapping[str, str]:
    """Return the text of files as far as it is known, and there is room for it."""
    found: dict[str, str] = {}
    room = MAX_SOURCE_BYTES
    for name in files:
        text = "".join(linecache.getlines(name))
        room -= len(json.dumps([name, text]))
        if text and room >= 0:
            found[name] = text
    return found


def without_ours(error: BaseException) -> BaseException:
    """Leave out the frames of iriscw that come before the user's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return error.with_traceback(trace)
