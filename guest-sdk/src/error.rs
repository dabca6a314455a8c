//! Why an operator could not do what it was asked.

use std::fmt;

/// Whose fault it is that a call failed: `error-kind` of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Trying the same again from the last checkpoint may work.
    Transient,
    /// One record can't be processed; the rest of the stream may be fine.
    BadRecord,
    /// Nothing will help but another operator or configuration.
    Fatal,
}

/// A failed call.
///
/// `?` turns every [`std::error::Error`] into an error of kind [`BadRecord`](ErrorKind::BadRecord), for in an operator it
/// is mostly the record that doesn't parse. The record is the one that is being processed; outside of `process` there is
/// none, and the error counts as fatal. Where it is something else, say so:
///
/// ```
/// use lockgate::{Error, ErrorKind};
///
/// fn parse(value: &[u8]) -> Result<i64, Error> {
///     Ok(std::str::from_utf8(value)?.parse()?)
/// }
///
/// assert_eq!(parse(b"12").unwrap(), 12);
/// let error = parse(b"twelve").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::BadRecord);
/// assert_eq!(error.to_string(), "invalid digit found in string");
///
/// let error = "x".parse::<i64>().map_err(Error::fatal).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Fatal);
/// ```
// Boxed, so that the result of a call that gives nothing is one word.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    row: Option<u32>,
    message: String,
}

impl Error {
    #[cold]
    fn new(kind: ErrorKind, message: &dyn fmt::Display) -> Error {
        Error(Box::new(Inner { kind, row: None, message: message.to_string() }))
    }

    /// The record that is being processed can't be.
    pub fn bad_record(message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::BadRecord, &message)
    }

    /// The same may work when tried again.
    pub fn transient(message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Transient, &message)
    }

    /// It won't work, however often it is tried.
    pub fn fatal(message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Fatal, &message)
    }

    /// Says what was being done: `context: message`.
    ///
    /// ```
    /// # use lockgate::Error;
    /// let error = Error::bad_record("invalid digit").context("field 'age'");
    /// assert_eq!(error.to_string(), "field 'age': invalid digit");
    /// ```
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The row of the batch that was being processed, if one was.
    pub fn row(&self) -> Option<u32> {
        self.0.row
    }

    /// Adds which row of the batch it was. Without one there is no record to be bad, and the error is fatal.
    pub(crate) fn at_row(mut self, row: Option<u32>) -> Error {
        self.0.row = row;
        if row.is_none() && self.0.kind == ErrorKind::BadRecord {
            self.0.kind = ErrorKind::Fatal;
        }
        self
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Error {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Error::bad_record(message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        self.0.row.map_or(Ok(()), |row| write!(f, " (row {row})"))
    }
}
