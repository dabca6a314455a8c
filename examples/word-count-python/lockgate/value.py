"""Values by key: fields of an operator that are tables of its state."""

from wit_world.imports import state, types

from .columns import NO_COLUMN, column, set_bits, strings
from .table import ABSENT, CACHE_BYTES_MAX, ENTRY_BYTES, Table, key_of

AHEAD_ROWS_FIRST = 64
"""For so many records the values are read at once at first ..."""
AHEAD_ROWS_MAX = 4096
"""... and for so many at most."""


class Value(Table):
    """A table with one value for each key, declared as a field of the operator. The field is the value of the record at hand:
    read it, set it, delete it. It is `default` where there is none.

    What was read is kept, and what the host doesn't know yet."""

    kind = types.TableKind.VALUE

    def __init__(self, name, encoding, default=None, version=1):
        super().__init__(name, encoding, version)
        self.default = default

    def open(self, index):
        super().open(index)
        self.read = (0, 0)

    def __get__(self, operator, owner=None):
        if operator is None:
            return self
        value = self.cells.get(operator._record[0])
        if value is None:
            value = self.load(operator)
        return self.default if value is ABSENT else value

    def __set__(self, operator, value):
        self.put(operator, key_of(operator), value)

    def __delete__(self, operator):
        self.__set__(operator, ABSENT)

    def load(self, operator):
        """Reads the values of this record and of those behind it, and gives that of this one."""
        key = key_of(operator)
        ahead = (record[0] for record in operator._records[operator._row :][: self.read_rows_max()])
        keys = [key for key in dict.fromkeys(ahead) if key is not None and key not in self.cells]
        entries = state.get_many(self.index, column(keys), NO_COLUMN)
        self.cells.update(dict.fromkeys(keys, ABSENT))
        values = strings(entries.values, len(keys))
        for row in set_bits(entries.found):
            self.cells[keys[row]] = self.encoding.decode(values[row])
        data_bytes = len(entries.values.data)
        self.read = (self.read[0] + len(keys), self.read[1] + data_bytes)
        self.cache_bytes += len(keys) * ENTRY_BYTES + sum(map(len, keys)) + data_bytes
        return self.cells[key]

    def read_rows_max(self):
        """As many as take a sixteenth of the cache."""
        entries, data_bytes = self.read
        if entries == 0:
            return AHEAD_ROWS_FIRST
        return max(1, min(AHEAD_ROWS_MAX, CACHE_BYTES_MAX // 16 // (ENTRY_BYTES + data_bytes // entries)))

    def columns(self, keys):
        return column(keys), NO_COLUMN
