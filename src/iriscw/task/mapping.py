"""One function and many items, as one call: task i of the job makes ``function(items[i])``.

All tasks share one payload, which each worker is sent once. The function is pickled once. So is each class and function
of the submitter's own that items hold; an item names them by number. Items are pickled one by one, and a task unpickles
its own alone.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from iriscw._errors import UsageError
from iriscw.task.context import context
from iriscw.task.payload import NotPicklable, PayloadTooLarge, culprit_of

PROTOCOL: Final = 5


class TooManyItems(UsageError):
    """There are more items than a job may have tasks."""


class MappedCall:
    """What the tasks of an array job run. It looks like its function to whoever asks for its name or its module.

    Args:
        function: is given one item.
        items: as many as there are tasks.
        own: modules that the tasks may not have, so that what is defined in them has to travel.
        limit: how many items there may be.
        limit_bytes: of all items together, pickled.

    Raises:
        NotPicklable: an item cannot travel.
        TooManyItems: there are more than ``limit``.
        PayloadTooLarge: they take more than ``limit_bytes``.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        own: Collection[str],
        limit: int,
        limit_bytes: int,
    ) -> None:
        self.function = function
        self.shared: list[Any] = []
        """Classes and functions that items hold, by number."""
        self.__module__ = str(getattr(function, "__module__", None))
        self.__qualname__ = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
        self.items: list[bytes] = []
        packer, size_bytes = _Packer(self.shared, own), 0
        for number, item in enumerate(items):
            if number == limit:
                raise TooManyItems(f"items: there are more than {limit}; give each task several, as a list")
            self.items.append(packer.pack(number, item))
            size_bytes += len(self.items[-1])
            if size_bytes > limit_bytes:
                raise PayloadTooLarge(
                    f"items: the first {number + 1} take {size_bytes} bytes, and all together may take {limit_bytes}; "
                    "pass the names of files or objects instead of their content"
                )

    def __call__(self) -> Any:  # whatever the user's function gives
        """Make this task's call."""
        return self.function(self.item(context().index))

    def item(self, index: int) -> Any:
        """Return one item.

        Raises:
            Exception: what its pickle raises.
        """
        return _Unpacker(io.BytesIO(self.items[index]), self.shared).load()


class _Packer:
    """Pickles items, and keeps apart what is defined in modules that the tasks do not have."""

    def __init__(self, shared: list[Any], own: Collection[str]) -> None:
        import cloudpickle  # type: ignore[import-untyped]

        numbers: dict[int, int] = {}

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
            def persistent_id(self, item: Any) -> int | None:
                if not isinstance(item, type | types.FunctionType):
                    return None
                if getattr(item, "__module__", None) not in own:
                    return None
                if id(item) not in numbers:
                    numbers[id(item)] = len(shared)
                    shared.append(item)  # which keeps its id its own
                return numbers[id(item)]

        self._pickler = Pickler

    def pack(self, number: int, item: Any) -> bytes:
        file = io.BytesIO()
        try:
            self._pickler(file, PROTOCOL).dump(item)
        except Exception as error:
            raise NotPicklable(f"{culprit_of(f'item {number}', item)} cannot be pickled: {error}") from error
        return file.getvalue()


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self._shared[number]
