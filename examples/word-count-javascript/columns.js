// Columns of byte strings, as wit/operator.wit has them: all rows one after the other, and where each begins.
//
// The engine has no compiler: what it does for a row costs a hundred times what it does inside of one of its own functions. So bytes
// are kept as text with one character for each, and whole columns become such text, and are made of it, at once.
//
// Invariant: text of this kind ("byte text") never leaves these modules but as `Bytes`, which say what they are.

const encoder = new TextEncoder();
const utf8 = new TextDecoder();
// A character for each byte. For 0x80 to 0x9f it isn't the one of that number, which doesn't matter but on the way back.
const latin1 = new TextDecoder("latin1");
const CODES = new Map(Array.from(latin1.decode(Uint8Array.from({ length: 256 }, (_, byte) => byte)), (c, byte) => [c, byte]));
const ASCII = /^[\0-\x7f]*$/;

export const NO_BYTES = new Uint8Array(0);
// Every row is empty.
export const NO_COLUMN = { data: NO_BYTES, offsets: NO_BYTES };

export function bit(bitmap, index) {
  return ((bitmap[index >> 3] >> (index & 7)) & 1) === 1;
}

// A bit for each of `rows`, set for those that are named; none at all if none is.
export function bitmap(named, rows) {
  if (named.length === 0) return NO_BYTES;
  const bits = new Uint8Array(Math.ceil(rows / 8));
  for (const row of named) bits[row >> 3] |= 1 << (row & 7);
  return bits;
}

// Where the rows of a column begin and end: `rows + 1` places.
export function offsetsOf(offsets, rows) {
  if (offsets.length === 0) return new Uint32Array(rows + 1);
  return new Uint32Array(offsets.slice(0, 4 * (rows + 1)).buffer);
}

// The key or the value of a record. In a template or joined to a text it is text (what isn't UTF-8 is U+FFFD in it); sent as it is,
// or as a piece of what is sent, it is the same bytes again.
export class Bytes {
  constructor(byteText, isAscii) {
    this.byteText = byteText;
    this.isAscii = isAscii;
  }

  get length() {
    return this.byteText.length;
  }

  toString() {
    return this.isAscii || ASCII.test(this.byteText) ? this.byteText : utf8.decode(bytesOf(this.byteText));
  }

  toArray() {
    return bytesOf(this.byteText);
  }
}

export function byteText(bytes) {
  return latin1.decode(bytes);
}

// The rows of a column as byte texts.
export function byteTexts({ data, offsets }, rows) {
  if (data.length === 0) return new Array(rows).fill("");
  const ends = offsetsOf(offsets, rows);
  const texts = [];
  // Not by `substring`, which is itself written in JavaScript.
  for (let row = 0; row < rows; row++) texts.push(latin1.decode(data.subarray(ends[row], ends[row + 1])));
  return texts;
}

export function isAscii(texts) {
  return ASCII.test(texts.join(""));
}

function bytesOf(byteText) {
  const bytes = encoder.encode(byteText);
  if (bytes.length === byteText.length) return bytes;
  const exact = new Uint8Array(byteText.length);
  for (let index = 0; index < byteText.length; index++) {
    const code = byteText.charCodeAt(index);
    exact[index] = code < 0x80 ? code : CODES.get(byteText[index]);
  }
  return exact;
}

// Byte texts, as a column.
export function columnOfByteTexts(byteTexts) {
  const ends = new Uint32Array(byteTexts.length + 1);
  let end = 0;
  for (let row = 0; row < byteTexts.length; ) {
    end += byteTexts[row].length;
    ends[++row] = end;
  }
  return { data: bytesOf(byteTexts.join("")), offsets: new Uint8Array(ends.buffer) };
}

// Arrays of bytes, as a column.
export function columnOfArrays(arrays) {
  const ends = new Uint32Array(arrays.length + 1);
  arrays.forEach((array, row) => (ends[row + 1] = ends[row] + array.length));
  const data = new Uint8Array(ends[arrays.length]);
  arrays.forEach((array, row) => data.set(array, ends[row]));
  return { data, offsets: new Uint8Array(ends.buffer) };
}

// What an operator sends, as a column: each field is `Bytes`, text, an array of bytes, an array of such pieces, or null.
export function columnOfFields(fields) {
  // Most text is ASCII, which is the same as text and as byte text; whether all of it is can be seen at once.
  const texts = [];
  for (let row = 0; row < fields.length; row++) {
    const field = fields[row];
    texts.push(typeof field === "string" ? field : plainText(field));
  }
  return isAscii(texts) ? columnOfByteTexts(texts) : columnOfByteTexts(fields.map(byteTextOf));
}

// As byte text, but that text is left as it is.
function plainText(field) {
  if (typeof field === "string") return field;
  if (field === null) return "";
  if (field.byteText !== undefined) return field.byteText;
  if (field instanceof Uint8Array) return byteText(field);
  let text = "";
  for (let index = 0; index < field.length; index++) {
    const piece = field[index];
    text += typeof piece === "string" ? piece : plainText(piece);
  }
  return text;
}

function byteTextOf(field) {
  if (typeof field === "string") return ASCII.test(field) ? field : byteText(encoder.encode(field));
  if (Array.isArray(field)) return field.map(byteTextOf).join("");
  return plainText(field);
}
