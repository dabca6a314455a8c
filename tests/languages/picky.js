// Numbers records, all of them and those of each key, and keeps the last value of each key. One with the value `bad` it refuses,
// and one with the value `forget` makes it forget the key; both after it has done everything else that it does.

import { Operator, exported, i64, text, u64, value } from "./lockgate.js";

class Picky extends Operator {
  static tables = {
    ofKey: value("of-key", u64, 0n),
    last: value("last", text, "nothing"),
    balance: value("balance", i64, 0n),
  };
  static outputs = ["out", "side"];

  open() {
    this.seen = 0n;
  }

  process(record) {
    const value = String(record.value);
    this.ofKey += 1n;
    this.balance -= 100n;
    this.emit(record.key, [record.key, ` ${this.ofKey} ${this.balance} `, this.last]);
    this.emit(record.key, record.value, 1);
    this.last = value;
    if (value === "forget") this.ofKey = this.last = this.balance = undefined;
    if (value === "bad") throw new Error("a bad value");
    this.seen += 1n;
  }

  watermark(timestamp) {
    if (timestamp === 2n ** 63n - 1n) this.emit(null, `seen ${this.seen}`);
  }

  snapshot() {
    return u64.encode(this.seen);
  }

  restore(states) {
    this.seen = states.map(u64.decode).reduce((sum, seen) => sum + seen, 0n);
  }
}

export const operator = exported(Picky, "picky", "0.1.0");
