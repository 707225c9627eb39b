"""JSON that cannot change: how answers share objects with the store without being able to harm it.

The store keeps each object as a tree of :class:`FrozenDict` and :class:`FrozenList` and hands out the very same tree,
in every list and every watch event: nothing is copied when something is read. They compare equal to plain dicts and
lists and are encoded like them; a change raises ``TypeError``.

A writer builds a new tree out of plain containers and frozen branches that stay. :func:`freeze` walks only the plain
part, so a write costs what it changes and not what the object weighs. ``copy.deepcopy`` of a frozen tree, as
:func:`thaw`, gives a plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from iriscw._errors import InvalidArgument


def _refuse(self: object, *_args: object, **_words: object) -> NoReturn:
    raise TypeError(f"a {type(self).__name__} of the simulated API server cannot change; copy it with thaw()")


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses every change."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for the type checker this is a dict
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Return a plain copy that may be changed."""
        plain: dict[str, Any] = thaw(self)
        return plain

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[dict[str, Any]]]:
        """Pickle as frozen again."""
        return freeze, (thaw(self),)


class FrozenList(list[Any]):
    """A JSON array that refuses every change."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
        append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        """Return a plain copy that may be changed."""
        plain: list[Any] = thaw(self)
        return plain

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[list[Any]]]:
        """Pickle as frozen again."""
        return freeze, (thaw(self),)


_SCALARS = (str, int, float, bool, type(None))
_KEPT = frozenset((*_SCALARS, FrozenDict, FrozenList))
"""Types whose values are frozen as they are."""


def freeze(value: Any) -> Any:
    """Return ``value`` frozen. Branches that are frozen already stay the same objects.

    Raises:
        InvalidArgument: ``value`` holds something that is not JSON.
    """
    kind = type(value)
    if kind in _KEPT:
        return value
    if kind is dict:
        if not value:
            return EMPTY
        kept = _KEPT  # most values are scalars: a call for each would be most of the time
        return FrozenDict({key: item if type(item) in kept else freeze(item) for key, item in value.items()})
    if kind is list or kind is tuple:
        return FrozenList([freeze(item) for item in value])
    if isinstance(value, _SCALARS):
        return value
    raise InvalidArgument(f"not JSON: a {kind.__name__}")


def thaw(value: Any) -> Any:
    """Return a plain deep copy of ``value`` that may be changed."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


def shared(old: Any, new: Any) -> Any:
    """Return ``new`` with every branch that equals ``old``'s replaced by that, so that changes are found fast."""
    if new == old:
        return old
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: shared(old[key], item) if key in old else item for key, item in new.items()}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [shared(before, item) for before, item in zip(old, new, strict=True)]
    return new


EMPTY: FrozenDict = FrozenDict()
"""Stands for a part that an object does not have."""
