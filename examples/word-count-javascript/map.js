// What an instance has of one table with entries by user key in memory, and how an operator sees those of the record at hand.
//
// Invariant: as in table.js. The cells of a key that are in memory are in `byKey`.

import { getMany, scan } from "lockgate:operator/state@0.1.0";
import { bit, byteText, columnOfArrays, columnOfByteTexts, offsetsOf } from "./columns.js";
import { badRecord } from "./problem.js";
import { Table } from "./table.js";

// About so much is read at once where all entries of a key are wanted.
const PAGE_BYTES = 1 << 20;

export class MapTable extends Table {
  constructor(index, { encoding, userKeys }) {
    super(index, { encoding });
    this.userKeys = userKeys;
    this.byKey = new Map();
  }

  keyOf(record) {
    if (!record.hasKey(record.row)) throw badRecord("state is kept by key, and the record has no key");
    return record.keyTexts[record.row];
  }

  // The cell of a user key, which is read if it isn't in memory.
  cellOf(record, userKey) {
    const key = this.keyOf(record);
    const encoded = this.userKeys.encode(userKey);
    const known = this.cells.get(placeOf(key, encoded));
    if (known !== undefined) return known;
    const { values, found } = getMany(this.index, columnOfByteTexts([key]), columnOfArrays([encoded]));
    return this.add(key, encoded, bit(found, 0) ? this.encoding.decode(values.data) : undefined);
  }

  add(key, userKey, value) {
    const cell = { key, userKey, value, isChanged: false };
    this.cells.set(placeOf(key, userKey), cell);
    if (!this.byKey.has(key)) this.byKey.set(key, []);
    this.byKey.get(key).push(cell);
    return cell;
  }

  // The cells of all entries that the record's key has, in the order of their user keys.
  all(record) {
    const key = this.keyOf(record);
    const keyBytes = columnOfByteTexts([key]).data;
    let [after, more] = [undefined, true];
    while (more) {
      const page = scan(this.index, keyBytes, after, PAGE_BYTES);
      const rows = Math.max(0, page.userKeys.offsets.length / 4 - 1);
      const [userKeys, values] = [slices(page.userKeys, rows), slices(page.values, rows)];
      for (let row = 0; row < rows; row++) {
        // What is in memory is newer.
        if (!this.cells.has(placeOf(key, userKeys[row]))) this.add(key, userKeys[row], this.encoding.decode(values[row]));
        after = userKeys[row];
      }
      more = page.more;
    }
    const there = (this.byKey.get(key) ?? []).filter((cell) => cell.value !== undefined);
    return there.sort((one, other) => byBytes(one.userKey, other.userKey));
  }

  userKeyColumn(userKeys) {
    return columnOfArrays(userKeys);
  }

  forget() {
    super.forget();
    this.byKey.clear();
  }
}

// The entries of the record at hand, by user key: much as a `Map`.
export class Entries {
  constructor(table, record, undo) {
    this.table = table;
    this.record = record;
    this.undo = undo;
  }

  // The value of a user key, or undefined.
  get(userKey) {
    return this.table.cellOf(this.record, userKey).value;
  }

  has(userKey) {
    return this.get(userKey) !== undefined;
  }

  set(userKey, value) {
    this.table.change(this.table.cellOf(this.record, userKey), value, this.undo);
  }

  delete(userKey) {
    this.set(userKey, undefined);
  }

  // All user keys with their values, in the order of the encoded user keys, as in every language.
  entries() {
    return this.table.all(this.record).map((cell) => [this.table.userKeys.decode(cell.userKey), cell.value]);
  }

  clear() {
    for (const cell of this.table.all(this.record)) this.table.change(cell, undefined, this.undo);
  }
}

// The length tells where the key ends.
function placeOf(key, userKey) {
  return `${key.length} ${key}${byteText(userKey)}`;
}

function slices({ data, offsets }, rows) {
  const ends = offsetsOf(offsets, rows);
  // Copies, since they are kept.
  return Array.from({ length: rows }, (_, row) => data.slice(ends[row], ends[row + 1]));
}

function byBytes(one, other) {
  const length = Math.min(one.length, other.length);
  for (let index = 0; index < length; index++) {
    if (one[index] !== other[index]) return one[index] - other[index];
  }
  return one.length - other.length;
}
