// What an instance has of one table in memory: values that were read, and those that the host doesn't know yet.
//
// Invariant: every changed cell is in `changed`, once. A cell's value is undefined where the table has none.

import { getMany, writeMany } from "lockgate:operator/state@0.1.0";
import { NO_COLUMN, bit, bitmap, columnOfByteTexts, offsetsOf } from "./columns.js";
import { badRecord } from "./problem.js";

// The values of this many records are read at once; at first, and at most.
const AHEAD_ROWS_FIRST = 64;
const AHEAD_ROWS_MAX = 4096;
// About how many bytes of values are read at once.
const AHEAD_BYTES = 4 << 20;
// A call that writes state carries about this much.
const WRITE_BYTES_MAX = 8 << 20;

export class Table {
  constructor(index, { encoding }) {
    this.index = index;
    this.encoding = encoding;
    this.cells = new Map();
    this.changed = [];
    this.readEntries = 0;
    this.readBytes = 0;
    // The last cell that was looked for, with the record and the row: it is mostly asked for twice.
    this.last = null;
    this.lastRecord = null;
    this.lastRow = 0;
  }

  cell(record) {
    const { row } = record;
    if (this.lastRow === row && this.lastRecord === record) return this.last;
    if (!record.hasKey(row)) throw badRecord("state is kept by key, and the record has no key");
    const key = record.keyTexts[row];
    const cell = this.cells.get(key) ?? this.load(key, record);
    this.last = cell;
    this.lastRecord = record;
    this.lastRow = row;
    return cell;
  }

  // Reads the values of this record and of those behind it, and gives that of this one.
  load(key, record) {
    const rows = Math.min(record.rows, record.row + this.aheadRows());
    const [keys, cells] = [[], []];
    for (let row = record.row; row < rows; row++) {
      const ahead = record.keyTexts[row];
      if (!record.hasKey(row) || this.cells.has(ahead)) continue;
      const cell = { key: ahead, value: undefined, isChanged: false };
      this.cells.set(ahead, cell);
      cells.push(cell);
      keys.push(ahead);
    }
    const { values, found } = getMany(this.index, columnOfByteTexts(keys), NO_COLUMN);
    const offsets = offsetsOf(values.offsets, cells.length);
    for (let index = 0; index < cells.length; index++) {
      if (bit(found, index)) {
        cells[index].value = this.encoding.decode(values.data.subarray(offsets[index], offsets[index + 1]));
      }
    }
    this.readEntries += cells.length;
    this.readBytes += values.data.length;
    return this.cells.get(key);
  }

  aheadRows() {
    if (this.readEntries === 0) return AHEAD_ROWS_FIRST;
    const rows = AHEAD_BYTES / (1 + this.readBytes / this.readEntries);
    return Math.max(1, Math.min(AHEAD_ROWS_MAX, Math.floor(rows)));
  }

  put(record, value, undo) {
    this.change(this.cell(record), value, undo);
  }

  change(cell, value, undo) {
    if (undo !== null) undo.push({ cell, value: cell.value });
    cell.value = value;
    if (!cell.isChanged) {
      cell.isChanged = true;
      this.changed.push(cell);
    }
  }

  // Writes what has changed, in calls of bounded size.
  writeBack() {
    let [keys, userKeys, keyBytes, encoded, ends, deleted] = [[], [], 0, [], [0], []];
    const send = () => {
      const deletes = bitmap(deleted, keys.length);
      const values = { data: new Uint8Array(encoded), offsets: new Uint8Array(new Uint32Array(ends).buffer) };
      if (keys.length > 0) writeMany(this.index, columnOfByteTexts(keys), this.userKeyColumn(userKeys), values, deletes);
      [keys, userKeys, keyBytes, encoded, ends, deleted] = [[], [], 0, [], [0], []];
    };
    const { changed, encoding } = this;
    for (let index = 0; index < changed.length; index++) {
      const cell = changed[index];
      cell.isChanged = false;
      if (cell.value === undefined) deleted.push(keys.length);
      else encoding.append(cell.value, encoded);
      keys.push(cell.key);
      userKeys.push(cell.userKey);
      ends.push(encoded.length);
      keyBytes += cell.key.length;
      if (keyBytes + encoded.length + 12 * keys.length >= WRITE_BYTES_MAX) send();
    }
    send();
    this.changed = [];
  }

  userKeyColumn(userKeys) {
    return NO_COLUMN;
  }

  // Only what was written may be forgotten.
  forget() {
    this.cells.clear();
    this.lastRecord = null;
  }
}
