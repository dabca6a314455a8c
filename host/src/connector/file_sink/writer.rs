//! The write side: lines into staged files, cut at barriers.
//!
//! Invariant: a committable is given only after the files it lists and their folder entries are on disk.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::mem;
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3;

use super::committable::{Committable, Place, StagedFile};
use super::layout::Layout;
use super::{FileSinkOptions, MissingValue, claim, durable};
use crate::connector::{ConnectorContext, ConnectorError, Prepare, SinkWriter};
use crate::crash;
use crate::element::Batch;
use crate::id::{Epoch, Name};

/// Written to the file in lots of this size.
const BUFFER_BYTES: usize = 256 << 10;
/// Rolled files that may wait for the barrier with their file open.
const ROLLED_OPEN_MAX: usize = 16;

/// One subtask of a file sink.
pub struct FileSinkWriter {
    ctx: ConnectorContext,
    subtask: u32,
    layout: Layout,
    place: Place,
    roll_bytes: u64,
    missing_value: MissingValue,
    /// Whether this attempt's staging folder is there.
    has_folder: bool,
    next_number: u64,
    current: Option<Part>,
    rolled: Vec<Part>,
}

impl FileSinkWriter {
    /// Touches nothing before the first record.
    pub fn open(options: &FileSinkOptions, ctx: &ConnectorContext, subtask: u32) -> FileSinkWriter {
        let layout = Layout::new(&options.path);
        let place = Place { folder: layout.shown(), extension: options.extension.clone() };
        FileSinkWriter {
            ctx: ctx.clone(),
            subtask,
            layout,
            place,
            roll_bytes: options.roll_size.unwrap_or(u64::MAX),
            missing_value: options.missing_value,
            has_folder: false,
            next_number: 0,
            current: None,
            rolled: Vec::new(),
        }
    }

    fn open_part(&mut self) -> Result<Part, ConnectorError> {
        if !self.has_folder {
            claim::check(&self.layout, &self.ctx)?;
            let folder = self.layout.attempt(self.ctx.attempt);
            durable::create_folders(&folder)
                .map_err(|error| ConnectorError::file(&self.ctx.name, "create", &folder, error))?;
            self.has_folder = true;
        }
        let number = self.next_number;
        self.next_number += 1;
        let path = self.layout.staged(self.ctx.attempt, self.subtask, number);
        Part::create(&self.ctx.name, path, number)
    }

    fn roll(&mut self) -> Result<(), ConnectorError> {
        let Some(mut part) = self.current.take() else { return Ok(()) };
        if self.rolled.iter().filter(|part| part.file.is_some()).count() >= ROLLED_OPEN_MAX {
            part.finish(&self.ctx.name)?;
        }
        self.rolled.push(part);
        Ok(())
    }

    fn missing(&self) -> Result<(), ConnectorError> {
        match self.missing_value {
            MissingValue::Skip => Ok(()),
            MissingValue::Error => Err(ConnectorError::Refused {
                name: self.ctx.name.clone(),
                problem: "a record has no value, which no line of a file can show".to_owned(),
                advice: "let an operator give it one or drop it, or set missing_value = \"skip\"".to_owned(),
            }),
        }
    }
}

impl SinkWriter for FileSinkWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        for row in 0..batch.rows as usize {
            let Some(value) = batch.value(row) else {
                self.missing()?;
                continue;
            };
            if self.current.is_none() {
                self.current = Some(self.open_part()?);
            }
            let part = self.current.as_mut().expect("just opened");
            part.push_line(&self.ctx.name, value)?;
            if part.bytes() >= self.roll_bytes {
                self.roll()?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare, ConnectorError> {
        let mut parts = mem::take(&mut self.rolled);
        parts.extend(self.current.take());
        if parts.is_empty() {
            return Ok(Box::new(|| Ok(Vec::new())));
        }
        let (name, folder) = (self.ctx.name.clone(), self.layout.attempt(self.ctx.attempt));
        let (attempt, subtask, place) = (self.ctx.attempt, self.subtask, self.place.clone());
        Ok(Box::new(move || {
            crash::point("connector.stage.before");
            // The bytes first, then the names: a name without its bytes would be believed after a power cut.
            let files = parts.iter_mut().map(|part| part.finish(&name)).collect::<Result<Vec<StagedFile>, _>>()?;
            durable::sync_folder(&folder).map_err(|error| ConnectorError::file(&name, "sync", &folder, error))?;
            crash::point("connector.stage.after");
            Ok(Committable::new(epoch, attempt, subtask, place, files).to_bytes())
        }))
    }
}

/// One staged file.
struct Part {
    path: PathBuf,
    number: u64,
    /// Gone when it is finished.
    file: Option<File>,
    buffer: Vec<u8>,
    /// Of what is in the file, without the buffer.
    written_bytes: u64,
    hash: Box<Xxh3>,
}

impl Part {
    fn create(name: &Name, path: PathBuf, number: u64) -> Result<Part, ConnectorError> {
        // An attempt's number is never used again, so nothing can have this name.
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| ConnectorError::file(name, "create", &path, error))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Ok(Part { path, number, file: Some(file), buffer, written_bytes: 0, hash: Box::new(Xxh3::new()) })
    }

    fn bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    #[inline]
    fn push_line(&mut self, name: &Name, value: &[u8]) -> Result<(), ConnectorError> {
        if self.buffer.len() + value.len() >= BUFFER_BYTES {
            self.flush(name)?;
        }
        self.buffer.extend_from_slice(value);
        self.buffer.push(b'\n');
        Ok(())
    }

    fn flush(&mut self, name: &Name) -> Result<(), ConnectorError> {
        let file = self.file.as_mut().expect("a finished part takes nothing more");
        file.write_all(&self.buffer).map_err(|error| ConnectorError::file(name, "write", &self.path, error))?;
        self.hash.update(&self.buffer);
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Brings all of it to disk, the first time, and says what it is.
    fn finish(&mut self, name: &Name) -> Result<StagedFile, ConnectorError> {
        if self.file.is_some() {
            self.flush(name)?;
            self.buffer = Vec::new();
        }
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(|error| ConnectorError::file(name, "sync", &self.path, error))?;
        }
        let xxh3 = format!("{:016x}", self.hash.digest());
        Ok(StagedFile { number: self.number, size_bytes: self.written_bytes, xxh3 })
    }
}
