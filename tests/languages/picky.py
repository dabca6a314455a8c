"""Numbers records, all of them and those of each key, and keeps the last value of each key. One with the value `bad` it refuses, and
one with the value `forget` makes it forget the key; both after it has done everything else that it does."""

import lockgate


class Picky(lockgate.Operator):
    of_key = lockgate.Value("of-key", lockgate.U64, default=0)
    last = lockgate.Value("last", lockgate.TEXT, default="nothing")
    balance = lockgate.Value("balance", lockgate.I64, default=0)
    outputs = ("out", "side")

    def open(self, context):
        self.seen = 0

    def process(self, record):
        value = record.value.decode()
        self.of_key += 1
        self.balance -= 100
        self.emit(record.key, b"%b %d %d %b" % (record.key, self.of_key, self.balance, self.last.encode()))
        self.emit(record.key, record.value, port=1)
        self.last = value
        if value == "forget":
            del self.of_key, self.last, self.balance
        if value == "bad":
            raise ValueError("a bad value")
        self.seen += 1

    def watermark(self, timestamp):
        if timestamp == (1 << 63) - 1:
            self.emit(None, b"seen %d" % self.seen)

    def snapshot(self):
        return lockgate.U64.encode(self.seen)

    def restore(self, states):
        print("picky goes on with", len(states))
        self.seen = sum(map(lockgate.U64.decode, states))


Operator = lockgate.export(Picky)
