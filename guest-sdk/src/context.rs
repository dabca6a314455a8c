//! What an operator may do while it is called.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::field::AsField;
use crate::headers::{Header, Outgoing};
use crate::host::{Clock, Host, Level};
use crate::instance::Rejection;
use crate::operator::{Input, Output};
use crate::output::OutputBuffer;
use crate::record::{NO_TIMESTAMP, Record, Rows};
use crate::state::Cache;
use crate::timers::TimerWrites;
use crate::value_writer::ValueWriter;

/// The reach of an operator during [`process`](crate::Operator::process), [`timer`](crate::Operator::timer) and
/// [`watermark`](crate::Operator::watermark): output, time, log, metrics, and through the table handles the state of the
/// current record's key.
///
/// What a call emits and writes takes effect only if the call succeeds.
pub struct Context<'a> {
    pub(crate) host: &'a mut dyn Host,
    pub(crate) cache: &'a mut Cache,
    pub(crate) rows: Rows<'a>,
    outputs: &'a mut [Option<Box<OutputBuffer>>],
    timers: &'a mut TimerWrites,
    counters: Vec<(&'static str, u64)>,
    /// How many rows have been handed out.
    next: usize,
    timestamp: i64,
    headers: Outgoing<'a>,
    input: Input,
    /// Once it was asked for; so is `now`.
    watermark: Option<i64>,
    now: Option<i64>,
    /// Whether records may be rejected.
    rejecting: bool,
    rejections: Vec<Rejection>,
    /// Batches that the current record has filled, with their ports.
    full: Vec<(u32, Box<OutputBuffer>)>,
    /// How many timers there were when it began.
    timers_mark: [usize; 2],
}

/// What a call gathers for its end.
pub(crate) struct Gathered<'a> {
    pub outputs: &'a mut [Option<Box<OutputBuffer>>],
    pub timers: &'a mut TimerWrites,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        host: &'a mut dyn Host,
        cache: &'a mut Cache,
        gathered: Gathered<'a>,
        rows: Rows<'a>,
        rejecting: bool,
    ) -> Context<'a> {
        let Gathered { outputs, timers } = gathered;
        Context {
            host,
            cache,
            rows,
            outputs,
            timers,
            counters: Vec::new(),
            next: 0,
            timestamp: NO_TIMESTAMP,
            headers: Outgoing::default(),
            input: Input::MAIN,
            watermark: None,
            now: None,
            rejecting,
            rejections: Vec::new(),
            full: Vec::new(),
            timers_mark: [0; 2],
        }
    }

    pub(crate) fn set_input(&mut self, input: Input) {
        self.input = input;
    }

    /// Ends the call: sends what is gathered, or drops it if the call failed. Gives what was rejected.
    pub(crate) fn end(mut self, result: Result<(), Error>) -> Result<Vec<Rejection>, Error> {
        if result.is_ok() {
            self.send_full();
        }
        for (name, delta) in self.counters {
            self.host.counter_add(name, delta);
        }
        for (port, buffer) in self.outputs.iter_mut().enumerate() {
            match (buffer, &result) {
                (Some(buffer), Ok(())) => buffer.send(port as u32, self.host),
                (Some(buffer), Err(_)) => buffer.clear(),
                (None, _) => {}
            }
        }
        match &result {
            Ok(()) => self.timers.send(self.host),
            Err(_) => self.timers.clear(),
        }
        let row = self.next.checked_sub(1).map(|row| row as u32);
        result.map(|()| self.rejections).map_err(|error| error.at_row(row))
    }

    /// Goes to the next record of the batch, which becomes the current one.
    ///
    /// Only [`process_batch`](crate::Operator::process_batch) needs this.
    #[inline(always)]
    pub fn next_record(&mut self) -> Option<Record<'a>> {
        if self.next == self.rows.len() {
            return None;
        }
        if self.rejecting {
            self.begin_record();
        }
        let record = self.rows.get(self.next);
        self.timestamp = record.timestamp;
        self.headers.begin(record.headers);
        self.next += 1;
        Some(record)
    }

    /// All records of the batch. In `watermark` there are none.
    pub fn rows(&self) -> Rows<'a> {
        self.rows
    }

    /// The input that the batch has come from.
    #[inline]
    pub fn input(&self) -> Input {
        self.input
    }

    /// The watermark that this subtask has come to, in milliseconds since the Unix epoch: no more records with an event time
    /// at or before it are to come, and one that comes all the same is late. `i64::MIN` before the first. An operator with
    /// timers goes on with that of its checkpoint after a crash.
    #[inline]
    pub fn watermark(&mut self) -> i64 {
        match self.watermark {
            Some(watermark) => watermark,
            None => *self.watermark.insert(self.host.watermark_ms()),
        }
    }

    /// The time of day in milliseconds since the Unix epoch, as of the beginning of the call. What is made of it isn't the
    /// same again after a crash.
    #[inline]
    pub fn now(&mut self) -> i64 {
        match self.now {
            Some(now) => now,
            None => *self.now.insert(self.host.now_ms()),
        }
    }

    /// Takes the error of the current record: if it is a bad record and the job lets the operator reject records, everything
    /// that was done since [`next_record`](Self::next_record) gave it is undone, and the call goes on.
    ///
    /// Only [`process_batch`](crate::Operator::process_batch) needs this.
    ///
    /// # Errors
    /// The error itself, if the call can't go on.
    #[cold]
    pub fn reject(&mut self, error: Error) -> Result<(), Error> {
        if !self.rejecting || error.kind() != ErrorKind::BadRecord || self.next == 0 {
            return Err(error);
        }
        // The first of an output's batches that the record has filled began before it.
        while let Some((port, buffer)) = self.full.pop() {
            self.outputs[port as usize] = Some(buffer);
        }
        self.outputs.iter_mut().flatten().for_each(|buffer| buffer.cut_back());
        self.timers.cut_back(self.timers_mark);
        self.cache.undo(self.host)?;
        self.rejections.push(Rejection { row: self.row() as u32, message: error.to_string() });
        Ok(())
    }

    /// What the last record has done stays; what the next one does may have to be undone.
    fn begin_record(&mut self) {
        self.send_full();
        if self.timers.is_full() {
            self.timers.send(self.host);
        }
        self.outputs.iter_mut().flatten().for_each(|buffer| buffer.mark());
        self.timers_mark = self.timers.mark();
        self.cache.begin_record();
    }

    fn send_full(&mut self) {
        for (port, mut buffer) in self.full.drain(..) {
            buffer.send(port, self.host);
            // Its memory is of use again.
            self.outputs[port as usize].get_or_insert(buffer);
        }
    }

    /// Sets or deletes a timer of the current key.
    pub(crate) fn write_timer(&mut self, clock: Clock, time: i64, tag: &[u8], delete: bool) -> Result<(), Error> {
        if self.next == 0 {
            return Err(Error::fatal("timers are set by key, and there is no record at the moment"));
        }
        if !self.cache.is_keyed() {
            return Err(Error::fatal("timers are set by key, and records of a broadcast input have none"));
        }
        let key = self.rows.key(self.row());
        let key = key.ok_or_else(|| Error::bad_record("timers are set by key, and the record has no key"))?;
        self.timers.push(clock, key, time, tag, delete);
        if !self.rejecting && self.timers.is_full() {
            self.timers.send(self.host);
        }
        Ok(())
    }

    /// Sends a record to the main output, with the event time and the headers of the current record.
    ///
    /// Keys and values are whatever is an [`AsField`]: bytes, text, `Option`s of them, or `()` where one is missing.
    #[inline]
    pub fn emit(&mut self, key: impl AsField, value: impl AsField) {
        self.emit_to(Output::MAIN, key, value);
    }

    /// Sends a record to an output, with the event time and the headers of the current record.
    #[inline]
    pub fn emit_to(&mut self, output: Output, key: impl AsField, value: impl AsField) {
        let timestamp = self.timestamp;
        self.emit_at(output, key, value, timestamp);
    }

    /// Sends a record to the main output with another event time, in milliseconds since the Unix epoch.
    #[inline]
    pub fn emit_with_timestamp(&mut self, key: impl AsField, value: impl AsField, timestamp: i64) {
        self.emit_at(Output::MAIN, key, value, timestamp);
    }

    /// Sends a record to an output with another event time.
    #[inline]
    pub fn emit_at(&mut self, output: Output, key: impl AsField, value: impl AsField, timestamp: i64) {
        self.put_headers(output);
        if self.buffer(output).push(key.as_field(), value.as_field(), timestamp) {
            self.send(output);
        }
    }

    /// Sends a record to the main output whose value is formatted straight into the batch.
    ///
    /// [`emit_with`](Self::emit_with) is faster and nearly as short.
    #[inline]
    pub fn emit_fmt(&mut self, key: impl AsField, value: fmt::Arguments<'_>) {
        self.emit_with(key, |writer| {
            // Writing into memory can't fail.
            let _ = fmt::Write::write_fmt(writer, value);
        });
    }

    /// Sends a record to the main output whose value is written piece by piece: see [`ValueWriter`].
    #[inline]
    pub fn emit_with(&mut self, key: impl AsField, write: impl FnOnce(&mut ValueWriter<'_>)) {
        let timestamp = self.timestamp;
        self.emit_with_at(Output::MAIN, key, timestamp, write);
    }

    /// Sends a record to an output with an event time, its value written piece by piece.
    #[inline]
    pub fn emit_with_at(
        &mut self,
        output: Output,
        key: impl AsField,
        timestamp: i64,
        write: impl FnOnce(&mut ValueWriter<'_>),
    ) {
        self.put_headers(output);
        if self.buffer(output).push_with(key.as_field(), timestamp, write) {
            self.send(output);
        }
    }

    /// Adds a header to what is emitted from now on, until the next record.
    ///
    /// What is emitted for a record has the headers of that record, as it has its event time; timers and watermarks have
    /// none. This, [`remove_header`](Self::remove_header) and [`clear_headers`](Self::clear_headers) change them.
    ///
    /// ```
    /// use lockgate::prelude::*;
    /// use lockgate::testing::TestRecord;
    ///
    /// struct Stamp;
    ///
    /// impl Operator for Stamp {
    ///     fn new(_: &mut Declaration) -> Stamp {
    ///         Stamp
    ///     }
    ///
    ///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
    ///         ctx.remove_header("secret");
    ///         ctx.add_header("seen-by", "stamp");
    ///         ctx.emit(record.key(), record.value());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut harness = lockgate::testing::Harness::<Stamp>::open()?;
    /// harness.process([TestRecord::from(("k", "v")).with_header("trace", "7").with_header("secret", "x")])?;
    /// let expected = TestRecord::from(("k", "v")).with_header("trace", "7").with_header("seen-by", "stamp");
    /// assert_eq!(harness.take_output(), [expected]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_header(&mut self, name: &str, value: impl AsField) {
        self.headers.add(Header { name, value: value.as_field() });
    }

    /// Removes the headers of a name from what is emitted from now on, until the next record.
    pub fn remove_header(&mut self, name: &str) {
        self.headers.remove(name);
    }

    /// Removes all headers from what is emitted from now on, until the next record.
    pub fn clear_headers(&mut self) {
        self.headers.clear();
    }

    #[inline]
    fn put_headers(&mut self, output: Output) {
        if self.headers.any {
            buffer(self.outputs, output).put_headers(self.headers.bytes());
        }
    }

    #[inline]
    fn buffer(&mut self, output: Output) -> &mut OutputBuffer {
        buffer(self.outputs, output)
    }

    #[cold]
    fn send(&mut self, output: Output) {
        let place = &mut self.outputs[output.port as usize];
        if self.rejecting && self.next > 0 {
            // The record may have to be undone.
            self.full.extend(place.take().map(|buffer| (output.port, buffer)));
        } else if let Some(buffer) = place {
            buffer.send(output.port, self.host);
        }
    }

    /// Writes a line to the host's log, with the operator's name. Not for every record: each line is a call to the host.
    pub fn log(&mut self, level: Level, message: impl AsRef<str>) {
        self.host.log(level, message.as_ref());
    }

    /// Adds to one of this operator's counters. Unlike state and output it isn't rolled back.
    #[inline]
    pub fn counter(&mut self, name: &'static str, delta: u64) {
        match self.counters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += delta,
            None => self.counters.push((name, delta)),
        }
    }

    /// Gives what is emitted from now on, in this call of the operator, another event time.
    pub(crate) fn set_timestamp(&mut self, timestamp: i64) {
        self.timestamp = timestamp;
    }

    /// The current row.
    pub(crate) fn row(&self) -> usize {
        self.next.wrapping_sub(1)
    }

    /// The current key's slot in the cache.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<usize, Error> {
        if self.next == 0 {
            return Err(Error::fatal("state is kept by key, and there is no record at the moment"));
        }
        self.cache.enter(&self.rows, self.next - 1, self.host)
    }

    /// Notes what the current key's cell of a table is, if its record may have to be undone. Before it changes.
    #[inline]
    pub(crate) fn note(&mut self, table: u32, slot: usize) -> Result<(), Error> {
        if self.rejecting { self.cache.note(table, slot, None) } else { Ok(()) }
    }

    /// Whether what the current record does may have to be undone.
    #[inline]
    pub(crate) fn may_reject(&self) -> bool {
        self.rejecting
    }

    /// [`note`](Self::note) for one entry of a map.
    #[inline]
    pub(crate) fn note_entry(&mut self, table: u32, slot: usize, user_key: &[u8]) -> Result<(), Error> {
        if self.rejecting { self.cache.note(table, slot, Some(user_key)) } else { Ok(()) }
    }

    /// [`note`](Self::note) for all entries of a map or list.
    pub(crate) fn note_all(&mut self, table: u32, slot: usize) -> Result<(), Error> {
        if !self.rejecting {
            return Ok(());
        }
        let key = self.key_bytes();
        self.cache.note_all(table, slot, &key, self.host)
    }

    /// Reads the current key's cell of a table, and those of the keys to come.
    #[cold]
    pub(crate) fn load(&mut self, table: u32) -> Result<(), Error> {
        self.cache.load(table, self.next - 1, self.host)
    }

    /// A copy of the current key.
    pub(crate) fn key_bytes(&self) -> Vec<u8> {
        self.rows.key(self.row()).unwrap_or_default().to_vec()
    }
}

#[inline]
fn buffer(outputs: &mut [Option<Box<OutputBuffer>>], output: Output) -> &mut OutputBuffer {
    let buffer = outputs.get_mut(output.port as usize).expect("an output of this operator's own declaration");
    buffer.get_or_insert_with(OutputBuffer::boxed)
}
