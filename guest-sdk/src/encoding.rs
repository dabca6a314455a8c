//! How state becomes bytes.
//!
//! Values, user keys and list elements are written in the [postcard] 1.x wire format, which every language can read and
//! write. It has no field names, types or lengths of its own: both sides must agree on the type.
//!
//! | Rust type | bytes |
//! |---|---|
//! | `bool` | `00` or `01` |
//! | `u8`, `i8` | the byte itself |
//! | `u16`, `u32`, `u64`, `u128`, `usize` | *varint*: LEB128, 7 bits a byte from the lowest, bit 7 set on all bytes but the last |
//! | `i16`, `i32`, `i64`, `i128`, `isize` | *zigzag* (`(n << 1) ^ (n >> bits - 1)`), then varint |
//! | `f32`, `f64` | IEEE 754, little-endian, 4 or 8 bytes |
//! | `char` | as a `str` of that one character |
//! | `str`, `String`, bytes | length in bytes as varint, then the bytes (text is UTF-8) |
//! | `Option` | `00`, or `01` and the value |
//! | `()`, unit struct | nothing |
//! | tuple, array, struct, newtype | the fields in order, nothing between them |
//! | `Vec`, slice, set | number of elements as varint, then the elements |
//! | map | number of pairs as varint, then key, value, key, value ... |
//! | enum | number of the variant from 0 as varint (u32), then its fields as those of a struct |
//!
//! Test vectors, each run as a test:
//!
//! ```
//! use lockgate::encoding::encode;
//!
//! # fn main() -> Result<(), lockgate::Error> {
//! assert_eq!(encode(&0u64)?, [0x00]);
//! assert_eq!(encode(&127u64)?, [0x7f]);
//! assert_eq!(encode(&128u64)?, [0x80, 0x01]);
//! assert_eq!(encode(&300u64)?, [0xac, 0x02]);
//! assert_eq!(encode(&u64::MAX)?, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
//!
//! assert_eq!(encode(&0i64)?, [0x00]);
//! assert_eq!(encode(&-1i64)?, [0x01]);
//! assert_eq!(encode(&1i64)?, [0x02]);
//! assert_eq!(encode(&-65i64)?, [0x81, 0x01]);
//!
//! assert_eq!(encode("né")?, [0x03, 0x6e, 0xc3, 0xa9]);
//! assert_eq!(encode(&1.5f64)?, [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f]);
//! assert_eq!(encode(&None::<u8>)?, [0x00]);
//! assert_eq!(encode(&Some(7u8))?, [0x01, 0x07]);
//! assert_eq!(encode(&(1u8, -1i64, "a"))?, [0x01, 0x01, 0x01, 0x61]);
//! assert_eq!(encode(&vec![1u32, 300])?, [0x02, 0x01, 0xac, 0x02]);
//!
//! #[derive(serde::Serialize)]
//! struct Session { first_ms: i64, clicks: u32, page: Option<String> }
//! let session = Session { first_ms: 1000, clicks: 2, page: Some("/".into()) };
//! assert_eq!(encode(&session)?, [0xd0, 0x0f, 0x02, 0x01, 0x01, 0x2f]);
//!
//! #[derive(serde::Serialize)]
//! enum Shape { Point, Circle(u8) }
//! assert_eq!(encode(&Shape::Point)?, [0x00]);
//! assert_eq!(encode(&Shape::Circle(9))?, [0x01, 0x09]);
//! # Ok(())
//! # }
//! ```
//!
//! # Tables
//!
//! An entry of a table has a key (that of the record, as it is), a user key and a value:
//!
//! | table | user key | value |
//! |---|---|---|
//! | [`Value<V>`](crate::Value) | empty | `V` encoded |
//! | [`Map<K, V>`](crate::Map) | `K` encoded | `V` encoded |
//! | [`List<V>`](crate::List) | empty | the number of elements, a `u64` encoded |
//! | | 8 bytes: the element's index from 0, big-endian | `V` encoded |
//!
//! What is absent (a value that was never set, an empty list) has no entry.
//!
//! The entries of a map are ordered by the bytes of their user keys. For `String`s that is first by length, for integers
//! the order of their LEB128 bytes: an order to rely on for being always the same, not for meaning something.
//!
//! [postcard]: https://postcard.jamesmunns.com/wire-format

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// What can be kept in state: anything that serde can write and read back.
pub trait Data: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Data for T {}

/// Encodes a value as described [above](self).
///
/// # Errors
/// If the type's own `Serialize` fails, or it holds a sequence whose length isn't known beforehand.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// Decodes what [`encode`] gave.
///
/// # Errors
/// If the bytes are not exactly one value of the type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let (value, rest) = postcard::take_from_bytes(bytes)
        .map_err(|error| Error::fatal(format_args!("not a {}: {error}", short_name::<T>())))?;
    if !rest.is_empty() {
        return Err(Error::fatal(format_args!("{} bytes are left over after a {}", rest.len(), short_name::<T>())));
    }
    Ok(value)
}

fn short_name<T>() -> &'static str {
    std::any::type_name::<T>()
}

/// Adds an encoded value to what is there.
pub(crate) fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), Error> {
    postcard::serialize_with_flavor(value, Append(bytes)).map_err(Error::fatal)
}

/// How many bytes a value is when encoded.
pub(crate) fn encoded_len<T: Serialize + ?Sized>(value: &T) -> usize {
    // What can't be encoded is reported when it is to be written.
    postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default()).unwrap_or(0)
}

struct Append<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
