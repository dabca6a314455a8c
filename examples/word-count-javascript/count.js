// Counts the records of each key: for each one it sends the key with `key<tab>count`.

import { Operator, exported, u64, value } from "./lockgate.js";

class Count extends Operator {
  static tables = { count: value("counts", u64, 0n) };

  process(record) {
    this.count += 1n;
    this.emit(record.key, [record.key, "\t", String(this.count)]);
  }
}

export const operator = exported(Count, "count-javascript", "0.1.0");
