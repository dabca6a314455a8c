//! One file while it is being read.
//!
//! Invariant: nothing is read beyond the size that the file had when it was opened.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::lines::{LineBatch, LineBuffer, Stop};
use super::position::{Changed, Position, head_bytes};

/// A file open at a position.
#[derive(Debug)]
pub struct OpenFile {
    pub split: String,
    file: File,
    /// What is read up to.
    size: u64,
    /// Where the next chunk is.
    read_offset: u64,
    /// Where it was opened.
    opened_at: u64,
    /// The file's first bytes, as far as they were read, at most as many as positions need.
    head: Vec<u8>,
    /// Whether what has no end at `size` is a line.
    last_line_counts: bool,
}

/// Why a file can't be read on.
#[derive(Debug)]
pub enum ReadError {
    Io {
        action: &'static str,
        source: io::Error,
    },
    Changed(Changed),
    /// The line at `offset` has more than `max_line` bytes.
    TooLong {
        offset: u64,
    },
}

/// How reading went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    BatchFull,
    /// All is read up to the size; `unread` bytes have no line end yet.
    AtEnd {
        size: u64,
        unread: usize,
    },
}

impl OpenFile {
    /// Opens a file and makes sure that it is the one the position is of. `last_line_counts` is asked with the file's size.
    pub fn open(
        split: String,
        path: &Path,
        position: Position,
        lines: &mut LineBuffer,
        last_line_counts: impl FnOnce(u64) -> bool,
    ) -> Result<OpenFile, ReadError> {
        let io = |action| move |source| ReadError::Io { action, source };
        let file = File::open(path).map_err(io("open"))?;
        let size = file.metadata().map_err(io("look at"))?.len();
        let head = verify(&file, size, position).map_err(io("read"))?.map_err(ReadError::Changed)?;
        let mut last = [0];
        let last = match position.offset {
            0 => None,
            offset => file.read_exact_at(&mut last, offset - 1).map(|()| Some(last[0])).map_err(io("read"))?,
        };
        lines.reset(last);
        let offset = position.offset;
        let last_line_counts = last_line_counts(size);
        Ok(OpenFile { split, file, size, read_offset: offset, opened_at: offset, head, last_line_counts })
    }

    /// Moves lines into the batch until it is full or the file at its end.
    pub fn fill(
        &mut self,
        lines: &mut LineBuffer,
        batch: &mut LineBatch,
        max_line: usize,
        chunk_bytes: usize,
    ) -> Result<Filled, ReadError> {
        loop {
            let at_size = self.read_offset == self.size;
            match lines.split_into(batch, max_line, at_size && self.last_line_counts) {
                Stop::BatchFull => return Ok(Filled::BatchFull),
                Stop::TooLong => return Err(ReadError::TooLong { offset: self.offset(lines) }),
                Stop::NeedsMore if at_size => {
                    return Ok(Filled::AtEnd { size: self.size, unread: lines.unread() });
                }
                Stop::NeedsMore => self.read_chunk(lines, chunk_bytes)?,
            }
        }
    }

    fn read_chunk(&mut self, lines: &mut LineBuffer, chunk_bytes: usize) -> Result<(), ReadError> {
        let wanted = (self.size - self.read_offset).min(chunk_bytes as u64) as usize;
        let room = lines.room(wanted);
        let n = loop {
            match self.file.read_at(room, self.read_offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { action: "read", source }),
                Ok(0) => {
                    let (size, offset) = (self.read_offset, self.size);
                    return Err(ReadError::Changed(Changed::Truncated { size, offset }));
                }
                Ok(n) => break n,
            }
        };
        let head_missing = head_bytes(u64::MAX) - self.head.len();
        if head_missing > 0 {
            // Positions begin at 0 or with a whole head, or with one that ends where reading begins.
            self.head.extend_from_slice(&room[..n.min(head_missing)]);
        }
        lines.filled(n);
        self.read_offset += n as u64;
        Ok(())
    }

    /// Where the lines are that weren't given yet.
    pub fn offset(&self, lines: &LineBuffer) -> u64 {
        self.read_offset - lines.unread() as u64
    }

    /// Where the next line begins.
    pub fn position(&self, lines: &LineBuffer, done: bool) -> Position {
        Position::new(self.offset(lines), &self.head, done)
    }

    /// How much has been read since it was opened.
    pub fn turn_bytes(&self) -> u64 {
        self.read_offset - self.opened_at
    }
}

/// Compares a file with a position that was taken from it; gives its first bytes.
pub fn verify(file: &File, size: u64, position: Position) -> io::Result<Result<Vec<u8>, Changed>> {
    position.check(size, |bytes| {
        let mut head = vec![0; bytes];
        file.read_exact_at(&mut head, 0).map(|()| head)
    })
}

/// As [`verify`], for a file that need not be there if it was read to its end.
pub fn verify_path(path: &Path, position: Position) -> Result<(), ReadError> {
    let io = |action| move |source| ReadError::Io { action, source };
    let found = std::fs::metadata(path);
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match position.done {
            true => Ok(()),
            false => Err(ReadError::Changed(Changed::Deleted { offset: position.offset })),
        },
        Err(source) => Err(ReadError::Io { action: "look at", source }),
        Ok(found) if !found.is_file() => Err(ReadError::Changed(Changed::Replaced)),
        Ok(found) => {
            let file = File::open(path).map_err(io("open"))?;
            verify(&file, found.len(), position).map_err(io("read"))?.map(drop).map_err(ReadError::Changed)
        }
    }
}
