"""Splits values into words: sends each word as a key, without a value.

A word is a run of letters, digits and apostrophes (not at its ends). Bytes that are not UTF-8 separate words, like any other
character. Configuration: `lowercase` (true unless said).
"""

import re

import lockgate
from letters import LETTERS

APOSTROPHES = "'\u2019"
WORD = re.compile(f"[{LETTERS}{APOSTROPHES}]+")
# Most text is of these, and a pattern over bytes is much faster.
ASCII_WORD = re.compile(rb"[0-9A-Za-z](?:[0-9A-Za-z']*[0-9A-Za-z])?")


class Split(lockgate.Operator):
    name = "split-python"

    def open(self, context):
        self.lowercase = lockgate.settings(context, lowercase=True)["lowercase"]

    def process(self, record):
        for word in self.words(record.value or b""):
            self.emit(word, None)

    def words(self, text):
        if text.isascii():
            return ASCII_WORD.findall(text.lower() if self.lowercase else text)
        # What isn't UTF-8 becomes U+FFFD, which is no letter.
        words = (word.strip(APOSTROPHES) for word in WORD.findall(text.decode(errors="replace")))
        return [(lower(word) if self.lowercase else word).encode() for word in words if word]


def lower(word):
    """Each letter by itself: `str.lower` has another small sigma for the end of a word."""
    return "".join(map(str.lower, word)) if "\u03a3" in word else word.lower()


Operator = lockgate.export(Split)
