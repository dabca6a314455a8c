"""Values by key and user key: fields of an operator that are mappings."""

from collections import defaultdict
from collections.abc import MutableMapping

from wit_world.imports import state, types

from .columns import column, rows_of, strings
from .table import ABSENT, ENTRY_BYTES, Table, key_of

PAGE_BYTES = 1 << 20
"""About so much is read at once where all entries of a key are wanted."""


class Map(Table):
    """A table with values by user key for each key, declared as a field of the operator. The field is a mapping, as a `dict` is
    one, with the entries of the record's key; they come in the order of their encoded user keys, as in every language. User keys
    and values each have an encoding.

    An entry that isn't in memory is read by a call of its own; whoever goes through all of a key has all of them in memory."""

    kind = types.TableKind.MAP

    def __init__(self, name, user_keys, values, version=1):
        super().__init__(name, values, version)
        self.user_keys = user_keys

    @staticmethod
    def place_bytes(place):
        return len(place[0]) + len(place[1])

    def open(self, index):
        super().open(index)
        # The encoded user keys that are in memory, by key.
        self.known = defaultdict(set)

    def __get__(self, operator, owner=None):
        return self if operator is None else _Entries(self, operator)

    def cell(self, operator, user_key):
        """The value of an encoded user key, or that there is none."""
        key = key_of(operator)
        value = self.cells.get((key, user_key))
        if value is None:
            entries = state.get_many(self.index, column([key]), column([user_key]))
            value = self.encoding.decode(entries.values.data) if entries.found[0] & 1 else ABSENT
            self.keep(key, user_key, value, len(entries.values.data))
        return value

    def keep(self, key, user_key, value, value_bytes):
        self.cells[key, user_key] = value
        self.known[key].add(user_key)
        self.cache_bytes += ENTRY_BYTES + len(key) + len(user_key) + value_bytes

    def change(self, operator, user_key, value):
        key = key_of(operator)
        self.put(operator, (key, user_key), value)
        self.known[key].add(user_key)

    def take_back(self, place, value, was_changed):
        super().take_back(place, value, was_changed)
        if value is None:
            self.known[place[0]].discard(place[1])

    def load_all(self, operator):
        """The encoded user keys of all entries, in their order. The entries are in memory then."""
        key, after, more = key_of(operator), None, True
        while more:
            page = state.scan(self.index, key, after, PAGE_BYTES)
            rows = rows_of(page.user_keys)
            for user_key, value in zip(strings(page.user_keys, rows), strings(page.values, rows)):
                # What is in memory is newer.
                if (key, user_key) not in self.cells:
                    self.keep(key, user_key, self.encoding.decode(value), len(value))
                after = user_key
            more = page.more
        return sorted(user_key for user_key in self.known[key] if self.cells[key, user_key] is not ABSENT)

    def columns(self, places):
        keys, user_keys = zip(*places)
        return column(keys), column(user_keys)

    def forget(self):
        super().forget()
        self.known.clear()


class _Entries(MutableMapping):
    """Those of the record at hand."""

    __slots__ = ("table", "operator")

    def __init__(self, table, operator):
        self.table = table
        self.operator = operator

    def __getitem__(self, user_key):
        value = self.table.cell(self.operator, self.table.user_keys.encode(user_key))
        if value is ABSENT:
            raise KeyError(user_key)
        return value

    def __setitem__(self, user_key, value):
        self.table.change(self.operator, self.table.user_keys.encode(user_key), value)

    def __delitem__(self, user_key):
        self[user_key]
        self.table.change(self.operator, self.table.user_keys.encode(user_key), ABSENT)

    def __iter__(self):
        return map(self.table.user_keys.decode, self.table.load_all(self.operator))

    def __len__(self):
        return len(self.table.load_all(self.operator))

    def clear(self):
        for user_key in self.table.load_all(self.operator):
            self.table.change(self.operator, user_key, ABSENT)
