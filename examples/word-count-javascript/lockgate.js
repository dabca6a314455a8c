// Write a Lockgate operator as a JavaScript class.
//
//     import { Operator, exported, u64, value } from "./lockgate.js";
//
//     class Count extends Operator {
//       static tables = { count: value("counts", u64, 0n) };
//
//       process(record) {
//         this.count += 1n;
//         this.emit(record.key, `${this.count}`);
//       }
//     }
//
//     export const operator = exported(Count, "my-count", "0.1.0");
//
// componentize-js makes a component of the module that ends so; build.sh shows how. The contract behind this is
// wit/operator.wit, and what it offers beside (lists, timers) can be imported from "lockgate:operator/state@0.1.0" and the
// others.
//
// Invariant: after an error of a call the instance is of no more use; a rejected record has had no effect.

import { emit } from "lockgate:operator/output@0.1.0";
import { counterAdd, log } from "lockgate:operator/runtime@0.1.0";
import { NO_BYTES, bitmap, columnOfFields } from "./columns.js";
import { Entries, MapTable } from "./map.js";
import { Problem, fatal } from "./problem.js";
import { NO_RECORD, Record } from "./record.js";
import { Table } from "./table.js";

export { Bytes } from "./columns.js";
export { bytes, f64, i64, text, u64 } from "./encodings.js";
export { badRecord, fatal, transient } from "./problem.js";

// A batch leaves when it has this many records.
const OUTPUT_ROWS_MAX = 4096;
// How many values are kept in memory; behind them they are read again when needed.
const CACHE_ENTRIES_MAX = 200_000;
// About what an entry takes, for a host that wants memory back.
const ENTRY_BYTES = 250;

// A table with one value for each key. The field that it is declared for is the value of the record at hand: read it, set it, or
// set it to undefined to remove it. Where there is none it is `initial`.
export function value(name, encoding, initial = undefined, version = 1) {
  return { name, kind: "value", encoding, initial, version };
}

// A table with values by user key for each key. The field that it is declared for has the entries of the record at hand: `get`, `has`,
// `set`, `delete`, `entries` and `clear`. An entry that isn't in memory is read by a call of its own.
export function map(name, userKeys, encoding, version = 1) {
  return { name, kind: "map", userKeys, encoding, version };
}

// What an operator extends. It overrides `process`, and what else it needs.
export class Operator {
  // The fields that are tables, by name: `{ count: value("counts", u64, 0n) }`.
  static tables = {};
  static outputs = ["out"];

  // Called once, with the place in the job; `context.settings({ ... })` reads the configuration.
  open(context) {}
  process(record) {
    throw fatal("the operator has no `process`");
  }
  // No more records with an event time at or before `timestamp` (a bigint) are to come.
  watermark(timestamp) {}
  // The state that isn't in tables, as bytes.
  snapshot() {
    return NO_BYTES;
  }
  // Takes up what `snapshot` gave: an array of bytes, one for each subtask that this one follows.
  restore(states) {}
  // The job is done, or stops.
  close() {}

  // Sends a record, with the event time and the headers of the record at hand. Key and value are what a record has (`Bytes`), text,
  // an array of bytes, an array of such pieces, or null for none.
  emit(key, value, port = 0) {
    const output = this._outputs[port];
    output.keys.push(key ?? null);
    output.values.push(value ?? null);
    output.rows.push(this._record.row);
  }
  log(message, level = "info") {
    log(level, message);
  }
  // Adds to a counter of the operator's metrics.
  countUp(counter, by = 1n) {
    counterAdd(counter, BigInt(by));
  }
}

// Records on their way to one output, and which rows of the batch at hand they were made of.
class Output {
  constructor(port) {
    this.port = port;
    this.clear();
  }

  clear() {
    this.keys = [];
    this.values = [];
    this.rows = [];
  }

  cutBack(rows) {
    this.keys.length = this.values.length = this.rows.length = rows;
  }

  send(record) {
    const rows = this.keys.length;
    if (rows === 0) return;
    const [keys, values] = [columnOfFields(this.keys), columnOfFields(this.values)];
    const timestamps = record.timesOf(this.rows);
    emit(this.port, { rows, keys, values, timestamps, nulls: this.nulls(), ext: record.headersOf(this.rows) });
    this.clear();
  }

  nulls() {
    if (!this.keys.includes(null) && !this.values.includes(null)) return NO_BYTES;
    const bytes = Math.ceil(this.keys.length / 8);
    const nulls = new Uint8Array(2 * bytes);
    nulls.set(bitmap(rowsWithout(this.keys), this.keys.length));
    nulls.set(bitmap(rowsWithout(this.values), this.values.length), bytes);
    return nulls;
  }
}

function rowsWithout(fields) {
  const rows = [];
  for (let row = fields.indexOf(null); row !== -1; row = fields.indexOf(null, row + 1)) rows.push(row);
  return rows;
}

// Makes the export `operator` of a component: the functions of wit/operator.wit over an operator's class. A component holds one, and
// one instance of it.
export function exported(Class, name, version) {
  const fields = Object.entries(Class.tables);
  let [instance, tables, outputs, undo] = [null, [], [], null];
  fields.forEach(([field, { kind, initial }], index) => {
    if (kind === "map") {
      const get = function () {
        return new Entries(tables[index], this._record, undo);
      };
      Object.defineProperty(Class.prototype, field, { get });
      return;
    }
    Object.defineProperty(Class.prototype, field, {
      get() {
        const { value } = tables[index].cell(this._record);
        return value === undefined ? initial : value;
      },
      set(value) {
        tables[index].put(this._record, value, undo);
      },
    });
  });

  function end() {
    for (const output of outputs) output.send(instance._record);
    instance._record = NO_RECORD;
    if (tables.some((table) => table.cells.size > CACHE_ENTRIES_MAX)) relieve(0);
  }

  function relieve(entriesMax) {
    for (const table of tables) {
      table.writeBack();
      if (table.cells.size > entriesMax) table.forget();
    }
  }

  function reject(error, row, marks) {
    const problem = Problem.of(error, row);
    if (undo === null || problem.kind !== "bad-record") throw problem;
    outputs.forEach((output, port) => output.cutBack(marks[port]));
    for (const { cell, value } of undo.reverse()) cell.value = value;
    return { row, message: problem.message };
  }

  // Counting loops, here and wherever something is done for each record: an iterator costs several times what its step does.
  function processRows(record) {
    const rejections = [];
    for (let row = 0; row < record.rows; row++) {
      record.row = row;
      const marks = undo === null ? null : outputs.map((output) => output.rows.length);
      try {
        instance.process(record);
      } catch (error) {
        rejections.push(reject(error, row, marks));
      }
      if (undo !== null && undo.length > 0) undo.length = 0;
      for (let port = 0; port < outputs.length; port++) {
        if (outputs[port].rows.length >= OUTPUT_ROWS_MAX) outputs[port].send(record);
      }
    }
    return rejections;
  }

  const functions = {
    describe() {
      const tables = fields.map(([, { name, kind, version }]) => ({ name, kind, version }));
      const inputs = [{ name: "in", broadcast: false }];
      return { name, version, inputs, outputs: Class.outputs, tables, timers: false, redistribution: "split" };
    },

    open(context) {
      const make = { value: Table, map: MapTable };
      tables = fields.map(([, table], index) => new make[table.kind](index, table));
      outputs = Class.outputs.map((_, port) => new Output(port));
      undo = context.rejections ? [] : null;
      instance = new Class();
      instance._outputs = outputs;
      instance._record = NO_RECORD;
      instance.open({ ...context, settings: (initial) => settings(context.config, initial) });
    },

    restore(states) {
      instance.restore(states);
    },

    process(port, batch) {
      const record = new Record(batch);
      instance._record = record;
      const rejections = processRows(record);
      end();
      return rejections;
    },

    timers() {
      throw fatal("this operator sets no timers");
    },

    watermark(timestamp) {
      instance.watermark(timestamp);
      end();
    },

    snapshot() {
      for (const table of tables) table.writeBack();
      return instance.snapshot();
    },

    trim(targetBytes) {
      relieve(Number(targetBytes) / ENTRY_BYTES / Math.max(1, fields.length));
    },

    close() {
      instance.close();
    },
  };
  return Object.fromEntries(Object.entries(functions).map(([name, call]) => [name, guarded(call)]));
}

// Whatever is thrown becomes an error that says whose fault it is.
function guarded(call) {
  return (...parameters) => {
    try {
      return call(...parameters);
    } catch (error) {
      throw Problem.of(error, undefined).forHost();
    }
  };
}

// A setting that isn't among the initial ones, or of another type, is refused.
function settings(config, initial) {
  const given = JSON.parse(config === "" ? "{}" : config);
  for (const [name, setting] of Object.entries(given)) {
    if (!Object.hasOwn(initial, name)) {
      const known = Object.keys(initial).map((name) => `\`${name}\``);
      throw fatal(`unknown field \`${name}\`, expected ${known.join(" or ")}`);
    }
    const wanted = typeof initial[name];
    if (typeof setting !== wanted) throw fatal(`the setting \`${name}\` must be a ${wanted}`);
  }
  return { ...initial, ...given };
}
