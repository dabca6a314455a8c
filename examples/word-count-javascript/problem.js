// Why a call failed, and whose fault it is.
//
// Invariant: whatever is thrown becomes one of the three kinds of wit/operator.wit.

// The record can't be processed. So is every other error that `process` throws.
export function badRecord(message) {
  return new Problem("bad-record", message);
}

// The same may work when tried again from the last checkpoint.
export function transient(message) {
  return new Problem("transient", message);
}

// It won't work, however often it is tried.
export function fatal(message) {
  return new Problem("fatal", message);
}

export class Problem extends Error {
  constructor(kind, message, row = undefined) {
    super(message);
    this.kind = kind;
    this.row = row;
  }

  // Outside of `process` there is no record to be bad.
  static of(error, row) {
    if (error instanceof Problem) {
      row ??= error.row;
      const kind = row === undefined && error.kind === "bad-record" ? "fatal" : error.kind;
      return new Problem(kind, error.message, row);
    }
    // Nobody meant this one to be read, so say where it is from.
    const where = String(error?.stack ?? "").split("\n")[0];
    return new Problem(row === undefined ? "fatal" : "bad-record", `${error} (${where})`, row);
  }

  // As the bindings want an `op-error` to be thrown.
  forHost() {
    const { kind, message, row } = this;
    return Object.assign(new Error(message), { payload: { kind, message, row } });
  }
}
