// The records of a batch.
//
// Invariant: a record is a view that is moved from one row to the next: its key and its value may be kept, itself may not.

import { Bytes, NO_BYTES, bit, byteText, byteTexts, columnOfArrays, isAscii, offsetsOf } from "./columns.js";

// How "no event time" is written, and as two halves.
const NO_TIMESTAMP = -(2n ** 63n);
const NO_TIMES = Int32Array.of(0, -0x8000_0000);

// `key` and `value` are `Bytes`, or null where they are missing.
export class Record {
  constructor(batch) {
    const { rows, keys, values, nulls, ext } = batch;
    this.row = 0;
    this.rows = rows;
    this.keyTexts = byteTexts(keys, rows);
    this.keysAreAscii = isAscii(this.keyTexts);
    this.values = values;
    this.valueOffsets = null;
    this.nulls = nulls.length === 0 ? null : nulls;
    this.times = new Int32Array(batch.timestamps.slice().buffer);
    this.headerOffsets = ext.length === 0 ? null : offsetsOf(ext, rows);
    this.headerData = ext.subarray(4 * (rows + 1));
    // The key of row `keyRow`, which is mostly asked for more than once.
    this.lastKey = null;
    this.keyRow = -1;
  }

  get key() {
    const { row } = this;
    if (this.keyRow !== row) {
      this.keyRow = row;
      this.lastKey = this.hasKey(row) ? new Bytes(this.keyTexts[row], this.keysAreAscii) : null;
    }
    return this.lastKey;
  }

  get value() {
    const { nulls, values, row } = this;
    if (nulls !== null && bit(nulls, nulls.length * 4 + row)) return null;
    this.valueOffsets ??= offsetsOf(values.offsets, this.rows);
    const text = byteText(values.data.subarray(this.valueOffsets[row], this.valueOffsets[row + 1]));
    return new Bytes(text, false);
  }

  // Milliseconds since 1970 as a bigint, or null if it has no event time.
  get timestamp() {
    const { times, row } = this;
    const time = (BigInt(times[2 * row + 1]) << 32n) | BigInt(times[2 * row] >>> 0);
    return time === NO_TIMESTAMP ? null : time;
  }

  // The bytes of its headers as wit/operator.wit has them.
  get headers() {
    return this.headersAt(this.row);
  }

  hasKey(row) {
    return this.nulls === null || !bit(this.nulls, row);
  }

  headersAt(row) {
    return this.headerOffsets === null
      ? NO_BYTES
      : this.headerData.subarray(this.headerOffsets[row], this.headerOffsets[row + 1]);
  }

  // The event times of these rows.
  timesOf(rows) {
    const { times } = this;
    const taken = new Int32Array(2 * rows.length);
    for (let index = 0; index < rows.length; index++) {
      taken[2 * index] = times[2 * rows[index]];
      taken[2 * index + 1] = times[2 * rows[index] + 1];
    }
    return new Uint8Array(taken.buffer);
  }

  // The headers of these rows, as `ext` of a batch.
  headersOf(rows) {
    if (this.headerOffsets === null) return NO_BYTES;
    const { offsets, data } = columnOfArrays(rows.map((row) => this.headersAt(row)));
    const ext = new Uint8Array(offsets.length + data.length);
    ext.set(offsets);
    ext.set(data, offsets.length);
    return ext;
  }
}

// What is at hand where no record is: without a key, a value, an event time and headers.
export const NO_RECORD = new Record({
  rows: 1,
  keys: { data: NO_BYTES, offsets: NO_BYTES },
  values: { data: NO_BYTES, offsets: NO_BYTES },
  timestamps: new Uint8Array(NO_TIMES.buffer),
  nulls: Uint8Array.of(1, 1),
  ext: NO_BYTES,
});
