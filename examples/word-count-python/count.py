"""Counts the records of each key: for each one it sends the key with `key<tab>count`."""

import lockgate


class Count(lockgate.Operator):
    name = "count-python"
    count = lockgate.Value("counts", lockgate.U64, default=0)

    def process(self, record):
        self.count += 1
        self.emit(record.key, b"%b\t%d" % (record.key, self.count))


Operator = lockgate.export(Count)
