"""What all tables of an operator have in common: entries in memory, and those that the host doesn't know yet.

Invariant: what is in `changed` is in `cells`, and is what the host doesn't know yet.
"""

from wit_world.imports import state

from .columns import bitmap, column
from .errors import BadRecord

CACHE_BYTES_MAX = 64 << 20
"""About what the entries in memory may take; behind it they are read again when needed."""
ENTRY_BYTES = 200
"""About what Python takes for an entry, beside its keys and its value."""
WRITE_BYTES_MAX = 8 << 20
"""A call that writes state carries about this much."""

ABSENT = object()
"""The value of an entry that isn't there."""


class Table:
    """A table that is declared as a field of the operator. A component holds one operator, so what is in memory is kept here.

    A *place* is where an entry is: what `place_bytes` takes the length of, and `user_keys` splits."""

    place_bytes = len

    def __init__(self, name, encoding, version):
        self.name = name
        self.encoding = encoding
        self.version = version

    def open(self, index):
        self.index = index
        self.cells = {}
        self.changed = {}
        self.cache_bytes = 0

    def put(self, operator, place, value):
        if operator._undo is not None:
            operator._undo.append((self, place, self.cells.get(place), place in self.changed))
        if place not in self.cells:
            self.cache_bytes += ENTRY_BYTES + self.place_bytes(place)
        self.cells[place] = value
        self.changed[place] = None

    def take_back(self, place, value, was_changed):
        if value is None:
            del self.cells[place]
        else:
            self.cells[place] = value
        if not was_changed:
            self.changed.pop(place, None)

    def write_back(self):
        """Writes what has changed, in calls of bounded size."""
        places, values, deletes, size = [], [], [], 0
        for place in self.changed:
            value = self.cells[place]
            deletes.append(value is ABSENT)
            values.append(b"" if value is ABSENT else self.encoding.encode(value))
            places.append(place)
            size += self.place_bytes(place) + len(values[-1]) + 12
            if size >= WRITE_BYTES_MAX:
                self.write(places, values, deletes)
                places, values, deletes, size = [], [], [], 0
        if places:
            self.write(places, values, deletes)
        self.changed.clear()

    def write(self, places, values, deletes):
        keys, user_keys = self.columns(places)
        deletes = bitmap(deletes) if any(deletes) else b""
        state.write_many(self.index, keys, user_keys, column(values), deletes)

    def forget(self):
        """Only what was written may be forgotten."""
        self.cells.clear()
        self.cache_bytes = 0


def key_of(operator):
    """The key of the record at hand."""
    key = operator._record[0]
    if key is None:
        raise BadRecord("state is kept by key, and the record has no key")
    return key


def tables_of(operator):
    fields = {}
    for base in reversed(operator.__mro__):
        fields.update((field, table) for field, table in vars(base).items() if isinstance(table, Table))
    return list(fields.values())
