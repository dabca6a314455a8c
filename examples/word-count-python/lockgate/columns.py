"""Columns: many byte strings in one, as wit/operator.wit has them; and bitmaps, a bit for each of them.

Invariant: a column is taken apart and put together by a few operations over all of it, for Python is slow row by row.
"""

from array import array
from itertools import accumulate, pairwise

from wit_world.imports import types


NO_COLUMN = types.Column(b"", b"")
"""Every row is empty."""


def column(rows):
    return types.Column(b"".join(rows), array("I", accumulate(map(len, rows), initial=0)).tobytes())


def rows_of(column):
    return max(0, len(column.offsets) // 4 - 1)


def strings(column, rows):
    data = column.data
    if not data:
        return [b""] * rows
    return [data[start:end] for start, end in pairwise(array("I", column.offsets))]


def set_bits(bitmap):
    """The numbers of the bits that are set, in order."""
    bits = int.from_bytes(bitmap, "little")
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def bitmap(flags):
    """A bit for each of the flags."""
    bits = int("".join("1" if flag else "0" for flag in reversed(flags)), 2)
    return bits.to_bytes((len(flags) + 7) // 8, "little")


def without(strings, bitmap):
    """With `None` where the bitmap says that there is nothing."""
    rows = len(strings)
    if int.from_bytes(bitmap, "little").bit_count() == rows:
        return [None] * rows
    for row in set_bits(bitmap):
        strings[row] = None
    return strings
