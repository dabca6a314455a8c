//! How far a file has been read, as it is kept in a checkpoint. Pure.
//!
//! As text, because there may be tens of thousands of them: `<offset> <xxh3> done` or `... open`. `offset` is the byte at which
//! the next line begins; `xxh3` the XXH3-64 of the file's first `min(offset, 1024)` bytes, 16 hexadecimal digits; `done` says
//! that the file had nothing more.
//!
//! Invariant: a position is continued from only if the file still begins with the bytes it was taken from.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

/// The bytes by which a file is known again.
const HEAD_BYTES: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub offset: u64,
    pub head_xxh3: u64,
    pub done: bool,
}

/// What happened to a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Changed {
    #[error("it was deleted before it was read to its end ({offset} bytes of it were)")]
    Deleted { offset: u64 },
    #[error("it was truncated: it has {size} bytes, and {offset} were read")]
    Truncated { size: u64, offset: u64 },
    #[error("it was replaced: its first bytes aren't those that were read")]
    Replaced,
}

/// What to do about each of these.
pub const CHANGED_ADVICE: &str = "put the file back as it was and give new content a new name; or, to read everything \
                                  again, give the job a new state directory and output folder";

impl Position {
    /// The beginning of a file.
    pub const START: Position = Position { offset: 0, head_xxh3: 0, done: false };

    /// The position at `offset` of a file that begins with `head`.
    pub fn new(offset: u64, head: &[u8], done: bool) -> Position {
        let known = &head[..head_bytes(offset)];
        Position { offset, head_xxh3: if offset == 0 { 0 } else { xxh3_64(known) }, done }
    }

    /// Compares with a file of `size` bytes; `read_head` reads as many bytes from its beginning as it is asked for, and what it
    /// read is given back.
    pub fn check<E>(
        &self,
        size: u64,
        read_head: impl FnOnce(usize) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Vec<u8>, Changed>, E> {
        if size < self.offset {
            return Ok(Err(Changed::Truncated { size, offset: self.offset }));
        }
        let head = read_head(head_bytes(self.offset))?;
        let same = Position::new(self.offset, &head, self.done) == *self;
        Ok(if same { Ok(head) } else { Err(Changed::Replaced) })
    }
}

/// How many of a file's first bytes a position at `offset` depends on.
pub fn head_bytes(offset: u64) -> usize {
    offset.min(HEAD_BYTES) as usize
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x} {}", self.offset, self.head_xxh3, if self.done { "done" } else { "open" })
    }
}

/// A text that is no position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no position of a file")]
pub struct NoPosition(String);

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Position, NoPosition> {
        let parse = || {
            let mut words = text.split(' ');
            let offset = words.next()?.parse().ok()?;
            let head_xxh3 = u64::from_str_radix(words.next()?, 16).ok()?;
            let done = match words.next()? {
                "done" => true,
                "open" => false,
                _ => return None,
            };
            words.next().is_none().then_some(Position { offset, head_xxh3, done })
        };
        parse().ok_or_else(|| NoPosition(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_other_text_is_refused() {
        for position in [Position::new(5, b"12345", false), Position::new(1 << 40, &[7; 1024], true), Position::START] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "5", "5 ff", "5 ff done more", "-5 ff done", "5 xyz done", "5 ff maybe", "5  ff done"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_only_grew_is_the_same_and_any_other_change_is_found() {
        let file: Vec<u8> = (0..3_000u32).map(|i| (i % 251) as u8).collect();
        for offset in [0, 1, 500, 1023, 1024, 1025, 3_000] {
            let position = Position::new(offset, &file[..1024], false);
            let check =
                |file: &[u8]| position.check(file.len() as u64, |n| Ok::<_, ()>(file[..n].to_vec())).expect("a head");
            assert!(check(&file).is_ok());
            let mut grown = file.clone();
            grown.extend_from_slice(b"more");
            assert!(check(&grown).is_ok());
            if offset > 0 {
                let mut changed = file.clone();
                changed[offset.min(1024) as usize - 1] ^= 1;
                assert_eq!(check(&changed), Err(Changed::Replaced));
                let size = offset - 1;
                assert_eq!(check(&file[..size as usize]), Err(Changed::Truncated { size, offset }));
            }
        }
    }
}
