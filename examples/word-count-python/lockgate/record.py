"""Records, out of a batch and into one.

Invariant: what is sent has the event time and the headers of the record that it was made of.
"""

from array import array
from operator import itemgetter

from wit_world.imports import output, types

from .columns import bitmap, column, strings, without

NO_TIMESTAMP = -(1 << 63)
"""The event time of a record that has none."""
OUTPUT_ROWS_MAX = 4096
"""A batch leaves when it has this many records ..."""
OUTPUT_BYTES_MAX = 256 << 10
"""... or about this many bytes."""


class Record(tuple):
    """A record: `key` and `value` are bytes, or `None` where they are missing; `timestamp` is the event time in milliseconds
    since 1970; `headers` are the bytes of its headers as wit/operator.wit has them."""

    __slots__ = ()
    key = property(itemgetter(0))
    value = property(itemgetter(1))
    timestamp = property(itemgetter(2))
    headers = property(itemgetter(3))


NO_RECORD = Record((None, None, NO_TIMESTAMP, b""))
"""What is at hand where no record is."""


def records_of(batch):
    rows = batch.rows
    keys, values = strings(batch.keys, rows), strings(batch.values, rows)
    if batch.nulls:
        half = len(batch.nulls) // 2
        keys, values = without(keys, batch.nulls[:half]), without(values, batch.nulls[half:])
    headers = [b""] * rows
    if batch.ext:
        offsets = 4 * (rows + 1)
        headers = strings(types.Column(batch.ext[offsets:], batch.ext[:offsets]), rows)
    return list(map(Record, zip(keys, values, array("q", batch.timestamps), headers)))


def send(port, rows):
    """Sends what was emitted to an output, in batches."""
    if not rows:
        return
    keys, values, records = zip(*rows)
    _, _, timestamps, headers = zip(*records)
    nulls, ext = b"", b""
    if None in keys or None in values:
        nulls = bitmap([key is None for key in keys]) + bitmap([value is None for value in values])
        keys, values = [key or b"" for key in keys], [value or b"" for value in values]
    if any(headers):
        with_offsets = column(headers)
        ext = with_offsets.offsets + with_offsets.data
    keys, values = column(keys), column(values)
    size = len(keys.data) + len(values.data) + len(ext)
    if len(rows) > 1 and (len(rows) > OUTPUT_ROWS_MAX or size > OUTPUT_BYTES_MAX):
        half = len(rows) // 2
        send(port, rows[:half])
        send(port, rows[half:])
    else:
        output.emit(port, types.Batch(len(rows), keys, values, array("q", timestamps).tobytes(), nulls, ext))
