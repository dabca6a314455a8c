// Splits values into words: sends each word as a key, without a value.
//
// A word is a run of letters, digits and apostrophes (not at its ends). Bytes that are not UTF-8 separate words, like any other
// character. Configuration: `lowercase` (true unless said).

import { LETTERS } from "./letters.js";
import { Operator, exported } from "./lockgate.js";

const WORD = new RegExp(`[${LETTERS}'\u2019]+`, "gu");
// Most text is of these, and much faster so.
const ASCII_WORD = /[0-9A-Za-z](?:[0-9A-Za-z']*[0-9A-Za-z])?/g;
const ASCII = /^[\0-\x7f]*$/;
class Split extends Operator {
  open(context) {
    this.lowercase = context.settings({ lowercase: true }).lowercase;
  }

  process(record) {
    const { value } = record;
    if (value === null) return;
    // What isn't UTF-8 becomes U+FFFD, which is no letter.
    for (const word of this.words(String(value))) this.emit(word, null);
  }

  words(text) {
    if (ASCII.test(text)) return (this.lowercase ? text.toLowerCase() : text).match(ASCII_WORD) ?? [];
    const words = (text.match(WORD) ?? []).map((word) => word.replace(/^['\u2019]+|['\u2019]+$/g, ""));
    return words.filter((word) => word !== "").map((word) => (this.lowercase ? lower(word) : word));
  }
}

// Each letter by itself: `toLowerCase` has another small sigma for the end of a word.
function lower(word) {
  return word.includes("\u03a3") ? Array.from(word, (letter) => letter.toLowerCase()).join("") : word.toLowerCase();
}

export const operator = exported(Split, "split-javascript", "0.1.0");
