"""Which pages of an address space are not there yet, and where in a file their bytes lie. Pure.

An address space changes while its pages come: a program unmaps, moves and forks. So what is missing is kept by address,
each range with the offset of its first byte in the file. Addresses and offsets are bytes, multiples of a page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

Range = tuple[int, int, int]
"""First address, the address after the last one, and the offset of the first."""

_AFTER_ALL: Final = 1 << 65


class Missing:
    """What is missing of one address space: ranges that do not overlap, in the order of their addresses."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = sorted(ranges)
        self.size_bytes = sum(end - start for start, end, _ in self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def ranges(self) -> tuple[Range, ...]:
        """Return all of them."""
        return tuple(self._ranges)

    def copied(self) -> Missing:
        """Return the same for an address space that was forked off this one."""
        return Missing(self._ranges)

    def last(self) -> int:
        """Return the highest address that is missing; there must be one. What is last is dropped in no time."""
        return self._ranges[-1][1] - 1

    def offset_of(self, address: int) -> int | None:
        """Return where the byte of this address lies in the file; None if it is not missing."""
        at = self._index(address)
        if at < 0:
            return None
        start, end, offset = self._ranges[at]
        return offset + address - start if address < end else None

    def around(self, address: int, low: int, high: int) -> list[Range]:
        """Return what is missing around an address, as far as it lies between these offsets of the file.

        The ranges of a file lie in the order of its bytes until a program moves some of them, so these are neighbours.
        """
        at = self._index(address)
        first = at
        while first > 0 and low < self._ranges[first - 1][2] + _length(self._ranges[first - 1]) <= high:
            first -= 1
        found = []
        for index in range(max(0, first), len(self._ranges)):  # a slice would copy all that comes after
            each = self._ranges[index]
            start, _, offset = each
            begin, stop = max(offset, low), min(offset + _length(each), high)
            if begin >= stop:
                if start > address:
                    break
                continue
            found.append((start + begin - offset, start + stop - offset, begin))
        return found

    def drop(self, start: int, end: int) -> None:
        """Forget a range of addresses, whatever of it was missing."""
        self._taken(start, end)

    def move(self, start: int, to: int, length: int) -> None:
        """Have a range of addresses be elsewhere; what was missing there before is gone."""
        taken = self._taken(start, start + length)
        self._taken(to, to + length)
        moved = [(begin - start + to, end - start + to, offset) for begin, end, offset in taken]
        at = self._index(to) + 1
        self._ranges[at:at] = moved
        self.size_bytes += sum(map(_length, moved))

    def _index(self, address: int) -> int:
        """Return the index of the last range that begins at or before an address; -1 if none does."""
        return bisect_right(self._ranges, (address, _AFTER_ALL, 0)) - 1

    def _taken(self, start: int, end: int) -> list[Range]:
        """Take out a range of addresses, and give what was missing of it."""
        if start >= end:
            return []
        low = max(0, self._index(start))
        high = low
        taken: list[Range] = []
        rest: list[Range] = []
        for index in range(low, len(self._ranges)):
            each = self._ranges[index]
            begin, stop, offset = each
            if begin >= end:
                break
            high += 1
            inner_begin, inner_stop = max(begin, start), min(stop, end)
            if inner_begin >= inner_stop:
                rest.append(each)
                continue
            if begin < inner_begin:
                rest.append((begin, inner_begin, offset))
            taken.append((inner_begin, inner_stop, offset + inner_begin - begin))
            if inner_stop < stop:
                rest.append((inner_stop, stop, offset + inner_stop - begin))
        self._ranges[low:high] = rest
        self.size_bytes -= sum(map(_length, taken))
        return taken


def _length(each: Range) -> int:
    return each[1] - each[0]
