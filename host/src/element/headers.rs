//! The headers of records, as bytes.
//!
//! The headers of one record are a byte string of one after the other: the length of the name (little-endian u32), the name
//! (UTF-8), the length of the value, or 0xffffffff for a missing one, and the value. Their order counts, and a name may come more
//! than once, as in Kafka.
//!
//! Invariant: [`Headers`] are made of bytes that [`check`] has passed or that [`append`] has written.

/// The length of a value that is missing.
const MISSING: u32 = u32::MAX;

/// A name and a value beside a record's key and value. A missing value is not an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// The headers of one record, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    rest: &'a [u8],
}

/// Why bytes are no headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeaders {
    #[error("they end within a header")]
    Length,
    #[error("a name isn't UTF-8")]
    Name,
}

impl<'a> Headers<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Headers<'a> {
        Headers { rest: bytes }
    }

    /// Those that are left, as they are in a batch. No bytes: there is none.
    pub fn bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (header, rest) = first(self.rest).expect("headers that were checked");
        self.rest = rest;
        Some(header)
    }
}

/// Checks bytes that come from outside.
pub(super) fn check(mut bytes: &[u8]) -> Result<(), BadHeaders> {
    while !bytes.is_empty() {
        bytes = first(bytes)?.1;
    }
    Ok(())
}

/// Adds a header.
///
/// # Panics
/// If it has 4 GiB.
pub(super) fn append(to: &mut Vec<u8>, header: Header<'_>) {
    let length =
        |bytes: &[u8]| u32::try_from(bytes.len()).ok().filter(|length| *length != MISSING).expect("below 4 GiB");
    to.extend_from_slice(&length(header.name.as_bytes()).to_le_bytes());
    to.extend_from_slice(header.name.as_bytes());
    to.extend_from_slice(&header.value.map_or(MISSING, length).to_le_bytes());
    to.extend_from_slice(header.value.unwrap_or_default());
}

/// The first header and the bytes behind it.
fn first(bytes: &[u8]) -> Result<(Header<'_>, &[u8]), BadHeaders> {
    let (length, rest) = number(bytes)?;
    let (name, rest) = rest.split_at_checked(length as usize).ok_or(BadHeaders::Length)?;
    let name = std::str::from_utf8(name).map_err(|_| BadHeaders::Name)?;
    let (length, rest) = number(rest)?;
    if length == MISSING {
        return Ok((Header { name, value: None }, rest));
    }
    let (value, rest) = rest.split_at_checked(length as usize).ok_or(BadHeaders::Length)?;
    Ok((Header { name, value: Some(value) }, rest))
}

fn number(bytes: &[u8]) -> Result<(u32, &[u8]), BadHeaders> {
    let (number, rest) = bytes.split_first_chunk().ok_or(BadHeaders::Length)?;
    Ok((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Header<'static>; 4] = [
        Header { name: "trace", value: Some(b"\x00\xff") },
        Header { name: "", value: Some(b"") },
        Header { name: "größe", value: None },
        Header { name: "trace", value: Some(b"2") },
    ];

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        ALL.into_iter().for_each(|header| append(&mut bytes, header));
        bytes
    }

    #[test]
    fn headers_come_back_in_their_order_with_what_is_missing_and_what_comes_twice() {
        let bytes = bytes();
        assert_eq!(check(&bytes), Ok(()));
        assert_eq!(Headers::of(&bytes).collect::<Vec<_>>(), ALL);
        assert_eq!(Headers::default().next(), None);
    }

    /// The encoding is part of the contract with operators and of checkpoints.
    #[test]
    fn the_encoding_never_changes() {
        let mut bytes = Vec::new();
        append(&mut bytes, Header { name: "ab", value: Some(b"c") });
        append(&mut bytes, Header { name: "d", value: None });
        assert_eq!(bytes, b"\x02\0\0\0ab\x01\0\0\0c\x01\0\0\0d\xff\xff\xff\xff");
    }

    #[test]
    fn headers_that_are_cut_off_anywhere_are_refused() {
        let (bytes, mut whole) = (bytes(), Vec::from([0]));
        for header in ALL {
            whole.push(whole.last().expect("one") + 8 + header.name.len() + header.value.map_or(0, <[u8]>::len));
        }
        for length in 0..=bytes.len() {
            let expected = if whole.contains(&length) { Ok(()) } else { Err(BadHeaders::Length) };
            assert_eq!(check(&bytes[..length]), expected, "{length}");
        }
    }

    #[test]
    fn lengths_that_lie_and_names_that_are_no_text_are_refused() {
        assert_eq!(check(b"\xff\xff\xff\xffname"), Err(BadHeaders::Length));
        assert_eq!(check(b"\x01\0\0\0n\xfe\xff\xff\xffv"), Err(BadHeaders::Length));
        assert_eq!(check(b"\x02\0\0\0\xc3(\0\0\0\0"), Err(BadHeaders::Name));
    }
}
