// How values become bytes: the encoding of every Lockgate operator, whatever its language (guest-sdk/src/encoding.rs).
//
// Invariant: `decode` takes exactly what `encode` gives, and refuses everything else.

import { badRecord, fatal } from "./problem.js";

// `append` adds a value's bytes to an array of numbers: many values need no array of bytes of their own.
class Encoding {
  constructor(append, decode) {
    this.append = append;
    this.decode = decode;
  }

  encode(value) {
    const encoded = [];
    this.append(value, encoded);
    return new Uint8Array(encoded);
  }
}

const U64_MAX = 2n ** 64n - 1n;
// Up to here plain numbers do, which are faster.
const SMALL_MAX = 2n ** 31n - 1n;

function appendVarint(number, encoded) {
  if (number < 0n || number > U64_MAX) throw badRecord(`${number} is no unsigned integer of 64 bits`);
  while (number > SMALL_MAX) {
    encoded.push(Number(number & 0x7fn) | 0x80);
    number >>= 7n;
  }
  appendSmall(Number(number), encoded);
}

function appendSmall(number, encoded) {
  while (number > 0x7f) {
    encoded.push((number & 0x7f) | 0x80);
    number >>>= 7;
  }
  encoded.push(number);
}

// The number at the beginning, and how many bytes it has.
function readVarint(encoded) {
  let [small, length] = [0, 0];
  // Four times seven bits are a plain number's.
  for (; length < encoded.length && length < 4; length++) {
    small |= (encoded[length] & 0x7f) << (7 * length);
    if (encoded[length] < 0x80) return { number: BigInt(small), length: length + 1 };
  }
  let number = BigInt(small);
  for (; length < encoded.length && length < 10; length++) {
    number |= BigInt(encoded[length] & 0x7f) << BigInt(7 * length);
    if (encoded[length] < 0x80 && number <= U64_MAX) return { number, length: length + 1 };
  }
  throw fatal(`${encoded.length} bytes of state begin with no integer of 64 bits`);
}

function wholeVarint(encoded) {
  const { number, length } = readVarint(encoded);
  whole(encoded, length);
  return number;
}

function whole(encoded, length) {
  if (length !== encoded.length) throw fatal(`a value in state has ${encoded.length} bytes, and not ${length}`);
}

// Integers are bigints: 64 bits are more than a number holds exactly.
export const u64 = new Encoding(appendVarint, wholeVarint);

export const i64 = new Encoding(
  (number, encoded) => {
    if (number !== BigInt.asIntN(64, number)) throw badRecord(`${number} is no signed integer of 64 bits`);
    appendVarint(number < 0n ? ~(number << 1n) : number << 1n, encoded);
  },
  (encoded) => {
    const number = wholeVarint(encoded);
    return (number & 1n) === 0n ? number >> 1n : ~(number >> 1n);
  },
);

export const f64 = new Encoding(
  (number, encoded) => encoded.push(...new Uint8Array(Float64Array.of(number).buffer)),
  (encoded) => {
    whole(encoded, 8);
    return new Float64Array(encoded.slice().buffer)[0];
  },
);

export const bytes = new Encoding(
  (value, encoded) => {
    appendSmall(value.length, encoded);
    for (let index = 0; index < value.length; index++) encoded.push(value[index]);
  },
  (encoded) => {
    const { number, length } = readVarint(encoded);
    whole(encoded, length + Number(number));
    return encoded.slice(length);
  },
);

export const text = new Encoding(
  (value, encoded) => bytes.append(new TextEncoder().encode(value), encoded),
  (encoded) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.decode(encoded)),
);
