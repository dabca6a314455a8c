//! Integers and fields in text, many bytes at a step.
//!
//! A guest is asked at each turn of a loop whether the time of its call is over. That costs more than to look at a byte, so nothing
//! here goes byte by byte.
//!
//! ```
//! use lockgate::prelude::*;
//! use lockgate::text;
//!
//! /// Passes on `customer,cents,rest` of at least 10,000 cents, as `customer: cents`.
//! struct Large;
//!
//! impl Operator for Large {
//!     fn new(_: &mut Declaration) -> Large {
//!         Large
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
//!         let mut fields = text::fields(record.value().unwrap_or_default(), b',');
//!         let (customer, cents) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
//!         let cents = text::integer::<u64>(cents)?;
//!         if cents >= 10_000 {
//!             ctx.emit_with(record.key(), |value| {
//!                 value.bytes(customer);
//!                 value.bytes(b": ");
//!                 value.integer(cents);
//!             });
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let mut harness = lockgate::testing::Harness::<Large>::open()?;
//! harness.process([("a", "ann,12000,x"), ("b", "bob,9999,y")])?;
//! assert_eq!(harness.take_output(), [("a", "ann: 12000")]);
//! # Ok(())
//! # }
//! ```

use crate::bytes::word_at;
use crate::error::Error;
use crate::field::AsField;

const ONES: u64 = u64::MAX / 0xff;
const HIGH_BITS: u64 = ONES << 7;
/// Eight digits zero.
const ZEROS: u64 = ONES * b'0' as u64;
const STEP: usize = 8;
/// By the number of digits of a step.
const POWERS_OF_TEN: [u64; STEP + 1] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, EIGHT_DIGITS];
const EIGHT_DIGITS: u64 = 100_000_000;

/// The integers that have a decimal form here: all up to 64 bits.
pub trait Integer: Sized {
    /// Whether it is negative, and how far from zero.
    fn sign_and_magnitude(self) -> (bool, u64);
    /// The integer that has them, if the type has one. A type without a sign has none with a minus, not even 0.
    fn from_sign_and_magnitude(negative: bool, magnitude: u64) -> Option<Self>;
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            #[inline]
            fn sign_and_magnitude(self) -> (bool, u64) {
                (false, self as u64)
            }

            #[inline]
            fn from_sign_and_magnitude(negative: bool, magnitude: u64) -> Option<$type> {
                if negative { None } else { <$type>::try_from(magnitude).ok() }
            }
        }
    )*};
}

macro_rules! signed {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            #[inline]
            fn sign_and_magnitude(self) -> (bool, u64) {
                (self < 0, self.unsigned_abs() as u64)
            }

            #[inline]
            fn from_sign_and_magnitude(negative: bool, magnitude: u64) -> Option<$type> {
                if !negative {
                    return <$type>::try_from(magnitude).ok();
                }
                let negated = 0i64.checked_sub_unsigned(magnitude)?;
                <$type>::try_from(negated).ok()
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, usize);
signed!(i8, i16, i32, i64, isize);

/// What `str::parse` makes of the text: digits, a sign before them if there is one, and nothing else.
///
/// # Errors
/// The record is bad if the text isn't such an integer or the type has no such value.
#[inline]
pub fn integer<T: Integer>(text: &[u8]) -> Result<T, Error> {
    match leading_integer(text) {
        Some((number, [])) => Ok(number),
        Some(_) | None => Err(not_an_integer::<T>(text)),
    }
}

#[cold]
fn not_an_integer<T>(text: &[u8]) -> Error {
    Error::bad_record(format_args!("not a {}: '{}'", std::any::type_name::<T>(), text.escape_ascii()))
}

/// The integer that the text begins with, and what follows its last digit.
///
/// `None` if it begins with none, or with one that the type doesn't have.
///
/// ```
/// use lockgate::text::leading_integer;
///
/// assert_eq!(leading_integer(b"0012,tea"), Some((12u32, &b",tea"[..])));
/// assert_eq!(leading_integer(b"-7"), Some((-7i64, &b""[..])));
/// assert_eq!(leading_integer::<u8>(b"256"), None);
/// assert_eq!(leading_integer::<u8>(b"tea"), None);
/// ```
#[inline]
pub fn leading_integer<T: Integer>(text: &[u8]) -> Option<(T, &[u8])> {
    match leading_digits(text) {
        Some((magnitude, rest)) => Some((T::from_sign_and_magnitude(false, magnitude)?, rest)),
        // Most have no sign.
        None => leading_signed(text),
    }
}

#[inline(never)]
fn leading_signed<T: Integer>(text: &[u8]) -> Option<(T, &[u8])> {
    let (sign, digits) = text.split_first().filter(|(sign, _)| b"+-".contains(sign))?;
    let (magnitude, rest) = leading_digits(digits)?;
    Some((T::from_sign_and_magnitude(*sign == b'-', magnitude)?, rest))
}

#[inline]
fn leading_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let (first, first_len) = step(text, 0);
    if first_len < STEP {
        return if first_len == 0 { None } else { Some((first, &text[first_len..])) };
    }
    let (second, second_len) = step(text, STEP);
    let both = first * POWERS_OF_TEN[second_len] + second;
    if second_len < STEP { Some((both, &text[STEP + second_len..])) } else { many_digits(text, both) }
}

/// Goes on behind 16 digits.
#[inline(never)]
fn many_digits(text: &[u8], before: u64) -> Option<(u64, &[u8])> {
    let (third, third_len) = step(text, 2 * STEP);
    // 19 digits are always fewer than `u64::MAX`.
    if third_len <= 3 {
        return Some((before * POWERS_OF_TEN[third_len] + third, &text[2 * STEP + third_len..]));
    }
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(len);
    let magnitude = digits
        .iter()
        .try_fold(0u64, |magnitude, digit| magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    Some((magnitude?, rest))
}

/// The number that the digits at `at` make, 8 of them at most, and how many they are.
#[inline]
fn step(text: &[u8], at: usize) -> (u64, usize) {
    // Digits become 0 to 9. What is more than that gets its high bit, and may carry into bytes behind it, which don't count any more.
    let digits = word_at(text, at) ^ ZEROS;
    let others = (digits.wrapping_add(ONES * (0x80 - 10)) | digits) & HIGH_BITS;
    let bits = others.trailing_zeros() & !7;
    if bits == 0 {
        return (0, 0);
    }
    // As if there were zeros before them: then pairs, fours and the eight.
    let digits = digits << (64 - bits);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    const EACH: u64 = 0x0000_00ff_0000_00ff;
    let upper = (pairs & EACH).wrapping_mul(100 + (1_000_000 << 32));
    let lower = ((pairs >> 16) & EACH).wrapping_mul(1 + (10_000 << 32));
    (upper.wrapping_add(lower) >> 32, bits as usize / 8)
}

/// What is before and behind the first separator.
#[inline]
pub fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(separator, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The parts between separators, of which there is one more than separators.
#[inline]
pub fn fields(text: &[u8], separator: u8) -> Fields<'_> {
    Fields { rest: Some(text), separator }
}

/// See [`fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    /// What the iterator hasn't come to yet, with the separators in it; `None` behind the last field.
    #[inline]
    pub fn rest(&self) -> Option<&'a [u8]> {
        self.rest
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.rest?;
        match split_once(text, self.separator) {
            Some((field, rest)) => {
                self.rest = Some(rest);
                Some(field)
            }
            None => self.rest.take(),
        }
    }
}

/// An integer in decimal, for a key or a value: what `to_string` gives, without its machinery and its allocation.
///
/// ```
/// use lockgate::{AsField, text::decimal};
///
/// assert_eq!(decimal(-12i32).as_field(), Some(&b"-12"[..]));
/// ```
#[inline]
pub fn decimal(number: impl Integer) -> Decimal {
    let (negative, magnitude) = number.sign_and_magnitude();
    let mut bytes = [b'-'; 1 + PRINTED_BYTES_MAX];
    let digits = print(magnitude, bytes.last_chunk_mut().expect("so many bytes"));
    Decimal { bytes, start: usize::from(!negative), end: 1 + digits }
}

/// See [`decimal`].
#[derive(Clone, Copy)]
pub struct Decimal {
    /// A minus, then the digits.
    bytes: [u8; 1 + PRINTED_BYTES_MAX],
    start: usize,
    end: usize,
}

impl Decimal {
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

impl AsField for Decimal {
    #[inline]
    fn as_field(&self) -> Option<&[u8]> {
        Some(self.as_bytes())
    }
}

/// Room for what [`print`] writes: more than the 20 digits of `u64::MAX`, since whole steps are written.
pub(crate) const PRINTED_BYTES_MAX: usize = 3 * STEP;

/// Writes a number in decimal; says how many digits it has. What is behind them in `to` is overwritten.
#[inline]
pub(crate) fn print(number: u64, to: &mut [u8; PRINTED_BYTES_MAX]) -> usize {
    if number < EIGHT_DIGITS {
        return print_first(number as u32, to);
    }
    let (upper, last) = (number / EIGHT_DIGITS, (number % EIGHT_DIGITS) as u32);
    let len = if upper < EIGHT_DIGITS {
        print_first(upper as u32, to)
    } else {
        let len = print_first((upper / EIGHT_DIGITS) as u32, to);
        to[len..len + STEP].copy_from_slice(&eight_digits((upper % EIGHT_DIGITS) as u32).to_le_bytes());
        len + STEP
    };
    to[len..len + STEP].copy_from_slice(&eight_digits(last).to_le_bytes());
    len + STEP
}

/// Without the zeros before it.
#[inline]
fn print_first(number: u32, to: &mut [u8; PRINTED_BYTES_MAX]) -> usize {
    let digits = eight_digits(number);
    // A zero has one digit.
    let zeros = ((digits ^ ZEROS).trailing_zeros() & !7).min(7 * 8);
    to[..STEP].copy_from_slice(&(digits >> zeros).to_le_bytes());
    STEP - zeros as usize / 8
}

/// A number below 10^8 as 8 digits, the first in the lowest byte. Divisions by a constant are multiplications, of all parts at once.
#[inline]
fn eight_digits(number: u32) -> u64 {
    let fours = u64::from(number / 10_000) | (u64::from(number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | ((pairs - tens * 10) << 8)) | ZEROS
}

#[cfg(test)]
mod tests;
