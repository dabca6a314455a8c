"""How values become bytes: the encoding of every Lockgate operator, whatever its language (guest-sdk/src/encoding.rs).

Invariant: what is decoded is exactly what was encoded; anything else is refused.
"""

import struct

from .errors import BadRecord, Fatal


class Encoding:
    """How the values of one type become bytes, and back."""

    def __init__(self, encode, decode):
        self.encode = encode
        self.decode = decode


def _encode_varint(number, bits=64):
    if not 0 <= number < 1 << bits:
        raise BadRecord(f"{number} is no unsigned integer of {bits} bits")
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(encoded, bits=64):
    """The number at the beginning, and what is behind it."""
    number = 0
    for index, byte in enumerate(encoded):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number >> bits:
                break
            return number, encoded[index + 1 :]
    raise Fatal(f"{encoded[:16].hex()} begins with no integer of {bits} bits")


def _whole(value, rest):
    if rest:
        raise Fatal(f"{len(rest)} bytes are left over behind {value!r}")
    return value


def _decode_zigzag(encoded):
    number = _whole(*_read_varint(encoded))
    return number >> 1 ^ -(number & 1)


def _encode_zigzag(number):
    if not -(1 << 63) <= number < 1 << 63:
        raise BadRecord(f"{number} is no signed integer of 64 bits")
    return _encode_varint(number << 1 if number >= 0 else ~(number << 1))


def _encode_bytes(value):
    return _encode_varint(len(value), 32) + value


def _decode_bytes(encoded):
    length, rest = _read_varint(encoded, 32)
    if length > len(rest):
        raise Fatal(f"{length} bytes are announced and {len(rest)} are there")
    return _whole(rest[:length], rest[length:])


U64 = Encoding(_encode_varint, lambda encoded: _whole(*_read_varint(encoded)))
I64 = Encoding(_encode_zigzag, _decode_zigzag)
F64 = Encoding(struct.Struct("<d").pack, lambda encoded: struct.unpack("<d", encoded)[0])
BYTES = Encoding(_encode_bytes, _decode_bytes)
TEXT = Encoding(lambda text: _encode_bytes(text.encode()), lambda encoded: _decode_bytes(encoded).decode())
