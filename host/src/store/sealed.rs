//! One line of JSON that can be told from a damaged one.
//!
//! On disk: the JSON and a line feed, then `xxh3:`, the 16 lower-case hexadecimal digits of the XXH3-64 of the JSON, and a line
//! feed. Nothing comes after. Invariant: bytes differ from what was sealed in any way if and only if `unseal` refuses them (a
//! collision of the hash apart).

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

const MARK: &str = "xxh3:";
/// `xxh3:`, 16 digits, a line feed.
const SEAL_BYTES: usize = MARK.len() + 16 + 1;

/// How a file of the store differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it ends early: the checksum line is missing or cut off")]
    CutOff,
    #[error("its checksum is {found} and not {expected}, as when it was written")]
    Checksum { expected: String, found: String },
    #[error("it has {found} bytes and not {expected}, as when it was written")]
    Size { expected: u64, found: u64 },
    #[error("it is intact but says what no host writes: {problem}")]
    Content { problem: String },
}

/// A checksum as the store writes it.
pub(super) fn digits(xxh3: u64) -> String {
    format!("{xxh3:016x}")
}

/// The checksum of what was sealed.
///
/// # Panics
/// If the bytes aren't sealed.
pub(super) fn checksum(sealed: &[u8]) -> u64 {
    xxh3_64(unseal(sealed).expect("sealed bytes"))
}

/// # Panics
/// If the value can't be JSON; ours can.
pub fn seal<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("a value that JSON can hold");
    let checksum = digits(xxh3_64(&bytes));
    bytes.push(b'\n');
    bytes.extend_from_slice(MARK.as_bytes());
    bytes.extend_from_slice(checksum.as_bytes());
    bytes.push(b'\n');
    bytes
}

/// Gives the JSON of sealed bytes.
///
/// # Errors
/// [`Damage`] if they aren't exactly what [`seal`] gave.
pub fn unseal(bytes: &[u8]) -> Result<&[u8], Damage> {
    let (text, seal) = bytes.split_at_checked(bytes.len().wrapping_sub(SEAL_BYTES)).ok_or(Damage::CutOff)?;
    let json = text.strip_suffix(b"\n").ok_or(Damage::CutOff)?;
    let written = seal.strip_prefix(MARK.as_bytes()).and_then(|rest| rest.strip_suffix(b"\n")).ok_or(Damage::CutOff)?;
    let found = digits(xxh3_64(json));
    if written == found.as_bytes() {
        Ok(json)
    } else {
        Err(Damage::Checksum { expected: String::from_utf8_lossy(written).into_owned(), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_comes_back() {
        let sealed = seal(&"a \n line");
        assert_eq!(unseal(&sealed), Ok(&b"\"a \\n line\""[..]));
        assert_eq!(sealed.iter().filter(|byte| **byte == b'\n').count(), 2, "JSON keeps to one line");
    }

    #[test]
    fn nothing_and_noise_are_refused() {
        assert_eq!(unseal(b""), Err(Damage::CutOff));
        assert_eq!(unseal(&[0; 22]), Err(Damage::CutOff));
        assert_eq!(unseal(&[b'\n'; 400]), Err(Damage::CutOff));
        assert_eq!(
            unseal(b"{}\nxxh3:0000000000000000\n").map_err(|damage| matches!(damage, Damage::Checksum { .. })),
            Err(true)
        );
    }
}
